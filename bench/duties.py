"""Webhook deliveries to a duty while its server is killed: nothing that got a 2xx is lost, and no event fires twice.

    python bench/duties.py [DELIVERIES] [KILLS]

Of the deliveries, 30 % repeat an earlier one and 5 % are forged or stale. Prints one line with the counts; exits with 1
if one of them is wrong. The test of the suite runs a small form.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import standardwebhooks

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
CLIENTS = 8

DUTY = """
name = "hooked"
goal = "Handle the events."
model = "scripted:MODEL"
queue = 10000
batch = 500
batch_wait = "1s"

[[trigger]]
name = "in"
kind = "webhook"
settings = { secret = "hook" }
"""


class Home:
    """A home with the duty, and a server that can be killed."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o711)
        self.folder, self.path = folder, folder / "home"
        config = folder / "config" / "holdfast"
        config.mkdir(parents=True)
        (config / "holdfast.toml").write_text('[secrets.hook]\nfrom = "env:HOOK"\nhosts = ["hook.invalid"]\n')
        self.env = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config"), "HOOK": SECRET}
        (folder / "model.json").write_text('{"turns": [{"text": "Handled."}]}')
        (folder / "duty.toml").write_text(DUTY.replace("MODEL", str(folder / "model.json")))
        self.run("duty", "add", str(folder / "duty.toml"), "--yes")
        self.url = ""
        self.starts = 0
        self.server: subprocess.Popen[bytes] | None = None

    def run(self, *words: str) -> str:
        """Run a command and return its output."""
        command = [sys.executable, "-m", "holdfast", *words, "--home", str(self.path)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)} failed: {done.stderr}")
        return done.stdout

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        self.starts += 1
        out = self.folder / f"out.{self.starts}"
        command = [sys.executable, "-m", "holdfast", "serve", "--json", "--port", "0", "--home", str(self.path)]
        with open(out, "wb") as stdout, open(self.folder / f"err.{self.starts}", "wb") as stderr:
            self.server = subprocess.Popen(command, env=self.env, stdout=stdout, stderr=stderr)
        while b"\n" not in out.read_bytes():
            if self.server.poll() is not None:
                raise SystemExit((self.folder / f"err.{self.starts}").read_text())
            time.sleep(0.02)
        self.url = json.loads(out.read_text().splitlines()[0])["url"]

    def kill(self) -> None:
        """Kill the server at once."""
        assert self.server is not None
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def events(self) -> list[dict[str, Any]]:
        """The log of the duty."""
        return [json.loads(line) for line in self.run("export", "hooked").splitlines()]


def delivery(number: int, kind: str) -> tuple[dict[str, str], bytes]:
    """The headers and body of a delivery."""
    body = json.dumps({"number": number}).encode()
    at_s = int(time.time()) - (900 if kind == "stale" else 0)
    key = b"x" * 32 if kind == "forged" else KEY
    signature = standardwebhooks.Webhook(key).sign(f"msg_{number}", datetime.fromtimestamp(at_s, UTC), body.decode())
    named = {"webhook-id": f"msg_{number}", "webhook-timestamp": str(at_s), "webhook-signature": signature}
    return {"content-type": "application/json", **named}, body


class Sender:
    """Sends deliveries from several threads, each until it has an answer."""

    def __init__(self, home: Home, wanted: list[tuple[int, str]]) -> None:
        self.home, self.wanted = home, wanted
        self.accepted: set[int] = set()
        self.refused = self.wrong = self.answered = 0
        self._lock = threading.Lock()

    def work(self) -> None:
        """Send until nothing is left."""
        with httpx.Client(trust_env=False, timeout=30) as client:
            while True:
                with self._lock:
                    if not self.wanted:
                        return
                    number, kind = self.wanted.pop()
                status = self._send(client, number, kind)
                with self._lock:
                    self.answered += 1
                    if kind == "good" and status in (200, 202):
                        self.accepted.add(number)
                    elif kind != "good" and status == 401:
                        self.refused += 1
                    else:
                        self.wrong += 1

    def _send(self, client: httpx.Client, number: int, kind: str) -> int:
        while True:
            headers, body = delivery(number, kind)
            try:
                status = client.post(f"{self.home.url}/hooks/hooked/in", headers=headers, content=body).status_code
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if status != 503:
                return status
            time.sleep(0.1)


def measure(folder: Path, deliveries: int, kills: int, seed: int = 1) -> dict[str, Any]:
    """Run the experiment, and return its counts."""
    chance = random.Random(seed)
    bad = [(deliveries + number, chance.choice(("forged", "stale"))) for number in range(deliveries * 5 // 100)]
    fresh = [(number, "good") for number in range(deliveries - len(bad) - deliveries * 30 // 100)]
    repeated = [chance.choice(fresh) for _ in range(deliveries * 30 // 100)]
    wanted = [*bad, *fresh, *repeated]
    chance.shuffle(wanted)
    home = Home(folder)
    home.start()
    sender = Sender(home, wanted)
    began = time.monotonic()
    threads = [threading.Thread(target=sender.work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for number in range(1, kills + 1):
        while sender.answered < deliveries * number // (kills + 1):
            time.sleep(0.01)
        home.kill()
        home.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - began
    while True:
        events = home.events()
        keys = [key for each in events if each.get("type") == "trigger.fired" for key in each["keys"]]
        offered = [each["data"]["number"] for each in events if each.get("type") == "trigger.offered"]
        if len(keys) >= len(offered):
            break
        time.sleep(0.5)
    home.kill()
    dead = sum(len(each["keys"]) for each in events if each.get("type") == "trigger.dead")
    return {
        "deliveries": deliveries,
        "per_s": round(deliveries / took_s, 1),
        "accepted": len(sender.accepted),
        "lost": len(sender.accepted - set(offered)),
        "unwanted": len(set(offered) - sender.accepted),
        "offered_twice": len(offered) - len(set(offered)),
        "fired_twice": len(keys) - len(set(keys)),
        "dead": dead,
        "refused": f"{sender.refused} of {len(bad)}",
        "wrong": sender.wrong,
        "ok": sender.accepted == set(offered) == {number for number, _ in fresh}
        and len(keys) == len(set(keys)) == len(fresh)
        and sender.refused == len(bad)
        and not sender.wrong,
    }


def main() -> int:
    """Run the experiment of the command line."""
    deliveries, kills = (
        (int(word) for word in [*sys.argv[1:], "20000", "5"][:2]) if len(sys.argv) != 2 else (int(sys.argv[1]), 5)
    )
    with tempfile.TemporaryDirectory() as folder:
        counts = measure(Path(folder), deliveries, kills)
    print("  ".join(f"{name} {value}" for name, value in counts.items()))
    return 0 if counts["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
