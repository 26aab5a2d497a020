"""Sets up a world, two sessions and hands inside a sandbox, runs the attempts, and says what came of them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec

from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.facts.session import Destination, EgressPolicy, SecretUse
from holdfast.hands.base import Network
from holdfast.hands.user import choose_user
from holdfast.testing.egress import part
from holdfast.testing.hands import bash, run
from holdfast.vault.reference_vault import ReferenceVault
from holdfast.vault.sources import Source
from tests.egress.upstream import World
from tests.hands.rigs import bubblewrap, real

SCRIPTS = Path(__file__).parent / "inside"
VALUES = {
    "key": "canary-of-the-key-6b1f",
    "git": "canary-of-git-93ac77",
    "other": "canary-of-another-session",
    "old": "canary-that-expired",
    "held": "canary-that-is-held",
    "gone": "canary-that-is-gone",
}
LAUNCHER = "canary-of-the-launcher"
BAD = (
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", "10.0.0.1", "172.16.0.1",
    "192.168.0.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "2001:0:7f00:1::", "::127.0.0.1", "2001:db8::1", "64:ff9b:1::a00:1",
    "fec0::1", "feff::1", "192.88.99.1", "3fff::1", "5f00::1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8",
)  # fmt: skip
POLICY = EgressPolicy(
    allow=(
        Destination("api.test", plain=True),
        *(Destination(host) for host in ("open.test", "rebind.test", "xn--pen-2ya.test.evil.test")),
        *(Destination(f"bad{number}.test") for number in range(len(BAD))),
        Destination("plain.test", (), plain=True),
        Destination("rules.test", methods=("GET", "POST"), paths=("/free/*",)),
    ),
    secrets=(
        SecretUse("key", ("api.test",), variable="KEY"),
        SecretUse("git", ("api.test",), variable="GIT", basic=True, paths=("/own/*",)),
        SecretUse("old", ("api.test",), variable="OLD", header="x-old"),
        SecretUse("held", ("api.test",), variable="HELD", header="x-held"),
        SecretUse("gone", ("api.test",), variable="GONE", header="x-gone"),
        SecretUse("key", ("rules.test",), header="x-key"),
    ),
)


async def attempts(base: Path) -> dict[str, Any]:
    """Attempt → [verdict, what it saw], and beside them what the world saw."""
    world = World(base)
    real_port = _world(world)
    gone = base / "gone"
    gone.write_text(VALUES["gone"])
    gone.chmod(0o600)
    sources = [Source(name, "given", (value,), 1 if name == "old" else None) for name, value in VALUES.items()]
    sources = [source for source in sources if source.name != "gone"] + [Source("gone", "file", (str(gone),))]
    vault = ReferenceVault(sources, {}, SystemClock())
    egress = ProxyEgress(base / "home" / "egress", vault, bundle=str(world.bundle), network=part(world.tables))
    try:
        async with real(base, bubblewrap) as rig:
            spec = rig.spec(env={"LAUNCHED": "1"})
            uid = choose_user(spec.workspace).uid
            gateway = await egress.open("ses_one", POLICY, uid=uid, held=("held",))
            other = await egress.open(
                "ses_two", EgressPolicy(secrets=(SecretUse("other", ("api.test",), variable="X"),)), uid=uid
            )
            shutil.copytree(SCRIPTS, rig.workspace / "tests" / "egress" / "inside")
            host = {"other": other.env["X"], "bad": BAD, "canary": LAUNCHER, "upstream": ["127.0.0.1", real_port]}
            (rig.workspace / "host.json").write_text(json.dumps(host))
            gone.unlink()
            spec = msgspec.structs.replace(spec, network=Network(gateway.socket, gateway.port, gateway.env))
            hands = await rig.provider.provision(spec, 1)
            result = await run(hands, "1.0", bash("/usr/bin/python3 -m tests.egress.inside.main > found.json", 120.0))
            if not result.ok:
                return {"the script": ["broken", result.output]}
            found: dict[str, Any] = json.loads((rig.workspace / "found.json").read_text())
            notes = await egress.notes("ses_one", 0)
            found["__notes"] = msgspec.to_builtins(notes)
            texts = [json.dumps(found), result.output, *_files(base / "home" / "egress")]
            found["__leaks"] = [
                name for name, value in VALUES.items() if any(f in t for f in _forms(value) for t in texts)
            ]
            found["__arrived"] = sorted(
                {f"{seen.server} {name}" for seen in world.seen for name, value in VALUES.items()
                 if value in _decoded(seen)}
            )  # fmt: skip
            found["__smuggled"] = [
                seen.path for seen in world.seen if seen.path == "/smuggled" or seen.server == "evil.test"
            ]
            found["__mistakes"] = (base / "home" / "egress" / "ses_one" / "log").read_text()
            found["__uid"] = uid
            return found
    finally:
        for session_id in ("ses_one", "ses_two"):
            await egress.forget(session_id)
        world.close()


def _world(world: World) -> int:
    port = world.serve("api.test", "93.184.216.1")
    world.serve("open.test", "93.184.216.2", 443, 8443)
    world.serve("evil.test", "93.184.216.3")
    world.serve("plain.test", "93.184.216.4", 80, tls=False)
    world.serve("rules.test", "93.184.216.5")
    world.serve("api without TLS", "93.184.216.1", 80, tls=False)
    rebound = world.serve("rebind.test", "93.184.216.6")
    world.name("rebind.test", ["93.184.216.6"], ["127.0.0.1"])
    for number, address in enumerate(BAD):
        world.name(f"bad{number}.test", [address])
        world.route(address, 443, rebound)
    return port


def _decoded(seen: Any) -> str:
    """All that reached a server, with Basic credentials readable."""
    text = " ".join([seen.path, *seen.headers.values(), seen.body.decode("latin-1")])
    for value in seen.headers.values():
        if value.startswith("Basic "):
            text += base64.b64decode(value.removeprefix("Basic ")).decode("latin-1")
    return text


def _forms(value: str) -> list[str]:
    data = value.encode()
    return [value, data.hex(), *(base64.b64encode(b"x" * at + data).decode()[4:20] for at in range(3))]


def _files(folder: Path) -> list[str]:
    """All that a proxy keeps on the disk."""
    return [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]


if __name__ == "__main__":
    os.environ["LAUNCHER"] = LAUNCHER
    print(json.dumps(anyio.run(attempts, Path(sys.argv[1]))))
