"""What a way outside refuses as a whole: policies, users, caps; what goes through another proxy."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from holdfast.egress.control import is_locked, places
from holdfast.egress.placeholders import DOOR as SHOWN_AT
from holdfast.egress.proxy import ProxyEgress
from holdfast.egress.server import PRESENT
from holdfast.errors import EgressUnavailable, SandboxUnavailable, SecretUnavailable
from holdfast.facts.session import Destination, EgressPolicy, SecretUse
from holdfast.hands.base import Network
from holdfast.hands.box.agent import bridge
from holdfast.hands.launch import EGRESS_FOLDER
from holdfast.hands.user import choose_user
from holdfast.testing.egress import SECRETS, Place, at, part, use_of, variable_of
from holdfast.testing.hands import bash, run
from tests.egress.rigs import dial, proxy_rig
from tests.egress.scene import ONE, SECRET, SES, TWO, code, inside
from tests.hands.rigs import bubblewrap, real, unsandboxed


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (EgressPolicy(allow=(Destination("*.test"),)), "exact name"),
        (EgressPolicy(allow=(Destination("a.test:443"),)), "exact name"),
        (EgressPolicy(allow=(Destination("https://a.test"),)), "exact name"),
        (EgressPolicy(allow=(Destination("a.test", (0,)),)), "invalid port"),
        (EgressPolicy(secrets=(SecretUse(SECRETS[0], ("*",)),)), "exact name"),
    ],
)
async def test_a_policy_that_cannot_be_meant_opens_nothing(tmp_path: Path, policy: EgressPolicy, said: str) -> None:
    async with proxy_rig(tmp_path) as rig:
        with pytest.raises(EgressUnavailable, match=said):
            await rig.egress.open(SES, policy, uid=os.getuid())
        assert not is_locked(places(rig.folder, SES).lock)
        gateway = await rig.egress.open(SES, EgressPolicy(allow=(at(ONE),)), uid=os.getuid())
        with pytest.raises(EgressUnavailable, match=said):
            await rig.egress.change(SES, policy)
        assert await rig.request(gateway, ONE) == "allowed"


async def test_an_unknown_secret_and_missing_certificates_are_said(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        with pytest.raises(SecretUnavailable, match="nobody"):
            await rig.egress.open(SES, EgressPolicy(secrets=(SecretUse("nobody", ("a.test",)),)), uid=os.getuid())
        blind = ProxyEgress(rig.folder, rig.vault, bundle=str(tmp_path / "none.pem"), network=part(rig.world.tables))
        with pytest.raises(EgressUnavailable, match="certificates"):
            await blind.open(SES, SECRET, uid=os.getuid())


@pytest.mark.parametrize("name", ["egress", "egress/ses_lives/turn", "egress/ses_lives/state", "egress/ses_lives/lock"])
async def test_a_home_that_cannot_be_used_is_said(tmp_path: Path, name: str) -> None:
    async with proxy_rig(tmp_path) as rig:
        blocked = rig.folder.parent / name
        blocked.parent.mkdir(parents=True, exist_ok=True)
        if name == "egress":
            blocked.write_text("in the way")
        else:
            blocked.mkdir()
        home = ProxyEgress(rig.folder, rig.vault, bundle=str(rig.world.bundle), network=part(rig.world.tables))
        with pytest.raises(EgressUnavailable, match="no network"):
            await home.open(SES, SECRET, uid=os.getuid())
        if name == "egress":
            blocked.unlink()


@pytest.mark.parametrize(("cap", "allowed"), [({"requests_max": 2}, 2), ({"bytes_max": 1}, 1)])
async def test_caps_hold_also_for_the_next_proxy(tmp_path: Path, cap: dict[str, int], allowed: int) -> None:
    async with proxy_rig(tmp_path) as rig:
        policy = msgspec.structs.replace(SECRET, **cap)
        gateway = await rig.egress.open(SES, policy, uid=os.getuid())
        for _ in range(2):
            await rig.request(gateway, ONE)
        await rig.egress.close(SES)
        gateway = await rig.egress.open(SES, policy, uid=os.getuid())
        assert await rig.request(gateway, ONE) == "refused"
        assert len(rig.world.seen) == allowed
        reasons = {seen.reason for seen in (await rig.egress.notes(SES, 0)).seen if seen.verdict == "refused"}
        assert any("that its policy allows" in reason for reason in reasons)


async def test_a_host_that_is_not_who_it_says_gets_no_secret(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        liar = Place("liar.test", 443)
        rig.world.serve(liar.host, "93.184.216.9", certificate="somebody.test")
        policy = EgressPolicy(allow=(at(liar),), secrets=(use_of(SECRETS[0], liar),))
        gateway = await rig.egress.open(SES, policy, uid=os.getuid())
        assert await rig.request(gateway, liar, gateway.env[variable_of(SECRETS[0])]) == "refused"
        assert rig.world.seen == []
        (seen,) = (await rig.egress.notes(SES, 0)).seen
        assert "certificate is not valid" in seen.reason


async def test_through_the_networks_own_proxy(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig:
        near = await rig.egress.open("ses_near", EgressPolicy(allow=(at(ONE),)), uid=os.getuid())
        port, asked = relay(Path(near.socket))
        rig.world.name("proxy.corp.test", ["10.9.9.9"])
        rig.world.route("10.9.9.9", 3128, port)
        far = ProxyEgress(
            rig.folder, rig.vault, bundle=str(rig.world.bundle), network=part(rig.world.tables),
            through="proxy.corp.test:3128",
        )  # fmt: skip
        policy = EgressPolicy(allow=(at(ONE), at(TWO), Destination("127.0.0.1"), Destination("169.254.169.254")))
        gateway = await far.open(SES, policy, uid=os.getuid())
        assert await rig.request(gateway, ONE) == "allowed"
        assert await rig.request(gateway, TWO) == "refused"
        assert await rig.request(gateway, Place("127.0.0.1", 443)) == "refused"
        assert await rig.request(gateway, Place("169.254.169.254", 443)) == "refused"
        assert [line.split(b" ")[1] for line in asked] == [b"one.test:443", b"two.test:443"]


def relay(path: Path) -> tuple[int, list[bytes]]:
    """A proxy of somebody else's, on a port: the near one stands behind it. Returns what was asked of it too."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def pump(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def lead() -> None:
        for _ in range(2):
            client, _ = listener.accept()
            server = dial(path)
            asked.append(client.recv(4096))
            server.sendall(asked[-1])
            threads = [threading.Thread(target=pump, args=pair) for pair in ((client, server), (server, client))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            client.close()
            server.close()
        listener.close()

    threading.Thread(target=lead, daemon=True).start()
    return int(listener.getsockname()[1]), asked


async def test_several_sessions_and_hands_do_not_meet(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig, inside(tmp_path, rig, SECRET) as (hands, uid):
        other = await rig.egress.open("ses_other", EgressPolicy(allow=(at(TWO),)), uid=uid)
        assert await code(hands, "1.0", TWO.host) == "000"
        assert await rig.request(other, ONE) == "refused"
        assert await rig.request(other, TWO) == "allowed"
        await rig.egress.close("ses_other")
        assert await code(hands, "2.0") == "200"
        listed = await run(hands, "3.0", bash("ls /run/egress; ls /run"))
        assert listed.output.split() == ["apt.conf", "ca.pem", "s", "agent", "egress"]


async def test_hands_without_a_network_have_no_door(tmp_path: Path) -> None:
    async with real(tmp_path, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        said = await run(hands, "1.0", bash("ls /run/egress; env | grep -ci proxy; curl -sS http://127.0.0.1:3128"))
        assert "No such file" in said.output
        assert "\n0\n" in said.output
        assert "Failed to connect" in said.output


async def test_a_networks_files_are_shown_and_cannot_be_changed(tmp_path: Path) -> None:
    async with proxy_rig(tmp_path) as rig, real(tmp_path, bubblewrap) as made:
        spec = made.spec()
        gateway = await rig.egress.open(SES, SECRET, uid=choose_user(spec.workspace).uid)
        network = Network(gateway.socket, gateway.port, gateway.env, {"/etc/thing.conf": b"shown\n"})
        hands = await made.provider.provision(msgspec.structs.replace(spec, network=network), 1)
        said = await run(hands, "1.0", bash("cat /etc/thing.conf; echo x > /etc/thing.conf; cat /etc/thing.conf"))
        assert said.output.splitlines()[::2] == ["shown", "shown"]


async def test_hands_without_a_sandbox_get_no_way_outside(tmp_path: Path) -> None:
    async with real(tmp_path, unsandboxed) as made:
        spec = made.spec(network=Network(str(tmp_path / "s")))
        with pytest.raises(SandboxUnavailable, match="no way outside"):
            await made.provider.provision(spec, 1)


def test_both_sides_mean_the_same() -> None:
    assert (SHOWN_AT, bridge.PRESENT) == (EGRESS_FOLDER, PRESENT)
