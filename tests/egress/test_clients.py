"""Ordinary programs use the way outside as they are: curl, git, pip, npm, apt, Python, Node, Java's tools."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.facts.session import Destination, EgressPolicy, SecretUse
from holdfast.hands.base import Network
from holdfast.hands.user import choose_user
from holdfast.testing.egress import part
from holdfast.testing.hands import bash, run
from holdfast.vault.fake import FakeVault
from tests.egress.upstream import World
from tests.hands.rigs import bubblewrap, real

VALUE = "canary-of-the-forge-77"
POLICY = EgressPolicy(
    allow=(Destination("index.test"), Destination("forge.test"), Destination("deb.test", (), plain=True)),
    secrets=(
        SecretUse(
            "forge", ("forge.test",), variable="FORGE", basic=True, paths=("/git/*",), push=("refs/heads/agent/*",)
        ),
        SecretUse("api", ("forge.test",), variable="API", methods=("GET",)),
    ),
)


class Scene:
    """A shell inside, and the world outside."""

    def __init__(self, world: World, shell: object, egress: ProxyEgress) -> None:
        self.world = world
        self._shell = shell
        self._calls = 0
        self.egress = egress

    async def sh(self, command: str) -> str:
        """Run it inside; it has to succeed. Returns what it printed."""
        self._calls += 1
        result = await run(self._shell, f"{self._calls}.0", bash(command, 60.0))  # type: ignore[arg-type]
        assert result.ok, result.output
        return result.output


@asynccontextmanager
async def scene(folder: Path, extras: dict[str, str] | None = None) -> AsyncIterator[Scene]:
    """Hands whose way outside leads to an index, a forge and a Debian archive; `extras` are shown to them."""
    world = World(folder)
    world.serve("index.test", "93.184.216.10")
    world.serve("forge.test", "93.184.216.11")
    world.serve("deb.test", "93.184.216.12", 80, tls=False)
    vault = FakeVault({"forge": VALUE, "api": f"{VALUE}-api"}, SystemClock())
    egress = ProxyEgress(folder / "home" / "egress", vault, bundle=str(world.bundle), network=part(world.tables))
    try:
        async with real(folder, bubblewrap) as rig:
            spec = rig.spec(read_only=extras or {})
            gateway = await egress.open("ses_clients", POLICY, uid=choose_user(spec.workspace).uid)
            network = Network(gateway.socket, gateway.port, gateway.env, gateway.files)
            hands = await rig.provider.provision(msgspec.structs.replace(spec, network=network), 1)
            yield Scene(world, hands, egress)
    finally:
        await egress.forget("ses_clients")
        world.close()


def needs(program: str) -> None:
    """Skip where it is not there for the hands."""
    if not os.access(f"/usr/bin/{program}", os.X_OK):
        pytest.skip(f"/usr/bin/{program} is not installed here")


async def test_curl_and_python(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        said = await one.sh('curl -sSf https://forge.test/x -H "Authorization: Bearer $API"')
        assert json.loads(said)["path"] == "/x"
        assert one.world.seen[-1].headers["authorization"] == f"Bearer {VALUE}-api"
        urllib = "import urllib.request as u; print(u.urlopen('https://{}').read().decode())"
        for where in ("index.test/u", "forge.test/u"):
            assert json.loads(await one.sh(f'python3 -c "{urllib.format(where)}"'))["path"] == "/u"
        plain = "import urllib.request as u; print(u.urlopen('http://deb.test/p').read().decode())"
        assert json.loads(await one.sh(f'python3 -c "{plain}"'))["path"] == "/p"


async def test_requests_and_httpx(tmp_path: Path) -> None:
    names = (
        "requests urllib3 idna certifi charset_normalizer httpx httpcore anyio h11 sniffio typing_extensions".split()
    )
    library = tmp_path / "library"
    library.mkdir(mode=0o755)
    for name in names:
        found = importlib.util.find_spec(name)
        if found is None or found.origin is None:
            continue  # what the others do without in their newer versions
        origin = Path(found.origin)
        if origin.name == "__init__.py":
            shutil.copytree(origin.parent, library / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, library)
    async with scene(tmp_path, {str(library): "/mnt/library"}) as one:
        for name in ("requests", "httpx"):
            program = f"import {name} as x; print(x.post('https://{{}}/r', data='body', timeout=20).json()['body'])"
            program = program.replace("data='body'", "content='body'") if name == "httpx" else program
            for host in ("index.test", "forge.test"):
                assert await one.sh(f'PYTHONPATH=/mnt/library python3 -c "{program.format(host)}"') == "body\n"


async def test_git_clones_and_pushes_what_it_may(tmp_path: Path) -> None:
    needs("git")
    repository(tmp_path)
    async with scene(tmp_path) as one:
        await one.sh("git clone -q https://forge.test/git/project.git /tmp/p")
        commit = "cd /tmp/p && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m more"
        await one.sh(f"{commit} && git push -q origin HEAD:refs/heads/agent/work")
        said = await one.sh("cd /tmp/p && ! git push origin HEAD:refs/heads/main 2>&1")
        assert "403" in said
        assert "agent/work" in heads(tmp_path)
        assert heads(tmp_path)["main"] != heads(tmp_path)["agent/work"]
        given = {seen.headers.get("authorization", "") for seen in one.world.of("forge.test")}
        basic = base64.b64encode(f"x-access-token:{VALUE}".encode()).decode()
        assert given == {"", f"Basic {basic}"}
        assert VALUE not in await one.sh("cat /tmp/p/.git/config; env; git config --list")
        notes = await one.egress.notes("ses_clients", 0)
        assert any("refs/heads/main" in seen.reason for seen in notes.seen if seen.verdict == "refused")


def repository(folder: Path) -> None:
    """A bare repository with one commit on main."""
    (folder / "repositories").mkdir()
    bare, work = folder / "repositories" / "project.git", folder / "checkout"
    git = ["/usr/bin/git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for command in (
        [*git, "init", "-q", "--bare", str(bare)],
        [*git, "-C", str(bare), "config", "http.receivepack", "true"],
        [*git, "init", "-q", str(work)],
        [*git, "-C", str(work), "commit", "-q", "--allow-empty", "-m", "first"],
        [*git, "-C", str(work), "push", "-q", str(bare), "HEAD:refs/heads/main"],
    ):
        subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)})


def heads(folder: Path) -> dict[str, str]:
    """Branches and their commits."""
    command = ["/usr/bin/git", "-C", str(folder / "repositories" / "project.git"), "for-each-ref", "refs/heads"]
    said = subprocess.run(command, check=True, capture_output=True, env={"HOME": str(folder)}).stdout.decode()
    return {line.split("\t")[1].removeprefix("refs/heads/"): line.split(" ")[0] for line in said.splitlines()}


async def test_pip(tmp_path: Path) -> None:
    found = subprocess.run(["/usr/bin/python3", "-I", "-m", "pip", "--version"], capture_output=True, check=False)  # noqa: ASYNC221
    if found.returncode:
        pytest.skip("the system's Python has no pip")
    async with scene(tmp_path) as one:
        wheels(one.world)
        pip = "python3 -m pip install -q --disable-pip-version-check --index-url https://index.test/simple -t /tmp/t"
        await one.sh(f"{pip} demo && PYTHONPATH=/tmp/t python3 -c 'import demo; print(demo.WORD)' | grep it-works")
        assert {seen.path for seen in one.world.seen} >= {"/simple/demo/", "/files/demo-1.0-py3-none-any.whl"}


async def test_uv(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        pytest.skip("uv is not installed beside this Python")
    shutil.copy(uv, tmp_path / "uv")
    async with scene(tmp_path, {str(tmp_path / "uv"): "/mnt/uv"}) as one:
        wheels(one.world)
        await one.sh(
            "/mnt/uv pip install -q --no-cache --python /usr/bin/python3 --index-url https://index.test/simple "
            "--target /tmp/t demo"
        )
        assert (await one.sh("PYTHONPATH=/tmp/t python3 -c 'import demo; print(demo.WORD)'")) == "it-works\n"


def wheels(world: World) -> None:
    """An index with one package."""
    name, out = "demo-1.0-py3-none-any.whl", io.BytesIO()
    info = "demo-1.0.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("demo.py", 'WORD = "it-works"\n')
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"demo.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    digest = hashlib.sha256(out.getvalue()).hexdigest()
    world.files["/simple/demo/"] = f'<a href="/files/{name}#sha256={digest}">{name}</a>'.encode()
    world.files[f"/files/{name}"] = out.getvalue()


async def test_npm_and_node(tmp_path: Path) -> None:
    needs("npm")
    async with scene(tmp_path) as one:
        packages(one.world)
        npm = "cd /tmp && mkdir n && cd n && npm install --silent --no-audit --no-fund --registry https://index.test/"
        await one.sh(f"{npm} demo && node -e 'console.log(require(\"demo\"))' | grep it-works")
        assert "/demo/-/demo-1.0.0.tgz" in {seen.path for seen in one.world.of("index.test")}
        if "has" in await one.sh("node --help | grep -q NODE_USE_ENV_PROXY && echo has || echo not"):
            fetch = "fetch('https://forge.test/n').then(r => r.json()).then(j => console.log(j.path))"
            assert await one.sh(f'node -e "{fetch}"') == "/n\n"


def packages(world: World) -> None:
    """A registry with one package."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in {
            "package/package.json": json.dumps({"name": "demo", "version": "1.0.0", "main": "index.js"}),
            "package/index.js": 'module.exports = "it-works"\n',
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(out.getvalue()).digest()).decode()
    dist = {"tarball": "https://index.test/demo/-/demo-1.0.0.tgz", "integrity": integrity}
    version = {"name": "demo", "version": "1.0.0", "main": "index.js", "dist": dist}
    world.files["/demo"] = json.dumps(
        {"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    ).encode()
    world.files["/demo/-/demo-1.0.0.tgz"] = out.getvalue()


async def test_apt(tmp_path: Path) -> None:
    needs("apt-get")
    async with scene(tmp_path) as one:
        stanza = "Package: demo\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@b>\nFilename: ./demo.deb\nSize: 5\n"
        one.world.files["/deb/./Packages"] = one.world.files["/deb/Packages"] = (
            stanza + f"SHA256: {hashlib.sha256(b'hello').hexdigest()}\nDescription: x\n\n"
        ).encode()
        one.world.files["/deb/./demo.deb"] = one.world.files["/deb/demo.deb"] = b"hello"
        await one.sh(
            "mkdir -p /tmp/a/lists/partial /tmp/a/cache/archives/partial && touch /tmp/a/status && "
            "echo 'deb [trusted=yes] http://deb.test/deb ./' > /tmp/a/list"
        )
        where = (
            "-o Dir::State=/tmp/a -o Dir::State::status=/tmp/a/status -o Dir::Cache=/tmp/a/cache "
            "-o Dir::Etc::SourceList=/tmp/a/list -o Dir::Etc::SourceParts=/none -o APT::Sandbox::User=agent"
        )
        await one.sh(
            f"apt-get {where} update && cd /tmp && apt-get {where} download demo && grep hello demo_1.0_all.deb"
        )
        assert "/deb/./demo.deb" in {seen.path for seen in one.world.of("deb.test")}
