"""The HTTP server of a home and its credentials: serve, open, keys."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from holdfast.app.call import Call, span
from holdfast.app.cli.worker import concurrency, concurrency_argument, serve_sessions
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.home import Home, Serving, only_server, open_home, server_of
from holdfast.app.server.site import site_of
from holdfast.app.settings.config import database_path, has_desktop, local_caller
from holdfast.clock import SystemClock, local_time, rfc3339
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.ids import system_entropy
from holdfast.log.search.index import SearchIndex, search_path
from holdfast.serve.access import LINK_S, ROLES, Access, Credential
from holdfast.service.posting import person

HOST, PORT = "127.0.0.1", 8400
"""Default address of the server."""


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    parser.add_argument("--host", metavar="IP", default=HOST, help=f"IP address to listen on (default: {HOST})")
    parser.add_argument(
        "--port", metavar="N", type=_port, default=PORT, help=f"Port (default: {PORT}; 0: any free one)"
    )
    parser.add_argument("--url", metavar="URL", help="Address that users type, if it is that of a reverse proxy")
    concurrency_argument(parser)
    parser.add_argument("--no-link", action="store_true", help="Print no login link, which others could read in a log")
    parser.add_argument("--json", action="store_true", help="Print events as JSON lines")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, such as {PORT}")
    return int(text)


class Place(NamedTuple):
    """The address to listen on, the one that users type if it is another, and whether to print a login link."""

    host: str = HOST
    port: int = 0
    url: str | None = None
    link: bool = True


async def serve_run(call: Call) -> int:
    """Run sessions and answer HTTP requests until a signal arrives."""
    limit, args = concurrency(call), call.args
    async with open_runtime(call.settings) as runtime:
        await serve_home(call, runtime, limit, Place(args.host, args.port, args.url, not args.no_link))
    raise AssertionError("a server ends by being stopped")


async def serve_home(
    call: Call, runtime: Runtime, limit: int, place: Place, begin: Callable[[], Awaitable[object]] | None = None
) -> NoReturn:
    """Serve an opened home until cancelled. `begin` runs first, once nothing can prevent the server from starting."""
    try:
        from holdfast.serve import server
    except ImportError as error:
        raise CannotRunSafely(
            f"the server needs packages that are not installed ({error.name}); nothing was started. Install them with: "
            "pip install 'holdfast[serve]'"
        ) from error
    database = database_path(call.settings)
    with only_server(runtime.home, database) as announce:
        access = Access(runtime.home.path, SystemClock(), system_entropy)
        listening = server.listen(place.host, place.port)
        with listening, closing(SearchIndex(search_path(database))) as index:
            if not server.is_loopback(place.host) and not any(each.kind == "key" for each in access.all()):
                raise CannotRunSafely(
                    f"{place.host} can be reached from other machines, and this home has no API key; nothing was "
                    "started. Create one first: holdfast keys create NAME --role operator"
                )
            port = listening.getsockname()[1]
            site = site_of(runtime, access, index, _url(place, port))
            app = server.application(site, host=place.host, port=port, tell=call.note)
            if begin is not None:
                await begin()
            announce(Serving(os.getpid(), runtime.worker.worker_id, site.url))
            if place.link:
                _show_link(call, access, site.url)
            await serve_sessions(call, runtime, limit, lambda: server.run(site, app, listening))


def _url(place: Place, port: int) -> str:
    """The address that users type. Raises `UsageError`."""
    if place.url is None:
        return f"http://{f'[{place.host}]' if ':' in place.host else place.host}:{port}"
    url = urlsplit(place.url)
    if url.scheme not in ("http", "https") or not url.netloc or url.path not in ("", "/") or url.query:
        raise UsageError(f"--url {place.url!r} is not an address such as https://holdfast.example.com")
    return f"{url.scheme}://{url.netloc}"


def _show_link(call: Call, access: Access, url: str) -> str:
    """Print and return a one-time link that logs a browser in as the user of this process."""
    caller = local_caller("cli")
    proof = caller.proof.replace("process_uid", "login_link")
    _, secret = access.issue("link", person(caller.actor), "admin", proof=proof, lives_s=LINK_S)
    link = f"{url}/login?link={secret}"
    if call.json:
        call.emit({"type": "link", "url": url, "link": link, "expires_s": LINK_S})
    else:
        call.say(f"open {link}\n(works once, within {LINK_S // 60} minutes; `{call.typed('open')}` prints another one)")
    return link


def open_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `open`."""
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def open_run(call: Call) -> int:
    """Print a login link of the server that runs on this home; open it in a browser on a desktop."""
    home = open_home(Path(call.settings.home))
    serving = server_of(home, database_path(call.settings))
    if serving is None:
        raise CannotRunSafely(f"no server runs on {home.path}; start one with `{call.typed('serve')}`")
    link = _show_link(call, Access(home.path, SystemClock(), system_entropy), serving.url)
    opener = shutil.which("xdg-open")
    if opener is not None and has_desktop() and not call.json:
        _open_browser(home, opener, link)
    return 0


def _open_browser(home: Home, opener: str, link: str) -> None:
    """Open a link in a browser, from a private file: all users of this machine can read the words of a command."""
    file = home.path / "login.html"
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as page:
        page.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={link}">')
    subprocess.Popen(
        (opener, file.as_uri()),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def keys_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `keys`."""
    parser.add_argument("action", metavar="create|list|revoke", choices=("create", "list", "revoke"), help="Action")
    parser.add_argument("name", metavar="NAME", nargs="?", help="With create: user of the key; with revoke: its ID")
    parser.add_argument("--role", choices=ROLES, help="Role of a new key: viewer, operator, or admin (default: viewer)")
    parser.add_argument("--project", metavar="DIR", help="Limit a new key to sessions that work in this folder")
    parser.add_argument("--expires", metavar="TIME", type=span, help="Lifetime of a new key, such as 90d")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def keys_run(call: Call) -> int:
    """Create, list, or revoke API keys; browser logins are listed and revoked too."""
    args = call.args
    access = Access(open_home(Path(call.settings.home)).path, SystemClock(), system_entropy)
    if args.action != "create" and (args.role or args.project or args.expires):
        raise UsageError("--role, --project, and --expires are for `create` alone; nothing was changed")
    if args.action == "list":
        if args.name is not None:
            raise UsageError("`keys list` takes no name; it lists all keys and browser logins")
        return _listed(call, access)
    if args.name is None:
        example = "holdfast keys create anna --role operator" if args.action == "create" else "holdfast keys revoke ID"
        raise UsageError(f"say which; for example: {example}")
    if args.action == "revoke":
        gone = access.revoke(args.name)
        call.say(f"{gone.id} of {gone.name} is revoked; requests with it are refused from now on")
        return 0
    project = str(Path(args.project).resolve()) if args.project else ""
    if project and not Path(project).is_dir():
        raise UsageError(f"--project {args.project!r} is not a folder; no key was created")
    lives_s = None if args.expires is None else round(args.expires)
    made, secret = access.issue("key", args.name, args.role or "viewer", project=project, lives_s=lives_s)
    if call.json:
        call.emit({**_public(made), "key": secret})
    else:
        call.say(secret)
        call.note(f"this is {made.id}, {_described(made)}; it is not shown again")
    return 0


def _listed(call: Call, access: Access) -> int:
    found = access.all()
    for each in found:
        if call.json:
            call.emit(_public(each))
        else:
            call.say(f"{each.id}  {_described(each)}")
    if not found:
        call.note(f"there are no API keys and no browser logins; create one: {call.typed('keys', 'create', 'NAME')}")
    return 0


def _described(each: Credential) -> str:
    where = f"in {each.project}" if each.project else "of the whole home"
    until = f", until {local_time(each.expires_us)}" if each.expires_us is not None else ""
    return f"{each.role} {each.name} {where}, created {local_time(each.created_us)}{until}"


def _public(each: Credential) -> dict[str, Any]:
    """A credential as JSON data."""
    return {
        "id": each.id,
        "kind": each.kind,
        "name": each.name,
        "role": each.role,
        "project": each.project,
        "created_at": rfc3339(each.created_us),
        "expires_at": None if each.expires_us is None else rfc3339(each.expires_us),
    }
