"""The life of a proxy: it outlives who started it, is found again, changes under way, and dies without letting go."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from holdfast.clock import SystemClock
from holdfast.egress.base import Gateway
from holdfast.egress.control import is_locked, places
from holdfast.egress.proxy import ProxyEgress
from holdfast.egress.server import PRESENT
from holdfast.errors import EgressUnavailable
from holdfast.facts.session import EgressPolicy
from holdfast.testing.egress import SECRETS, at, part, variable_of
from holdfast.testing.hands import bash, run
from holdfast.vault.reference_vault import ReferenceVault
from holdfast.vault.sources import Source
from tests.egress.rigs import VALUES, dial, proxy_rig, tunnel
from tests.egress.scene import ONE, SECRET, SES, TWO, code, gone, inside, pid_of
from tests.hands.rigs import kill_and_wait


async def test_killed_in_the_middle_hands_are_cut_off_until_the_next_opening(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig, inside(tmp_path, rig, SECRET) as (hands, uid):
        assert await code(hands, "1.0") == "200"
        before = await rig.egress.notes(SES, 0)
        await kill_and_wait(pid_of(rig))
        assert await code(hands, "2.0") == "000"
        assert await rig.egress.notes(SES, 0) == before
        assert [seen.count for seen in before.seen] == [1]
        await rig.egress.open(SES, SECRET, uid=uid)
        assert await code(hands, "3.0") == "200"
        assert [seen.headers["authorization"] for seen in rig.world.seen] == [f"Bearer {VALUES[0]}"] * 2
        assert [seen.count for seen in (await rig.egress.notes(SES, 0)).seen] == [2]


BRIDGE = """python3 - <<'END'
import glob
stats = {int(path.split("/")[2]): open(path).read() for path in glob.glob("/proc/[0-9]*/stat")}
parents = {pid: int(text.rpartition(")")[2].split()[1]) for pid, text in stats.items()}
print([pid for pid, parent in parents.items() if parent == 1 and pid not in parents.values()])
END"""


async def test_a_command_that_ends_its_own_keeper_ends_no_bridge(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig, inside(tmp_path, rig, SECRET) as (hands, _):
        before = await run(hands, "1.0", bash(BRIDGE))
        ended = await run(hands, "2.0", bash("setsid sleep 3600 & kill -9 $PPID; sleep 3600", 30.0))
        assert not ended.ok
        assert not ended.timed_out
        assert (await run(hands, "3.0", bash(BRIDGE))).output == before.output != "[]\n"
        assert await code(hands, "4.0") == "200"


async def test_a_tunnel_that_is_open_when_the_proxy_ends_is_noted(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        gateway = await rig.egress.open(SES, EgressPolicy(allow=(at(ONE),)), uid=os.getuid())
        with secure(gateway, ONE.host):
            await rig.egress.close(SES)
        assert [(seen.verdict, seen.host) for seen in (await rig.egress.notes(SES, 0)).seen] == [("allowed", ONE.host)]


async def test_a_change_holds_for_the_next_request_on_an_open_connection(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        gateway = await rig.egress.open(SES, SECRET, uid=os.getuid())
        with secure(gateway, ONE.host) as sock:
            bearer = f"Authorization: Bearer {gateway.env[variable_of(SECRETS[0])]}\r\n"
            request = f"GET /x HTTP/1.1\r\nHost: {ONE.host}\r\n{bearer}\r\n".encode()
            assert await anyio.to_thread.run_sync(ask, sock, request) == b"200"
            await rig.egress.change(SES, SECRET, held=(SECRETS[0],))
            assert await anyio.to_thread.run_sync(ask, sock, request) == b"403"
        with secure(gateway, ONE.host) as sock:
            await rig.egress.change(SES, EgressPolicy(allow=(at(TWO),)))
            assert await anyio.to_thread.run_sync(ask, sock, request) == b"403"
        assert len(rig.world.seen) == 1


def secure(gateway: Gateway, host: str) -> ssl.SSLSocket:
    """A TLS connection through a tunnel."""
    sock, status = tunnel(Path(gateway.socket), host, 443)
    assert b" 200 " in status
    return ssl.create_default_context(cafile=str(Path(gateway.socket).with_name("ca.pem"))).wrap_socket(
        sock, server_hostname=host
    )


def ask(sock: ssl.SSLSocket, request: bytes) -> bytes:
    """The status of the answer; the whole answer is read."""
    sock.sendall(request)
    said = sock.recv(65536)
    while b"\r\n\r\n" not in said or not said.rstrip().endswith((b"}", b"host", b"way", b"approval")):
        data = sock.recv(65536)
        if not data:
            break
        said += data
    return said.split(b" ")[1]


async def test_a_rotated_secret_counts_at_once(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        file = tmp_path / "secret"
        vault = ReferenceVault([Source(SECRETS[0], "file", (str(file),))], {}, SystemClock())
        egress = ProxyEgress(rig.folder, vault, bundle=str(rig.world.bundle), network=part(rig.world.tables))
        put(file, "the-first-value")
        gateway = await egress.open(SES, SECRET, uid=os.getuid())
        placeholder = gateway.env[variable_of(SECRETS[0])]
        pid = pid_of(rig)
        for value in ("the-first-value", "the-second-value"):
            put(file, value)
            assert await rig.request(gateway, ONE, placeholder) == "allowed"
            assert rig.world.seen[-1].headers["authorization"] == f"Bearer {value}"
        file.unlink()
        assert await rig.request(gateway, ONE, placeholder) == "refused"
        assert len(rig.world.seen) == 2
        assert pid_of(rig) == pid
        reason = [seen.reason for seen in (await egress.notes(SES, 0)).seen if seen.verdict == "refused"]
        assert "not available" in reason[0]


def put(file: Path, value: str) -> None:
    """A secret in a file that nobody else can read."""
    file.write_text(value)
    file.chmod(0o600)


async def test_many_openings_at_once_are_one_proxy(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        found: list[Gateway] = []

        async def opened() -> None:
            found.append(await rig.egress.open(SES, SECRET, uid=os.getuid()))

        async with anyio.create_task_group() as group:
            for _ in range(6):
                group.start_soon(opened)
        assert len({(gateway.socket, gateway.env[variable_of(SECRETS[0])]) for gateway in found}) == 1
        assert await rig.request(found[0], ONE) == "allowed"


async def test_placeholders_stay_the_sessions_own(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        variable = variable_of(SECRETS[0])
        first = await rig.egress.open(SES, SECRET, uid=os.getuid())
        await rig.egress.close(SES)
        again = await rig.egress.open(SES, SECRET, uid=os.getuid())
        other = await rig.egress.open("ses_other", SECRET, uid=os.getuid())
        assert first.env[variable] == again.env[variable] != other.env[variable]
        await rig.egress.forget(SES)
        assert (await rig.egress.open(SES, SECRET, uid=os.getuid())).env[variable] != first.env[variable]


async def test_it_outlives_who_started_it(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        program = (
            "import anyio, sys, tests.egress.test_lives as lives\n"
            "anyio.run(lives.open_and_die, sys.argv[1], sys.argv[2])"
        )
        done = await anyio.run_process(
            [sys.executable, "-c", program, str(rig.folder), str(rig.world.bundle)], check=False, stderr=subprocess.PIPE
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        gateway = Gateway(str(places(rig.folder, SES).socket), 0)
        assert await rig.request(gateway, ONE) == "allowed"
        assert os.getsid(pid_of(rig)) != os.getsid(0)


async def open_and_die(folder: str, bundle: str) -> None:
    """In a process of its own: open a way outside, and be killed."""
    vault = ReferenceVault([Source(SECRETS[0], "given", (VALUES[0],))], {}, SystemClock())
    tables = Path(bundle).with_name("tables.json")
    await ProxyEgress(Path(folder), vault, bundle=bundle, network=part(tables)).open(SES, SECRET, uid=os.getuid())
    os.kill(os.getpid(), signal.SIGKILL)


async def test_without_need_it_ends(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        egress = ProxyEgress(
            rig.folder, rig.vault, bundle=str(rig.world.bundle), network=part(rig.world.tables), idle_s=0.3
        )
        gateway = await egress.open(SES, SECRET, uid=os.getuid())
        sign = dial(Path(gateway.socket))
        sign.sendall(PRESENT)
        await egress.open("ses_alone", SECRET, uid=os.getuid())
        await gone(rig, "ses_alone")
        assert is_locked(places(rig.folder, SES).lock)  # hands that live are a need
        sign.close()
        await gone(rig)
        assert not Path(gateway.socket).exists()


async def test_an_old_one_ends_between_requests(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        egress = ProxyEgress(
            rig.folder,
            rig.vault,
            bundle=str(rig.world.bundle),
            network=part(rig.world.tables),
            idle_s=0.5,
            longest_s=0.1,
        )
        gateway = await egress.open(SES, SECRET, uid=os.getuid())
        with contextlib.closing(dial(Path(gateway.socket))) as sign:
            sign.sendall(PRESENT)
            await gone(rig)


async def test_one_that_is_stopped_is_no_way_outside_and_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.egress.proxy.ANSWER_S", 0.5)
    async with proxy_rig(tmp_path) as rig:
        await rig.egress.open(SES, SECRET, uid=os.getuid())
        pid = pid_of(rig)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EgressUnavailable, match="does not reply"):
            await rig.egress.open(SES, SECRET, uid=os.getuid())
        await rig.egress.close(SES)
        await gone(rig)


async def test_nothing_secret_can_be_seen_of_it(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        gateway = await rig.egress.open(SES, SECRET, uid=os.getuid())
        assert await rig.request(gateway, ONE, gateway.env[variable_of(SECRETS[0])]) == "allowed"
        pid = pid_of(rig)
        shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        kept = b"".join(path.read_bytes() for path in rig.folder.rglob("*") if path.is_file())
        assert b"egress" in shown
        assert not any(value.encode() in shown + kept for value in VALUES)
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
        assert Path(f"/proc/{pid}/mem").stat().st_uid == 0  # not dumpable: root's, whoever runs it
        modes = {path.name: path.stat().st_mode & 0o777 for path in places(rig.folder, SES).own.iterdir()}
        assert modes.pop("notes") == 0o700
        assert set(modes.values()) == {0o600}
        assert places(rig.folder, SES).own.stat().st_mode & 0o777 == 0o700


async def test_no_other_user_may_connect(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    async with proxy_rig(tmp_path) as rig:
        gateway = await rig.egress.open(SES, EgressPolicy(allow=(at(ONE),)), uid=61_001)
        program = (
            "import os, socket, sys\n"
            "sock = socket.socket(socket.AF_UNIX)\n"
            "sock.connect('s')\n"
            "sock.sendall(b'CONNECT one.test:443 HTTP/1.1\\r\\nHost: one.test:443\\r\\n\\r\\n')\n"
            "print(sock.recv(100)[:12])"
        )
        said = {}
        for uid in (61_001, 61_002):
            done = await anyio.run_process(
                ["/usr/bin/python3", "-I", "-S", "-c", program],
                **{"user": uid, "group": uid, "extra_groups": []},  # type: ignore[arg-type]
                check=False, env={}, cwd=Path(gateway.socket).parent,
            )  # fmt: skip
            said[uid] = done.stdout or done.stderr[-60:]
        assert said[61_001] == b"b'HTTP/1.1 200'\n"
        assert b"200" not in said[61_002]
