"""Decision 21: certificates, fingerprints, and who is believed."""

import datetime
import ipaddress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .client import Client
from .fixtures import Sender
from .peer import TIMEOUT
from .programs import Serve
from .reactor import Reactor

# TLS alerts (RFC 8446 section 6.2) as QUIC says them (RFC 9001 section 4.8).
CRYPTO_ERROR = 0x100
CERTIFICATE_REQUIRED = 116
PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER


class Authority:
    """A CA and what it has signed, made with a library that penstock does not use."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._build(self.name, self.key).add_extension(constraints, critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.sign(self.key, hashes.SHA256()).public_bytes(PEM))

    def _build(self, subject: x509.Name, key: Any) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def sign(self, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
        """Certificate and key of a server, or of a client, at an address."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._build(subject, key).add_extension(names, critical=False)
        certificate = builder.add_extension(usages, critical=False).sign(self.key, hashes.SHA256())
        chain, private = self.folder / f"{name}-cert.pem", self.folder / f"{name}-key.pem"
        chain.write_bytes(certificate.public_bytes(PEM))
        pkcs8 = serialization.PrivateFormat.PKCS8
        private.write_bytes(key.private_bytes(PEM, pkcs8, serialization.NoEncryption()))
        return chain, private


def der_of(chain: Path) -> bytes:
    return x509.load_pem_x509_certificate(chain.read_bytes()).public_bytes(DER)


def test_a_server_shows_the_certificate_that_it_was_given(reactor: Reactor, tmp_path: Path) -> None:
    chain, key = Authority(tmp_path, "ca").sign("server")
    serve = Serve(tmp_path / "serve", "--cert", str(chain), "--key", str(key))
    client = Client(reactor, serve.address).open()
    assert client.certificate == der_of(chain)
    assert serve.fingerprint == sha256(der_of(chain)).hexdigest()
    client.close()
    assert serve.stop() == 0
    client.vanish()


def with_certificate(reactor: Reactor, serve: Serve, chain: Path, key: Path) -> Client:
    return Client(reactor, serve.address, certificate=(chain, key))


def test_client_certificates_can_be_required(reactor: Reactor, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "ca"), Authority(tmp_path, "stranger")
    serve = Serve(tmp_path / "serve", "--client-ca", str(authority.file))
    good = with_certificate(reactor, serve, *authority.sign("client")).open()
    nameless = Client(reactor, serve.address)
    foreign = with_certificate(reactor, serve, *stranger.sign("foreigner"))
    for refused in (nameless, foreign):
        reactor.run(refused.has_ended, TIMEOUT)
        ended = refused.closed_by_peer
        assert ended is not None
        assert CRYPTO_ERROR < ended.error_code < 2 * CRYPTO_ERROR, ended
    assert nameless.quic.ended is not None
    assert nameless.quic.ended.error_code == CRYPTO_ERROR + CERTIFICATE_REQUIRED
    good.deliver(1, b"undisturbed")
    good.completes(1)
    good.close()
    assert serve.stop() == 0
    assert [path.name for path in serve.sink.iterdir()] == [good.session_id]
    for client in (good, nameless, foreign):
        client.vanish()


def test_a_client_shows_its_certificate(sender: Sender, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    chain, key = authority.sign("client")
    serve = Serve(tmp_path / "serve", "--client-ca", str(authority.file))
    with_it = sender.run(
        serve.address, sender.file(), "--fingerprint", serve.fingerprint, "--cert", chain, "--key", key
    )
    with_it.exits(0)
    without = sender.run(serve.address, sender.file(), "--fingerprint", serve.fingerprint)
    without.exits(1)
    assert without.stderr.strip()
    assert "Traceback" not in without.stderr
    assert serve.stop() == 0


@pytest.mark.parametrize("write", ["{}", "sha256:{}"], ids=["bare", "with its prefix"])
def test_a_fingerprint_is_taken_with_and_without_its_prefix(sender: Sender, write: str) -> None:
    receiver = sender.receiver()
    fingerprint = write.format(sender.certificate.fingerprint)
    process = sender.send(receiver, "--no-dehydrate", sender.file(), fingerprint=fingerprint)
    process.exits(0)


def test_a_ca_is_trusted_for_the_names_that_it_signed(sender: Sender, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "ca"), Authority(tmp_path, "stranger")
    chain, key = authority.sign("server")
    serve = Serve(tmp_path / "serve", "--cert", str(chain), "--key", str(key))
    sender.run(serve.address, sender.file(), "--ca", authority.file).exits(0)
    sender.run(serve.address, sender.file(), "--ca", stranger.file).exits(1)
    assert serve.stop() == 0


def test_a_certificate_for_another_name_is_refused(sender: Sender, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    chain, key = authority.sign("server", "192.0.2.1")
    serve = Serve(tmp_path / "serve", "--cert", str(chain), "--key", str(key))
    sender.run(serve.address, sender.file(), "--ca", authority.file).exits(1)
    # A pinned one needs no name.
    sender.run(serve.address, sender.file(), "--fingerprint", serve.fingerprint).exits(0)
    assert serve.stop() == 0


def test_the_system_store_does_not_trust_a_development_certificate(sender: Sender) -> None:
    receiver = sender.receiver()
    process = sender.run(receiver.address, sender.file(), "--system-ca")
    process.exits(1)
    assert not receiver.frames


@pytest.mark.parametrize(
    "trust",
    [[], ["--fingerprint", "00"], ["--fingerprint", "not hex at all"], ["--ca", "/nonexistent/ca.pem"]],
    ids=["none at all", "a fingerprint too short", "a fingerprint that is none", "a file that is not there"],
)
def test_a_client_without_a_trust_sends_nothing(sender: Sender, trust: list[str]) -> None:
    receiver = sender.receiver()
    process = sender.run(receiver.address, sender.file(), *trust)
    process.exits((2,) if not trust else (1, 2))
    assert not receiver.frames
    assert not receiver.connected
    assert "Traceback" not in process.stderr
