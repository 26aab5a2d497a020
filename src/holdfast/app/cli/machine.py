"""The verbs about this machine: doctor, hands, version."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from holdfast import __version__
from holdfast.app import exits
from holdfast.app.available_models import look
from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, Runtime, objects, open_runtime, postgres
from holdfast.app.home import Home
from holdfast.app.providers import Providers, queue_path, serving_provider
from holdfast.app.running.workers import serving, working
from holdfast.app.settings import policies
from holdfast.app.settings.config import database_path
from holdfast.app.settings.values import postgres_address
from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, HoldfastError, UsageError
from holdfast.hands.base import Capabilities, Finding
from holdfast.hands.far.server import FarServer, serve_stdio
from holdfast.hands.remote.queue import Queue
from holdfast.ids import new_worker_id, system_entropy
from holdfast.repo.git import is_here

MARKS = {"hard": "hard  ", "soft": "soft  ", "ok": "ok    ", "absent": "absent", "bad": "BAD   "}


def doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `doctor`."""
    parser.add_argument("--all", action="store_true", help="Also list what is absent and not needed")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def doctor_run(call: Call) -> int:
    """Run the checks and report the findings. A log that cannot be opened is a finding and does not end the checks."""
    home = Home(Path(call.settings.home).absolute())
    code = exits.DONE
    stored: tuple[Finding, ...] = ()
    try:
        async with open_runtime(call.settings) as runtime:
            sessions = await runtime.store.count()
            stored = (*await _database(runtime), *await _objects(runtime))
        place = postgres_address(call.settings.db) or database_path(call.settings)
        log = Finding("log", "ok", f"{place}, {sessions} sessions")
    except HoldfastError as error:
        log, code = Finding("log", "bad", str(error)), error.exit_code
    try:
        policy = policies.hands(call.settings)
        capabilities = await Providers(home.hands).named(policy.provider, policy.accept_weak).probe()
    except HoldfastError as error:  # an invalid provider is a finding, too
        capabilities = Capabilities("", False, findings=(Finding("hands", "bad", str(error)),))
    code = code or (exits.DONE if capabilities.usable else exits.UNABLE)
    models = await look()
    code = code or (exits.UNABLE if any(each.level == "bad" for each in stored) else exits.DONE)
    findings = (log, *stored, _git(), *capabilities.findings, *models.findings)
    if call.json:
        shown = msgspec.structs.replace(capabilities, findings=findings)
        public = {"program": PROGRAM, "home": str(home.path), "model": models.proposal or None}
        call.emit({**public, **msgspec.to_builtins(shown)})
        return code
    call.say(f"{PROGRAM}, home {home.path}")
    if capabilities.usable and capabilities.provider == "landlock":
        call.say("tool calls are isolated WEAKLY here (landlock): read below what is missing")
    elif capabilities.usable:
        call.say(f"tool calls are isolated here ({capabilities.provider})")
    else:
        call.say("tool calls cannot be isolated here; `run` refuses, unless --no-sandbox is given")
    if models.proposal:
        call.say(f"a model can be asked: holdfast run GOAL {models.proposal}")
    else:
        call.say(
            "no model can be asked: set a key such as ANTHROPIC_API_KEY, or start a local server such as Ollama; "
            "`holdfast demo` needs none"
        )
    _list(call, findings)
    return code


async def _database(runtime: Runtime) -> tuple[Finding, ...]:
    """Examine the server that the log is on, if it is on one: `holdfast.log.postgres.health`."""
    address = postgres_address(runtime.settings.db)
    if not address:
        return ()
    examine = partial(postgres("health").examine, address, SystemClock())
    version, problems = await anyio.to_thread.run_sync(examine)
    bad = [Finding("database", "bad", each.message, each.fix) for each in problems]
    for place, names in (await runtime.store.other_settings()).items():
        message = f"home {place} has other settings ({', '.join(names)}): its sessions do not go on here"
        bad.append(Finding("settings", "bad", message, "set them alike in both homes, and start their workers again"))
    return (*bad,) or (Finding("database", "ok", f"{version}: what it acknowledges is safe, and its clock agrees"),)


async def _objects(runtime: Runtime) -> tuple[Finding, ...]:
    """Try the object store of snapshots, if there is one."""
    url = runtime.settings.objects
    if not url:
        return ()
    try:
        await anyio.to_thread.run_sync(objects().probe, url)
    except HoldfastError as error:
        return (Finding("objects", "bad", str(error)),)
    return (Finding("objects", "ok", f"{url}: an object was written, read back, and deleted"),)


def _git() -> Finding:
    if is_here():
        return Finding("git", "ok", "workspaces are kept with it, so diff, undo, fork, and missions work")
    return Finding(
        "git", "absent", "no diff, undo, fork, or mission, and no workspace is kept", fix="install git 2.34 or newer"
    )


def _list(call: Call, findings: Sequence[Finding]) -> None:
    """Print the findings, those with something to do first. Absent things are named in one line without --all."""
    urgent = [each for each in findings if each.level == "bad" or (each.fix and each.level != "absent")]
    others = [each for each in findings if each not in urgent and (call.args.all or each.level != "absent")]
    absent = [each.name.removeprefix("model ") for each in findings if each not in (*urgent, *others)]
    for finding in (*urgent, *others):
        call.say(f"  {MARKS[finding.level]} {finding.name}: {finding.message}")
        for number, line in enumerate(finding.fix.splitlines()):
            call.say(f"         {'fix: ' if not number else '     '}{line}")
    if absent:
        call.say(f"  absent {', '.join(absent)} (`{call.typed('doctor', '--all')}` says why)")


LISTEN = "127.0.0.1:8478"
"""Default address of the queue."""


def hands_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `hands`."""
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    serve = words.add_parser("serve", help="Serve over standard input and output, for ssh")
    _provider(serve)
    work = words.add_parser("work", help="Take work from a queue and run it here")
    work.add_argument("--url", required=True, metavar="URL", help="URL of the queue (https:// unless on this machine)")
    work.add_argument("--key-file", required=True, metavar="FILE", help="File with a key made by 'hands key'")
    _provider(work)
    queue = words.add_parser("queue", help="Serve a queue for workers on other machines")
    queue.add_argument("--listen", metavar="HOST:PORT", default=LISTEN, help=f"Loopback address (default: {LISTEN})")
    key = words.add_parser("key", help="Create or revoke a worker key")
    key.add_argument("name", metavar="NAME", help="Name of the key; replaces a key of the same name")
    key.add_argument("--revoke", action="store_true", help="Revoke the key")


def _provider(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--provider", metavar="NAME", default="", help="Sandbox provider (default: bubblewrap)")


async def hands_run(call: Call) -> int:
    """Carry out the subcommand."""
    match call.args.word:
        case "serve":
            await serve_stdio(_server(call), 0, 1)
        case "work":
            await _work(call)
        case "queue":
            await _queue(call)
        case _:
            _key(call)
    return exits.DONE


def _server(call: Call) -> FarServer:
    folder = Path(call.settings.home).absolute() / "served"
    server = FarServer(serving_provider(call.args.provider, folder), folder, program=f"holdfast {__version__}")
    server.open(SystemClock())
    return server


async def _work(call: Call) -> None:
    path = Path(call.args.key_file)
    try:
        key = path.read_text().strip()
        if path.stat().st_mode & 0o077:
            raise UsageError(f"{path} can be read by others than you; type: chmod 600 {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the key in {path} cannot be read: {error}") from None
    name = new_worker_id(SystemClock().now_us(), system_entropy)
    worker = working().Worker(call.args.url, key, _server(call), name=name, environment="default", say=call.note)
    call.note(f"asking {call.args.url} for work; Ctrl-C stops it, and what runs in hands goes on")
    await worker.run()


async def _queue(call: Call) -> None:
    host, _, port = call.args.listen.rpartition(":")
    if not port.isdecimal() or not (host in ("localhost", "::1") or host.startswith("127.")):
        raise UsageError(
            f"--listen {call.args.listen} is no address of loopback with a port, such as {LISTEN}; for other machines "
            "put a server with TLS in front of it"
        )
    serve = serving()
    queue = Queue(queue_path(Path(call.settings.home)), SystemClock(), system_entropy)
    service = serve.Service(queue, SystemClock())
    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=int(port))
    except OSError as error:
        raise CannotRunSafely(f"{call.args.listen} cannot be listened at: {error.strerror}; choose another") from None
    at = listener.extra(anyio.abc.SocketAttribute.raw_socket).getsockname()
    call.note(f"workers may ask at http://{at[0]}:{at[1]}; Ctrl-C stops it, and loses nothing")
    try:
        await listener.serve(lambda stream: serve.serve_connection(stream, service.answer))
    finally:
        queue.close()


def _key(call: Call) -> None:
    queue = Queue(queue_path(Path(call.settings.home)), SystemClock(), system_entropy)
    try:
        if call.args.revoke:
            if not queue.revoke(call.args.name):
                raise UsageError(f"there is no key {call.args.name!r}; nothing was changed")
            call.note(f"the key {call.args.name} asks for no more work")
            return
        call.say(queue.new_key(call.args.name))
        call.note("this is shown once; put it into a file of the worker's own, with mode 600")
    finally:
        queue.close()


def version_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `version`."""
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def version_run(call: Call) -> int:
    """Print the version."""
    if call.json:
        call.emit({"version": __version__})
    else:
        call.say(f"holdfast {__version__}")
    return 0
