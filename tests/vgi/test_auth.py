"""Who may call over HTTP: tokens, certificates, what a service tells of it, and browsers that log in."""

import base64
import hmac
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from issuer import Issuer

from penstock.tls import write_certificates
from penstock.vgi import (
    AuthContext,
    CallContext,
    OAuthResourceMetadata,
    OAuthResourceMetadataResponse,
    RpcError,
    RpcServer,
    fetch_oauth_metadata,
    http_connect,
    http_oauth_metadata,
    jwt_authenticate,
    make_sync_client,
    make_wsgi_app,
    parse_resource_metadata_url,
)
from penstock.vgi import http as vgi_http
from penstock.vgi.http import (
    HttpServer,
    Request,
    XfccElement,
    bearer_authenticate_static,
    chain_authenticate,
    make_cookie_authenticate,
    mtls_authenticate,
    mtls_authenticate_fingerprint,
    mtls_authenticate_subject,
    mtls_authenticate_xfcc,
)

ALICE = AuthContext("key", True, "alice")


class Known(Protocol):
    def who(self) -> str: ...


class KnownImpl:
    def who(self, ctx: CallContext) -> str:
        return f"{ctx.auth.domain}/{ctx.auth.principal}"


def asking(**headers: str) -> Request:
    given = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request("POST", "/vgi/who", "", given, "127.0.0.1")


def bearing(token: str) -> Request:
    return asking(Authorization=f"Bearer {token}")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


@pytest.fixture
def certificate(tmp_path: Path) -> x509.Certificate:
    write_certificates(tmp_path)
    return x509.load_pem_x509_certificate((tmp_path / "cert.pem").read_bytes())


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return quote(certificate.public_bytes(Encoding.PEM).decode())


def test_a_token_of_the_issuer_is_let_in_over_http(issuer: Issuer) -> None:
    authenticate = jwt_authenticate(issuer=issuer.url, audience=("other", "calculator"))
    with HttpServer(RpcServer(Known, KnownImpl()), authenticate=authenticate) as running:
        token = issuer.token()
        with http_connect(Known, running.url, headers={"Authorization": f"Bearer {token}"}) as known:
            assert known.who() == "jwt/alice"
            assert known.who() == "jwt/alice"
        with http_connect(Known, running.url) as unknown, pytest.raises(RpcError) as raised:
            unknown.who()
    assert raised.value.error_type == "AuthenticationError"
    # The keys were read once.
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize(
    "claims",
    [{"aud": "other"}, {"iss": "https://other.example"}, {"exp": 1_000}, {"nbf": 2**40}, {"aud": None}, {"iss": None}],
)
def test_a_token_for_another_or_of_another_or_another_time_is_refused(issuer: Issuer, claims: dict[str, Any]) -> None:
    authenticate = jwt_authenticate(issuer=issuer.url, audience="calculator", jwks_uri=f"{issuer.url}/keys")
    with pytest.raises(ValueError, match="Invalid JWT"):
        authenticate(bearing(issuer.token(**claims)))
    assert authenticate(bearing(issuer.token())).principal == "alice"
    assert issuer.asked == ["/keys"]


def test_claims_may_be_asked_for_and_name_the_caller(issuer: Issuer) -> None:
    authenticate = jwt_authenticate(
        issuer=issuer.url,
        audience="calculator",
        claims_options={"exp": {"essential": True}, "role": {"essential": True, "value": "admin"}},
        principal_claim="email",
        domain="corp",
    )
    found = authenticate(bearing(issuer.token(role="admin", email="a@corp.example")))
    assert (found.domain, found.principal, found.claims["role"]) == ("corp", "a@corp.example", "admin")
    for wrong in ({"role": "user"}, {"role": "admin", "exp": None}):
        with pytest.raises(ValueError, match="Invalid JWT"):
            authenticate(bearing(issuer.token(**wrong)))


def test_a_token_that_the_issuer_did_not_sign_is_refused(issuer: Issuer) -> None:
    authenticate = jwt_authenticate(issuer=issuer.url, audience="calculator")
    good = issuer.token()
    head, body, signature = good.split(".")
    # Signed with the bytes of the public key, as if they were a secret; and not signed at all.
    confused = f"{encoded(json.dumps({'alg': 'HS256', 'kid': issuer.keys[0].kid}).encode())}.{body}"
    forged = f"{confused}.{encoded(hmac.digest(issuer.keys[0].as_pem(private=False), confused.encode(), 'sha256'))}"
    other = "A" if signature[0] != "A" else "B"
    bad = [
        forged,
        f"eyJhbGciOiJub25lIn0.{body}.",
        f"{head}.{body}.{other}{signature[1:]}",
        f"{head}.{body}",
        "x",
        "...",
    ]
    for token in bad:
        with pytest.raises(ValueError, match="Invalid JWT"):
            authenticate(bearing(token))


def test_keys_are_read_again_for_one_that_is_not_known_but_not_for_each(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticate = jwt_authenticate(issuer=issuer.url, audience="calculator")
    authenticate(bearing(issuer.token()))
    issuer.rotate()
    # Within ten seconds of the first reading nobody makes us read again.
    for _ in range(3):
        with pytest.raises(ValueError, match="Invalid JWT"):
            authenticate(bearing(issuer.token()))
    assert issuer.asked.count("/keys") == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    assert authenticate(bearing(issuer.token())).principal == "alice"
    assert issuer.asked.count("/keys") == 2


def test_an_issuer_that_cannot_be_reached_is_the_servers_fault(caplog: pytest.LogCaptureFixture) -> None:
    authenticate = jwt_authenticate(issuer="http://127.0.0.1:9", audience="calculator")
    client = make_sync_client(RpcServer(Known, KnownImpl()), authenticate=authenticate)
    arrow = {"Content-Type": "application/vnd.apache.arrow.stream", "Authorization": "Bearer s3cret.s3cret.s3cret"}
    assert client.post("/vgi/who", headers=arrow).status_code == 500
    assert "s3cret" not in caplog.text


def test_no_token_is_in_a_log(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    jwts = jwt_authenticate(issuer=issuer.url, audience="calculator")
    authenticate = chain_authenticate(jwts, bearer_authenticate_static(tokens={"s3cret": ALICE}))
    client = make_sync_client(RpcServer(Known, KnownImpl()), authenticate=authenticate)
    for token in (issuer.token(aud="other"), "guess-of-s3cret"):
        arrow = {"Content-Type": "application/vnd.apache.arrow.stream", "Authorization": f"Bearer {token}"}
        answer = client.post("/vgi/who", headers=arrow)
        assert answer.status_code == 401
        assert token not in caplog.text + answer.text
    assert "was rejected" in caplog.text


@pytest.mark.parametrize(
    ("missing", "make", "extra"),
    [
        ("joserfc", lambda: jwt_authenticate(issuer="https://i.example", audience="a"), "vgi-oauth"),
        ("cryptography", lambda: mtls_authenticate(validate=lambda _: ALICE), "vgi-mtls"),
        ("cryptography", lambda: mtls_authenticate_fingerprint(fingerprints={}), "vgi-mtls"),
        ("cryptography", mtls_authenticate_subject, "vgi-mtls"),
    ],
)
def test_a_library_that_is_not_there_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, missing: str, make: Callable[[], object], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf'pip install "penstock\[{extra}\]"'):
        make()
    # Headers of Envoy need neither.
    assert mtls_authenticate_xfcc()(asking(X_Forwarded_Client_Cert='Subject="CN=a"')).principal == "a"


def test_a_certificate_is_known_by_its_subject(certificate: x509.Certificate) -> None:
    name = certificate.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)[0].value
    found = mtls_authenticate_subject(check_expiry=True)(asking(X_SSL_Client_Cert=pem(certificate)))
    assert (found.domain, found.principal) == ("mtls", name)
    assert found.claims["serial"] == format(certificate.serial_number, "x")
    assert found.claims["subject_dn"] == certificate.subject.rfc4514_string()
    for wrong in (asking(), asking(X_SSL_Client_Cert="no"), asking(X_SSL_Client_Cert="-----BEGIN CERTIFICATE-----x")):
        with pytest.raises(ValueError, match=r"Missing|PEM"):
            mtls_authenticate_subject()(wrong)
    with pytest.raises(ValueError, match="not in allowed subjects"):
        mtls_authenticate_subject(allowed_subjects=frozenset({"bob"}))(asking(X_SSL_Client_Cert=pem(certificate)))


def test_a_certificate_is_known_by_its_fingerprint(certificate: x509.Certificate) -> None:
    for algorithm, kind in (("sha256", hashes.SHA256()), ("sha384", hashes.SHA384()), ("sha512", hashes.SHA512())):
        known = {certificate.fingerprint(kind).hex(): ALICE}
        authenticate = mtls_authenticate_fingerprint(fingerprints=known, header="X-Cert", algorithm=algorithm)
        assert authenticate(asking(X_Cert=pem(certificate))) is ALICE
    with pytest.raises(ValueError, match="Unknown certificate fingerprint"):
        mtls_authenticate_fingerprint(fingerprints={})(asking(X_SSL_Client_Cert=pem(certificate)))
    with pytest.raises(ValueError, match="Unsupported hash algorithm: md5"):
        mtls_authenticate_fingerprint(fingerprints={}, algorithm="md5")


def test_a_certificate_whose_time_is_over_is_refused_where_that_is_asked(certificate: x509.Certificate) -> None:
    from datetime import UTC, datetime, timedelta

    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    key = generate_private_key(SECP256R1())
    past = datetime.now(UTC) - timedelta(days=2)
    built = x509.CertificateBuilder(certificate.subject, certificate.subject, key.public_key(), 7)
    old = built.not_valid_before(past).not_valid_after(past + timedelta(days=1)).sign(key, hashes.SHA256())
    request = asking(X_SSL_Client_Cert=pem(old))
    seen: list[x509.Certificate] = []
    assert mtls_authenticate(validate=lambda given: seen.append(given) or ALICE)(request) is ALICE  # type: ignore[func-returns-value]
    assert seen == [old]
    with pytest.raises(ValueError, match="expired"):
        mtls_authenticate(validate=lambda _: ALICE, check_expiry=True)(request)


def test_a_header_of_envoy_names_the_caller() -> None:
    header = (
        'By=spiffe://mesh/proxy;Hash=abc;Subject="CN=al\\"ice,O=\\"A, B; C\\"";URI=spiffe%3A%2F%2Fmesh%2Falice;'
        'DNS=a.example;DNS=b.example,Hash=def;Subject="O=x,CN=last";Cert="-----BEGIN%20X"'
    )
    request = asking(x_forwarded_client_cert=header)
    seen: list[XfccElement] = []
    mtls_authenticate_xfcc(validate=lambda given: seen.append(given) or ALICE)(request)  # type: ignore[func-returns-value]
    assert seen == [
        XfccElement(
            hash="abc",
            subject='CN=al"ice,O="A, B; C"',
            uri="spiffe://mesh/alice",
            dns=("a.example", "b.example"),
            by="spiffe://mesh/proxy",
        )
    ]
    found = mtls_authenticate_xfcc(select_element="last", domain="mesh")(request)
    assert (found.domain, found.principal, dict(found.claims)) == (
        "mesh",
        "last",
        {"hash": "def", "subject": "O=x,CN=last"},
    )
    assert mtls_authenticate_xfcc()(request).claims["dns"] == ["a.example", "b.example"]
    for wrong in ("", " , ;"):
        with pytest.raises(ValueError, match="x-forwarded-client-cert"):
            mtls_authenticate_xfcc()(asking(X_Forwarded_Client_Cert=wrong))
    # What is no list of pairs is read all the same, and names nobody.
    assert mtls_authenticate_xfcc()(asking(X_Forwarded_Client_Cert='"\\";;=,')).principal == ""


def test_a_cookie_has_the_token_of_who_sends_no_header() -> None:
    inner = bearer_authenticate_static(tokens={"s3cret": ALICE})
    authenticate = make_cookie_authenticate(inner)
    request = asking(Cookie="_vgi_auth=s3cret")
    assert authenticate(request) is ALICE
    assert request.get_header("Authorization") is None
    assert make_cookie_authenticate(inner, cookie_name="mine")(asking(Cookie="mine=s3cret")) is ALICE
    for wrong in (asking(), asking(Cookie="_vgi_auth=guess"), bearing("s3cret")):
        with pytest.raises(ValueError, match=r"cookie|unknown"):
            authenticate(wrong)


METADATA = OAuthResourceMetadata(
    "https://api.example/vgi",
    ("https://login.example",),
    scopes_supported=("read",),
    client_id="app",
    client_secret="public",  # noqa: S106 -- it is told to everybody
    use_id_token_as_bearer=True,
    device_code_client_id="device",
    device_code_client_secret="also-public",  # noqa: S106
)


@pytest.mark.parametrize(("dialect", "prefix"), [("spec", "/vgi"), ("0.10", ""), ("0.10", "/vgi")])
def test_a_service_tells_who_may_call(dialect: Any, prefix: str) -> None:
    server = RpcServer(Known, KnownImpl(), enable_describe=True, dialect=dialect)
    inner = bearer_authenticate_static(tokens={"s3cret": ALICE})
    client = make_sync_client(server, prefix=prefix, authenticate=inner, oauth_resource_metadata=METADATA)
    said = http_oauth_metadata(client=client)
    assert isinstance(said, OAuthResourceMetadataResponse)
    assert (said.resource, said.authorization_servers, said.scopes_supported) == (
        METADATA.resource,
        METADATA.authorization_servers,
        ("read",),
    )
    assert client.get("/.well-known/oauth-protected-resource").json() == METADATA.to_json_dict()
    answer = client.post(f"{prefix}/who", headers={"Content-Type": "application/vnd.apache.arrow.stream"})
    challenge = answer.headers["WWW-Authenticate"]
    assert answer.status_code == 401
    assert parse_resource_metadata_url(challenge) == f"https://api.example/.well-known/oauth-protected-resource{prefix}"
    assert vgi_http.parse_client_id(challenge) == "app"
    assert vgi_http.parse_client_secret(challenge) == "public"
    assert vgi_http.parse_use_id_token_as_bearer(challenge)
    assert vgi_http.parse_device_code_client_id(challenge) == "device"
    assert vgi_http.parse_device_code_client_secret(challenge) == "also-public"
    # Pages tell of methods: they are for callers, and the health for everybody.
    for page in (f"{prefix}/", f"{prefix}/describe", "/nothing/at/all"):
        assert client.get(page).status_code == 401
    known = {"Authorization": "Bearer s3cret"}
    assert client.get(f"{prefix}/describe", headers=known).status_code == 200
    assert client.get("/nothing/at/all", headers=known).status_code == 404
    assert client.get(f"{prefix}/health").status_code == 200


def test_names_in_a_challenge_are_found_as_a_whole() -> None:
    only = 'Bearer device_code_client_id="device", device_code_client_secret="s"'
    assert vgi_http.parse_client_id(only) is None
    assert vgi_http.parse_client_secret(only) is None
    assert parse_resource_metadata_url("Bearer") is None
    assert not vgi_http.parse_use_id_token_as_bearer('Bearer use_id_token_as_bearer="false"')


def test_a_service_that_does_not_tell_and_one_that_tells_nonsense() -> None:
    server = RpcServer(Known, KnownImpl())
    client = make_sync_client(server)
    assert http_oauth_metadata(client=client) is None
    with pytest.raises(ValueError, match="HTTP 404"):
        fetch_oauth_metadata("/.well-known/oauth-protected-resource", client=client)
    with HttpServer(server, oauth_resource_metadata=METADATA) as running:
        at = f"{running.url}/.well-known/oauth-protected-resource"
        assert fetch_oauth_metadata(at).client_id == "app"
        assert http_oauth_metadata(running.url, prefix="/vgi") == fetch_oauth_metadata(f"{at}/vgi")
        assert http_oauth_metadata(running.url, prefix="/other") is None
        with pytest.raises(ValueError, match=r"not a JSON object|missing required|not JSON"):
            fetch_oauth_metadata(f"{running.url}/vgi/health")
    for wrong in ("file:///etc/hostname", "no url"):
        with pytest.raises(ValueError, match="is not an http:// or https:// URL"):
            fetch_oauth_metadata(wrong)
    with pytest.raises(ValueError, match="base_url is required"):
        http_oauth_metadata()


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource": ""},
        {"authorization_servers": ()},
        *(
            {name: 'a"b'}
            for name in ("client_id", "client_secret", "device_code_client_id", "device_code_client_secret")
        ),
    ],
)
def test_metadata_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OAuthResourceMetadata(**{"resource": "https://a.example", "authorization_servers": ("https://l",)} | wrong)
    with pytest.raises(TypeError, match="oauth_resource_metadata"):
        make_wsgi_app(RpcServer(Known, KnownImpl()), oauth_resource_metadata={"resource": "x"})  # type: ignore[arg-type]


class Browser:
    """Opens pages of an application, and keeps its cookies."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.cookies: dict[str, str] = {}

    def get(self, url: str, accept: str = "text/html,*/*") -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(url)
        sent = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = [("Accept", accept), ("Cookie", sent)]
        status, answer, body = self.app.respond("GET", parts.path, parts.query, headers, b"", "127.0.0.1")
        self.given = [value for name, value in answer if name == "Set-Cookie"]
        for each in self.given:
            name, _, value = each.partition(";")[0].partition("=")
            self.cookies[name] = value
        return status, dict(answer), body


@pytest.fixture
def browser(issuer: Issuer) -> Browser:
    metadata = OAuthResourceMetadata("https://api.example", (issuer.url,), client_id="app")
    authenticate = jwt_authenticate(issuer=issuer.url, audience="calculator")
    server = RpcServer(Known, KnownImpl(), enable_describe=True)
    return Browser(make_wsgi_app(server, authenticate=authenticate, oauth_resource_metadata=metadata))


def log_in(browser: Browser, issuer: Issuer, page: str = "/vgi/describe?x=1") -> str:
    """Go to the login, and come back with a code; gives the URL of the callback."""
    status, headers, _ = browser.get(page)
    assert status == 302
    asked = {name: values[0] for name, values in parse_qs(urlsplit(headers["Location"]).query).items()}
    assert headers["Location"].startswith(f"{issuer.url}/login?")
    assert (asked["client_id"], asked["response_type"], asked["code_challenge_method"]) == ("app", "code", "S256")
    assert asked["redirect_uri"] == "https://api.example/vgi/_oauth/callback"
    issuer.challenges["a-code"] = asked["code_challenge"]
    return f"/vgi/_oauth/callback?code=a-code&state={asked['state']}"


def test_a_browser_is_sent_to_log_in_and_comes_back(browser: Browser, issuer: Issuer) -> None:
    callback = log_in(browser, issuer)
    status, headers, _ = browser.get(callback)
    assert (status, headers["Location"]) == (302, "/vgi/describe?x=1")
    kept = next(each for each in browser.given if each.startswith("_vgi_auth="))
    assert "HttpOnly" in kept
    assert "Secure" in kept
    assert "SameSite=Lax" in kept
    assert browser.get("/vgi/describe")[0] == 200
    assert browser.get("/vgi/_oauth/logout")[0] == 302
    assert browser.cookies["_vgi_auth"] in ("", '""')
    # What is no browser is told in its own way.
    assert browser.get("/vgi/describe", accept="application/json")[0] == 401


def test_a_login_that_was_begun_elsewhere_is_refused(browser: Browser, issuer: Issuer) -> None:
    callback = log_in(browser, issuer)
    session = browser.cookies["_vgi_oauth_session"]
    flipped = session[:-4] + ("AAAA" if session[-4:] != "AAAA" else "BBBB")
    for cookie, url in [
        ("", callback),
        ("%%%", callback),
        (flipped, callback),
        (session, callback.replace("state=", "state=x")),
        (session, callback.partition("&")[0]),
        (session, "/vgi/_oauth/callback?error=access_denied&error_description=<b>"),
        (session, callback.replace("a-code", "")),
    ]:
        browser.cookies = {"_vgi_oauth_session": cookie}
        status, _, body = browser.get(url)
        assert status == 400
        assert b"<b>" not in body
        assert "_vgi_auth" not in browser.cookies
    # A code that was not given to this verifier.
    issuer.challenges["a-code"] = "another"
    browser.cookies = {"_vgi_oauth_session": session}
    assert browser.get(callback)[0] == 502


@pytest.mark.parametrize("page", ["//evil.example/x", "/\\evil.example", "/other", "/vgi/\\\\evil.example"])
def test_nobody_is_sent_to_another_host_after_the_login(browser: Browser, issuer: Issuer, page: str) -> None:
    request = Request("GET", page, "", [("Accept", "text/html")], "")
    login: Any = browser.app.calls._gate._login
    status, headers, _ = login.send(request)
    sent = dict(headers)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(sent["Location"]).query).items()}
    browser.cookies["_vgi_oauth_session"] = sent["Set-Cookie"].partition(";")[0].partition("=")[2]
    issuer.challenges["a-code"] = asked["code_challenge"]
    back = browser.get(f"/vgi/_oauth/callback?code=a-code&state={asked['state']}")
    assert (status, back[0], back[1]["Location"]) == (302, 302, "/vgi")


def test_a_login_expires(browser: Browser, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = log_in(browser, issuer)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert browser.get(callback)[0] == 400


def test_without_its_authorization_server_a_page_is_a_401() -> None:
    metadata = OAuthResourceMetadata("https://api.example", ("http://127.0.0.1:9",), client_id="app")
    inner = bearer_authenticate_static(tokens={"s3cret": ALICE})
    browser = Browser(
        make_wsgi_app(RpcServer(Known, KnownImpl()), authenticate=inner, oauth_resource_metadata=metadata)
    )
    assert browser.get("/vgi")[0] == 401
    browser.cookies["_vgi_auth"] = "s3cret"
    assert browser.get("/vgi")[0] == 200
