"""Certificate authority of one session, in memory, with a leaf certificate for each host that has a secret."""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from holdfast.clock import Clock
from holdfast.ids import Entropy

LIFE = timedelta(days=30)
"""Validity of certificates; longer than the life of any proxy."""

LEAVES_MAX = 256
"""Largest number of cached certificates."""


class Authority:
    """Certificate authority that only the sandbox of one session trusts. Its key never leaves this process."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Holdfast"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"Holdfast session {entropy(6).hex()}"),
            ]
        )
        self._certificate = (
            self._draft(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    def pem(self) -> bytes:
        """Return the authority's certificate, which the sandbox trusts."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the TLS context for a host, HTTP/1.1 only. It refuses a handshake that names another host."""
        found = self._contexts.get(host)
        if found is None:
            if len(self._contexts) >= LEAVES_MAX:
                self._contexts.clear()
            found = self._contexts[host] = self._make(host)
        return found

    def _make(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.num_tickets = 0
        key = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = self._leaf(host).public_bytes(serialization.Encoding.PEM) + key
        with _TemporaryPath(chain) as path:
            context.load_cert_chain(path)

        def check(sock: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME if name is not None and name.lower() != host else None

        context.sni_callback = check
        return context

    def _leaf(self, host: str) -> x509.Certificate:
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        return (
            self._draft(subject, self._leaf_key.public_key())
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _draft(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.fromtimestamp(self._clock.now_us() / 1_000_000, UTC)
        own = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(int.from_bytes(self._entropy(16)) >> 1 | 1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + LIFE)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


class _TemporaryPath:
    """A temporary path to bytes, for a library that reads keys from files only; in memory where possible."""

    def __init__(self, content: bytes) -> None:
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
            self._path = f"/proc/self/fd/{self._fd}"
            self._made = ""
        else:
            self._fd, self._made = tempfile.mkstemp()
            self._path = self._made
        os.write(self._fd, content)

    def __enter__(self) -> str:
        return self._path

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        if self._made:
            Path(self._made).unlink()
