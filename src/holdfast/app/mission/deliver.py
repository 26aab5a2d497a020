"""`holdfast mission deliver`: the result of a mission as a branch and a pull request; pushed only on request."""

from __future__ import annotations

import argparse
import base64
import os
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import SocketStream

from holdfast.app.call import SESSION, Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.screen.briefs import pull_request_body
from holdfast.app.settings.egress_policy import secret_uses
from holdfast.egress.base import Egress
from holdfast.egress.control import reach
from holdfast.egress.git_push import may_push
from holdfast.egress.streams import Ended, Stream
from holdfast.errors import HoldfastError, RepositoryUnfit
from holdfast.facts.session import EgressPolicy, SecretUse
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.plumbing import Plumbing
from holdfast.repo.plumbing.refs import Forge, Way, forge_of, push_branch
from holdfast.service import missions
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--remote", metavar="NAME", default="origin", help="Remote to push to (default: origin)")
    parser.add_argument("--base", metavar="BRANCH", default="", help="The target branch (default: the followed one)")
    parser.add_argument("--push", action="store_true", help="Push the branch with a secret that permits it")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def run(call: Call) -> int:
    """Print the branch and the pull request; push with `--push`."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        prepared = await _prepared(call, runtime, row)
        sent = ""
        if call.args.push:
            uses = secret_uses(call.settings)
            state = runtime.home.path / "repositories"
            sent = await push(prepared, state, runtime.egress, uses, uid=os.getuid())
        if call.json:
            call.emit(
                {
                    "session_id": row.session_id,
                    "branch": prepared.branch,
                    "commit": prepared.commit,
                    "base": prepared.base,
                    "title": prepared.title,
                    "body": prepared.body,
                    "command": prepared.command,
                    "pushed": sent,
                }
            )
        elif sent:
            call.say(sent)
        else:
            call.say(said(prepared).rstrip())
    return 0


async def _prepared(call: Call, runtime: Runtime, row: SessionRow) -> Prepared:
    created = await missions.created_of(runtime.store, row)
    mission = created.mission
    assert mission is not None
    return await prepare(
        Path(mission.repo),
        runtime.home.path / "repositories",
        mission.name,
        base=call.args.base or mission.follow,
        title=mission.contract.goal,
        body=await pull_request_body(runtime, row),
        remote=call.args.remote,
    )


VARIABLE = "HOLDFAST_PUSH"
"""The variable of a push's placeholder; no program receives it."""

_TITLE_MAX = 120
_LINK_MAX = 6_000
_REFUSED = "nothing was sent; push it yourself: "


class Prepared(msgspec.Struct, frozen=True):
    """The branch of a mission's result, ready to be pushed. `url` is the remote's address, empty without one.

    `base` is the target branch, without `refs/heads/`.
    """

    repository: str
    ref: str
    commit: str
    base: str
    title: str
    body: str
    remote: str = "origin"
    url: str = ""

    @property
    def branch(self) -> str:
        """The branch's short name."""
        return self.ref.removeprefix("refs/heads/")

    @property
    def command(self) -> str:
        """The command with which the user can push it."""
        return shlex.join(["git", "-C", self.repository, "push", self.remote, f"{self.ref}:{self.ref}"])


async def prepare(
    folder: Path, state: Path, mission: str, *, base: str, title: str, body: str, remote: str = "origin"
) -> Prepared:
    """Return the result of a mission as a branch and a pull request. Changes nothing and sends nothing.

    `mission` is its name, `state` the folder of git directories. Raises `RepositoryUnfit` without a main branch of it.
    """
    ref = f"refs/heads/holdfast/{mission}/main"
    found = await GitRepository(folder, state).resolve(ref)
    if found is None:
        raise RepositoryUnfit(
            f"{folder} has no branch {ref.removeprefix('refs/heads/')}; nothing was sent. `holdfast mission show` "
            "shows the progress of the mission"
        )
    git = Plumbing(folder, state)
    settings = await anyio.to_thread.run_sync(lambda: git.settings)
    line = " ".join(title.split())[:_TITLE_MAX]
    return Prepared(
        str(folder),
        ref,
        found.commit,
        base.removeprefix("refs/heads/"),
        line,
        body,
        remote,
        settings.remotes.get(remote, ""),
    )


def link(prepared: Prepared, *, pushed_to: Forge | None = None) -> str:
    """Return the page that opens the pull request; empty for an unknown kind of server."""
    forge = pushed_to or forge_of(prepared.url)
    if forge is None or not prepared.base:
        return ""
    page = f"https://{forge.host}/{forge.path.removesuffix('.git')}"
    if forge.host == "github.com":
        words = {"expand": "1", "title": prepared.title, "body": prepared.body}
        whole = f"{page}/compare/{prepared.base}...{prepared.branch}?{urlencode(words)}"
        short = f"{page}/compare/{prepared.base}...{prepared.branch}?expand=1"
    elif forge.host.split(".")[0] == "gitlab":
        ends = {"source_branch": prepared.branch, "target_branch": prepared.base}
        words = {**ends, "title": prepared.title, "description": prepared.body}
        whole, short = [
            f"{page}/-/merge_requests/new?" + urlencode({f"merge_request[{key}]": text for key, text in each.items()})
            for each in (words, ends)
        ]
    else:
        return ""
    return whole if len(whole) <= _LINK_MAX else short


def said(prepared: Prepared) -> str:
    """Return the pull request as text: the push command, the page that opens it, its title and body."""
    lines = [f"branch   {prepared.branch} at {prepared.commit[:12]}, for {prepared.base or 'no branch'}"]
    if prepared.url:
        lines.append(f"push     {prepared.command}")
    else:
        lines.append(f"there is no remote {prepared.remote}; merge locally: git merge {prepared.branch}")
    if page := link(prepared):
        lines.append(f"open     {page}")
    return "\n".join([*lines, "", prepared.title, "", prepared.body.rstrip(), ""])


async def push(prepared: Prepared, state: Path, egress: Egress, uses: Sequence[SecretUse], *, uid: int) -> str:
    """Push the branch to its remote as one of `uses` permits. Return the destination. `uid` is the uid of this process.

    Raises `RepositoryUnfit` with the command to type if none permits it or the server refuses.
    """
    forge = forge_of(prepared.url)
    if forge is None:
        raise RepositoryUnfit(
            f"the remote {prepared.remote} of {prepared.repository} is not an https or ssh address of a named "
            f"host; {_REFUSED}{prepared.command}"
        )
    use = _chosen(uses, forge, prepared)
    policy = EgressPolicy(secrets=(use,), ask="never")  # the user requested this push
    session_id = f"push_{prepared.commit[:16]}"
    gateway = await egress.open(session_id, policy, uid=uid)
    try:
        socket = Path(gateway.socket)
        password = base64.b64encode(f"x-access-token:{gateway.env[VARIABLE]}".encode()).decode()
        async with _on_loopback(socket) as port:
            way = Way(f"http://127.0.0.1:{port}", socket.with_name("ca.pem"), f"Basic {password}")
            git = Plumbing(Path(prepared.repository), state)
            work = partial(push_branch, git, forge, prepared.commit, prepared.ref, way)
            refused = await anyio.to_thread.run_sync(_refusal, work)  # raised inside, it would be grouped
    finally:
        with anyio.CancelScope(shield=True):
            await egress.forget(session_id)
    if refused is not None:
        raise refused
    return f"{forge.url} {prepared.branch}"


def _refusal(work: Callable[[], None]) -> HoldfastError | None:
    try:
        work()
    except HoldfastError as error:
        return error
    return None


def _chosen(uses: Sequence[SecretUse], forge: Forge, prepared: Prepared) -> SecretUse:
    """Return the first secret that may push this branch there, restricted to that."""
    for use in uses:
        if use.basic and forge.host in use.hosts and may_push(use.push, prepared.ref):
            return msgspec.structs.replace(
                use,
                hosts=(forge.host,),
                variable=VARIABLE,
                paths=use.paths or (f"/{forge.path}/*",),
                push=(prepared.ref,),
            )
    raise RepositoryUnfit(
        f"no secret permits pushing {prepared.branch} to {forge.host}: a [secrets.NAME] table in your own "
        f'holdfast.toml needs hosts = ["{forge.host}"], basic = true and push = ["refs/heads/holdfast/*"]; '
        f"{_REFUSED}{prepared.command}"
    )


@asynccontextmanager
async def _on_loopback(proxy: Path) -> AsyncIterator[int]:
    """Expose the proxy's socket as a local port for the block: git's HTTP needs a port."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)

    async def serve(near: SocketStream) -> None:
        async def bring_back() -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, Ended):
                while data := await far.recv():
                    await near.send(data)
                await near.send_eof()

        try:
            far = Stream(reach(proxy))
        except OSError:  # the proxy is gone; git reports the closed connection
            await near.aclose()
            return
        with closing(far):
            async with near, anyio.create_task_group() as tasks:
                tasks.start_soon(bring_back)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, Ended):
                    async for data in near:
                        await far.send(data)
                    far.finish()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()
