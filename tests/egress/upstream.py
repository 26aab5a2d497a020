"""Servers that stand for the world outside: they remember what reached them, and answer as their path says."""

from __future__ import annotations

import base64
import gzip
import json
import queue
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Seen(NamedTuple):
    """One request that arrived."""

    server: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class World:
    """A certificate authority, servers of several names, and the tables that lead to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bundle = folder / "world.pem"
        self.tables = folder / "tables.json"
        self.seen: list[Seen] = []
        self.files: dict[str, bytes] = {}
        self.streams: dict[str, queue.Queue[bytes | None]] = {}
        self.repositories = folder / "repositories"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the world's authority")])
        self._servers: list[ThreadingHTTPServer] = []
        self._names: dict[str, list[list[str]]] = {}
        self._routes: dict[str, tuple[str, int]] = {}
        draft = self._draft(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.bundle.write_bytes(draft.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self._write()

    def serve(self, name: str, address: str, *ports: int, tls: bool = True, certificate: str = "") -> int:
        """A server of that name, which answers at the address as the proxy sees it. Returns its real port."""
        server = _Server(self, name)
        if tls:
            server.tls = self.context(certificate or name)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._servers.append(server)
        port = int(server.server_address[1])
        self.name(name, [address])
        for shown in ports or (443,):
            self.route(address, shown, port)
        return port

    def name(self, name: str, *answers: list[str]) -> None:
        """What the name leads to: one answer after another."""
        self._names[name] = list(answers)
        self._write()

    def route(self, address: str, port: int, real: int) -> None:
        """Where an address really is."""
        self._routes[f"{address} {port}"] = ("127.0.0.1", real)
        self._write()

    def of(self, server: str) -> list[Seen]:
        """What reached that server."""
        return [seen for seen in self.seen if seen.server == server]

    def close(self) -> None:
        """End all servers."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _write(self) -> None:
        new = self.tables.with_suffix(".new")
        new.write_text(json.dumps({"names": self._names, "routes": self._routes}))
        new.replace(self.tables)

    def _draft(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def context(self, name: str) -> ssl.SSLContext:
        """TLS as that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        leaf = self._draft(subject, key).add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
        chain = leaf.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.folder / f"{name}.pem"
        path.write_bytes(chain + private)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, world: World, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.world = world
        self.name = name
        self.tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        with self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secure:
            secure.do_handshake()
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that break off are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = self._body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.world.seen.append(Seen(server.name, self.command, self.path, headers, body))
        path = self.path.partition("?")[0]
        if path in server.world.files or path.startswith(("/deb/", "/simple/")):
            found = server.world.files.get(path)
            kind = {"content-type": "text/html" if path.endswith("/") else "application/octet-stream"}
            self._send(200 if found is not None else 404, kind, found or b"")
        elif path in server.world.streams:
            self._stream(server.world.streams[path])
        elif path.startswith("/git/"):
            self._git(server.world.repositories, headers, body)
        else:
            self._echo(server.name, headers, body)

    def _echo(self, name: str, headers: dict[str, str], body: bytes) -> None:
        """What came, in the way that the path asks for."""
        said = json.dumps({"server": name, "path": self.path, "headers": headers, "body": body.decode("latin-1")})
        extra: dict[str, str] = {}
        status, out = 200, said.encode()
        word = self.path.strip("/").partition("?")[0].partition("/")[0]
        secret = headers.get("authorization", "").partition(" ")[2]
        if word == "reflect":
            extra["x-reflected"] = secret
        elif word == "gzip":
            out, extra["content-encoding"] = gzip.compress(out), "gzip"
        elif word == "encoded":
            forms = [
                base64.b64encode(secret.encode()).decode(),
                secret.encode().hex(),
                base64.b64encode(b"x" + secret.encode()).decode(),
            ]
            out = json.dumps(forms).encode()
        elif word == "redirect":
            status, extra["location"] = 302, self.path.partition("to=")[2]
        elif word == "range":
            out = secret.encode()
            if "range" in headers:
                first, _, last = headers["range"].removeprefix("bytes=").partition("-")
                status, out = 206, out[int(first) : int(last) + 1]
        elif word == "switch":
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
            return
        elif word == "pieces":
            self._pieces(out)
            return
        elif word == "big":
            out = bytes(int(self.path.rpartition("/")[2]))
        self._send(status, extra, out)

    def _send(self, status: int, extra: dict[str, str], out: bytes) -> None:
        self.send_response(status)
        for name, value in extra.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(out)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(out)

    def _git(self, root: Path, headers: dict[str, str], body: bytes) -> None:
        """A repository as a forge serves it: nothing without a password."""
        given = headers.get("authorization", "")
        if not given:
            self._send(401, {"www-authenticate": 'Basic realm="git"'}, b"")
            return
        path, _, query = self.path.removeprefix("/git").partition("?")
        done = subprocess.run(
            ["/usr/bin/git", "http-backend"],
            input=body,
            capture_output=True,
            check=False,
            env={
                **{"GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "PATH": "/usr/bin:/bin"},
                **{"PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": "agent"},
                **{"CONTENT_TYPE": headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body))},
                **{"HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""), "HOME": str(root)},
            },
        )
        head, _, out = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.decode().split(": ", 1) for line in head.split(b"\r\n"))
        status = int(lines.pop("Status", "200").split(" ")[0])
        self._send(status, lines, out)

    def _pieces(self, out: bytes) -> None:
        """One byte in each chunk, each sent by itself."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for byte in out:
            self.wfile.write(b"1\r\n" + bytes([byte]) + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _stream(self, pieces: queue.Queue[bytes | None]) -> None:
        """Each piece in a chunk, as soon as the test gives it."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while piece := pieces.get(timeout=60):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            out = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                out += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return out
        return self.rfile.read(int(self.headers.get("content-length", "0")))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_TRACE = do_OPTIONS = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""
