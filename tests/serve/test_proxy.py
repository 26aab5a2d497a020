"""The server behind nginx, with the configuration of docs/reverse-proxy.md: TLS, logins, and streams."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.app.terminal import ended, script, spawn, turn, typed
from tests.house.source import ROOT
from tests.support.waiting import PATIENCE_S

PAGE = ROOT / "docs" / "reverse-proxy.md"
"""The page with the configuration."""

NAME = "localhost"

AROUND = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
    uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
    {server}
}}
"""


def nginx() -> str:
    """The program, or a skip."""
    found = shutil.which("nginx") or str(ROOT / ".venv" / "programs" / "nginx" / "usr" / "sbin" / "nginx")
    if not Path(found).exists():
        pytest.skip("nginx is not on this machine: scripts/test_programs")
    return found


def certificate(folder: Path) -> None:
    """Make a key and a certificate for NAME that vouches for itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)  # TLS reads the real clock
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "holdfast.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "holdfast.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@pytest.fixture
def proxy(tmp_path: Path, holdfast_home: Path) -> Iterator[tuple[str, str]]:
    """The address of nginx, and a login link that goes through it."""
    program, folder, port, inner = nginx(), tmp_path / "nginx", free_port(), free_port()
    folder.mkdir()
    certificate(folder)
    (server,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for old, new in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "holdfast.example.com": NAME,
        "/etc/ssl/certs": str(folder),
        "/etc/ssl/private": str(folder),
        "127.0.0.1:8400": f"127.0.0.1:{inner}",
    }.items():
        assert old in server
        server = server.replace(old, new)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, server=server))
    url = f"https://{NAME}:{port}"
    served = spawn("serve", "--url", url, "--port", str(inner), "--json")
    assert served.stdout is not None
    told = served.stdout.readline()
    proxied = subprocess.Popen(
        [program, "-e", str(folder / "errors"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    )
    try:
        link = re.search(r'"link":"([^"]+)"', told)
        assert link is not None, told
        yield url, link[1]
    finally:
        proxied.terminate()
        proxied.wait(PATIENCE_S)
        served.terminate()
        ended(served)


def test_logins_and_streams_pass_through_a_proxy(proxy: tuple[str, str], tmp_path: Path) -> None:
    url, link = proxy
    model = script(tmp_path / "m.json", turn(text="Done."))
    typed("run", "x", "--scratch", "--model", model, "--session-id", "k").went()
    trusted = ssl.create_default_context(cafile=str(tmp_path / "nginx" / "holdfast.pem"))
    assert link.startswith(url)
    transport = httpx.HTTPTransport(verify=trusted, retries=50)
    with httpx.Client(transport=transport, base_url=url, timeout=PATIENCE_S) as browser:
        assert browser.get("/", headers={"accept": "text/html"}).status_code == 401
        came = browser.get(link)
        assert came.status_code == 200
        assert "secure" in came.headers["set-cookie"].lower()
        (session,) = browser.get("/holdfast/v1/sessions").json()["sessions"]
        assert session["key"] == "k"
        with browser.stream("GET", f"/holdfast/v1/sessions/{session['session_id']}/events/stream") as stream:
            # It arrives although the stream does not end.
            assert next(line for line in stream.iter_lines() if line.startswith("data:"))
        assert browser.get("/holdfast/v1/sessions", headers={"host": "evil.example.com"}).status_code == 421
        assert browser.post("/holdfast/v1/sessions", content=b"x" * 2_000_000).status_code == 413
