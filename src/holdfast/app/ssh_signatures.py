"""SSH signatures of data, made and checked by `ssh-keygen`: Holdfast holds no key."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from holdfast.errors import CannotRunSafely

NAMESPACE = "holdfast"
"""What a signature is for: one that was made for something else does not count."""

LIMIT_S = 120.0
"""A key may ask for its passphrase meanwhile."""


def sign(data: bytes, key: Path) -> str:
    """The signature of `data` by a private key, or by the agent's key of a public one. Raises `CannotRunSafely`."""
    done = _ssh_keygen(data, "sign", "-f", str(key), "-n", NAMESPACE)
    if done.returncode != 0 or not done.stdout:
        raise CannotRunSafely(
            f"{key} cannot sign ({_last_line(done)}); nothing was written: name a key that ssh-keygen -Y sign takes"
        )
    return done.stdout.decode("ascii", "replace")


def problem_with(data: bytes, signature: str, allowed: Path | None) -> str:
    """What is wrong with a signature of `data`; empty when nothing is.

    Without a file of allowed signers, any key may have made it.
    """
    with tempfile.NamedTemporaryFile(prefix="holdfast-signature-") as file:
        file.write(signature.encode("utf-8", "replace"))
        file.flush()
        if allowed is None:
            done = _ssh_keygen(data, "check-novalidate", "-n", NAMESPACE, "-s", file.name)
            return "" if done.returncode == 0 else _last_line(done)
        who = _ssh_keygen(b"", "find-principals", "-s", file.name, "-f", str(allowed))
        names = who.stdout.decode("utf-8", "replace").splitlines() if who.returncode == 0 else []
        if not names:
            return f"{allowed} does not allow its key"
        done = _ssh_keygen(data, "verify", "-f", str(allowed), "-I", names[0], "-n", NAMESPACE, "-s", file.name)
        return "" if done.returncode == 0 else _last_line(done)


def _ssh_keygen(data: bytes, verb: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["ssh-keygen", "-Y", verb, *words], input=data, capture_output=True, timeout=LIMIT_S)
    except FileNotFoundError:
        raise CannotRunSafely("there is no ssh-keygen on this machine: apt install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise CannotRunSafely(f"ssh-keygen did not end within {LIMIT_S:.0f} s, and was ended") from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else f"ssh-keygen ended with status {done.returncode}"
