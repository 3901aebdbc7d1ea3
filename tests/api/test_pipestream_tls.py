"""Who trusts whom: pinned fingerprints, CA files, the system's store, client certificates."""

import json
import socket
import stat

import pytest

from penstock import PipeStreamError
from penstock.pipestream import Server, Session, Status
from penstock.tls import write_certificates

WAIT = 20.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    write_certificates(folder)
    return folder


def files(folder):
    return {"cert": folder / "cert.pem", "key": folder / "key.pem"}


@pytest.fixture
def serve(certificates, tmp_path):
    servers = []

    def make(listen="127.0.0.1:0", **options):
        servers.append(Server(listen, sink=tmp_path / "sink", **files(certificates), **options))
        return servers[-1]

    yield make
    for server in servers:
        server.close(grace=0)


def works(server, **options):
    with Session.connect(options.pop("address", server.address), **options) as session:
        return session.send(b"x").wait(WAIT) is Status.COMPLETE


def test_certificates_are_written_once(tmp_path):
    fingerprint = write_certificates(tmp_path / "new")
    assert fingerprint.startswith("sha256:")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
    assert stat.S_IMODE((tmp_path / "new" / "key.pem").stat().st_mode) == 0o600
    before = (tmp_path / "new" / "key.pem").read_bytes()
    with pytest.raises(PipeStreamError, match="already exists") as caught:
        write_certificates(tmp_path / "new")
    assert caught.value.kind == "io"
    assert (tmp_path / "new" / "key.pem").read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(PipeStreamError) as caught:
        write_certificates(tmp_path / "file")
    assert caught.value.kind == "io"


def test_a_pinned_fingerprint_is_trusted_however_it_is_written(serve):
    server = serve()
    digits = server.fingerprint.removeprefix("sha256:")
    colons = ":".join(digits[index : index + 2] for index in range(0, 64, 2))
    for fingerprint in (server.fingerprint, digits, digits.upper(), colons, f"SHA256:{colons}"):
        assert works(server, fingerprint=fingerprint)


def test_another_fingerprint_is_not_trusted(serve):
    server = serve()
    with pytest.raises(PipeStreamError, match=r"handshake with .* failed: .*certificate") as caught:
        Session.connect(server.address, fingerprint="00" * 32)
    assert caught.value.kind == "io"


def test_a_ca_is_trusted_for_the_names_that_it_signed(serve, certificates, other):
    server = serve()
    ca = certificates / "ca.pem"
    port = server.address.rpartition(":")[2]
    assert works(server, ca=ca)
    assert works(server, ca=ca, server_name="localhost")
    assert works(server, ca=ca, address=f"localhost:{port}")
    for wrong in ({"ca": ca, "server_name": "example.org"}, {"ca": other / "ca.pem"}, {"system_ca": True}):
        with pytest.raises(PipeStreamError) as caught:
            Session.connect(server.address, **wrong)
        assert caught.value.kind == "io", wrong


def test_exactly_one_way_of_trust_must_be_named(serve, certificates):
    server = serve()
    ca, cert = certificates / "ca.pem", certificates / "cert.pem"
    wrong = [
        {},
        {"fingerprint": server.fingerprint, "ca": ca},
        {"ca": ca, "system_ca": True},
        {"fingerprint": "abc"},
        {"fingerprint": server.fingerprint, "cert": cert},
        {"fingerprint": server.fingerprint, "layers": 3},
        {"fingerprint": server.fingerprint, "window": 0},
    ]
    for options in wrong:
        with pytest.raises(PipeStreamError) as caught:
            Session.connect(server.address, **options)
        assert caught.value.kind == "misuse", options
    for listen in ("nowhere", "127.0.0.1:x", "127.0.0.1:65536", ":0"):
        with pytest.raises(PipeStreamError, match="no HOST:PORT"):
            serve(listen)
        with pytest.raises(PipeStreamError, match="no HOST:PORT"):
            Session.connect(listen, fingerprint=server.fingerprint)


def test_a_server_may_ask_for_client_certificates(serve, certificates, other):
    server = serve(client_ca=certificates / "ca.pem")
    pinned = {"fingerprint": server.fingerprint}
    assert works(server, **pinned, **files(certificates))
    for wrong in ({}, files(other)):
        with pytest.raises(PipeStreamError) as caught:
            works(server, **pinned, **wrong)
        assert caught.value.kind == "io", wrong
    assert works(server, **pinned, **files(certificates))


def test_a_development_certificate_is_made_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    fingerprints = set()
    for _ in range(2):
        with Server(sink=tmp_path / "sink") as server:
            fingerprints.add(server.fingerprint)
            assert works(server, ca=tmp_path / "state" / "certificate" / "ca.pem")
    assert len(fingerprints) == 1
    monkeypatch.delenv("PENSTOCK_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    with Server(sink=tmp_path / "sink") as server:
        assert server.fingerprint not in fingerprints
    assert (tmp_path / "xdg" / "penstock" / "certificate" / "key.pem").exists()
    assert {path.name for path in (tmp_path / "sink").iterdir() if not path.is_dir()} == set()


def test_what_cannot_be_read_is_named(tmp_path, certificates):
    (tmp_path / "empty.pem").touch()
    for options in (
        {"cert": tmp_path / "missing.pem", "key": certificates / "key.pem"},
        {"cert": tmp_path / "empty.pem", "key": certificates / "key.pem"},
        {"cert": certificates / "cert.pem", "key": tmp_path / "empty.pem"},
        {**files(certificates), "client_ca": tmp_path / "missing.pem"},
    ):
        with pytest.raises(PipeStreamError, match=str(tmp_path)) as caught:
            Server(sink=tmp_path / "sink", **options)
        assert caught.value.kind == "io"


def test_nobody_there_is_an_error_in_time(tmp_path):
    with pytest.raises(PipeStreamError) as caught:
        Session.connect("127.0.0.1:9", fingerprint="00" * 32, timeout=0.3)
    assert caught.value.kind in ("deadline", "io")
    with pytest.raises(PipeStreamError, match="cannot resolve") as caught:
        Session.connect("no-such-host.invalid:9", fingerprint="00" * 32, timeout=5)
    assert caught.value.kind == "io"
    with Server(sink=tmp_path / "sink", state_dir=tmp_path) as server:
        taken = server.address
        with pytest.raises(PipeStreamError, match=f"cannot listen on {taken}"):
            Server(taken, sink=tmp_path / "sink2", state_dir=tmp_path)


def test_ipv6_and_names(serve, certificates):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"NOT TESTED: IPv6; the machine has no ::1, `ip -6 address show lo` names none: {error}")
    server = serve("[::1]:0")
    assert server.address.startswith("[::1]:")
    assert works(server, ca=certificates / "ca.pem")
    port = int(server.address.rpartition(":")[2])
    if "::1" in {found[4][0] for found in socket.getaddrinfo("localhost", port)}:
        # It is 127.0.0.1 as well, where nobody listens: whoever answers is taken.
        assert works(server, ca=certificates / "ca.pem", address=f"localhost:{port}")


def test_a_transaction_belongs_to_the_certificate_of_the_sessions_in_it(tmp_path):
    for who in ("owner", "other"):
        write_certificates(tmp_path / who)
    both = tmp_path / "both.pem"
    both.write_text("".join((tmp_path / who / "ca.pem").read_text() for who in ("owner", "other")))
    files = {who: {name: tmp_path / who / f"{name}.pem" for name in ("cert", "key")} for who in ("owner", "other")}
    with Server(sink=tmp_path / "sink", **files["owner"], client_ca=both) as server:

        def connect(who):
            return Session.connect(server.address, ca=tmp_path / "owner" / "ca.pem", **files[who])

        def order(who, act, **payload):
            while True:
                with connect(who) as session:
                    kind = f"application/vnd.penstock.{act}+json"
                    told = session.send(json.dumps(payload).encode(), content_type=kind, metadata=metadata)
                    if told.wait() is Status.COMPLETE:
                        return None
                    if told.reason.code != 0x40:
                        return told.reason.code

        metadata = {"penstock.transaction": "guessed"}
        with connect("owner") as session:
            assert session.send(b"a row", metadata=metadata).wait() is Status.COMPLETE
        # It is prepared when its owner's own commit of another session besides finds that one alone to be missing.
        assert order("owner", "commit", sessions=[session.id, "f" * 32]) == 0x05
        for act in ("commit", "abort"):
            assert order("other", act, sessions=[session.id]) == 0x44
        assert order("other", "abort") is None
        assert order("owner", "commit", sessions=[session.id]) is None
        log = tmp_path / "sink" / session.id / "entities.jsonl"
        assert log.read_text().endswith('{"closed":0}\n')
