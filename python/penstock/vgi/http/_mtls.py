"""Authentication by client certificates that a proxy has verified and forwards in a header.

The proxy MUST drop such headers from the requests of its own clients. A client that reaches the service without the
proxy, or through one that forwards these headers, can impersonate any other. The functions that parse certificates
require the extra ``penstock[vgi-mtls]``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from penstock.vgi.http._auth import Authenticate, Request
from penstock.vgi.rpc._common import AuthContext

if TYPE_CHECKING:
    from cryptography import x509

__all__ = [
    "XfccElement",
    "mtls_authenticate",
    "mtls_authenticate_fingerprint",
    "mtls_authenticate_subject",
    "mtls_authenticate_xfcc",
]

_BEGIN = "-----BEGIN CERTIFICATE-----"
_ALGORITHMS = ("sha1", "sha256", "sha384", "sha512")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|[^",;]+|[,;]|"')
"""The tokens of an X-Forwarded-Client-Cert: quoted text, plain text, and separators."""


@dataclass(frozen=True)
class XfccElement:
    """One proxy's element of ``X-Forwarded-Client-Cert``, which describes its client.

    ```python
    >>> from penstock.vgi.http import XfccElement
    >>> XfccElement(subject="CN=alice", dns=("alice.example",)).dns
    ('alice.example',)

    ```
    """

    hash: str | None = None
    """The SHA-256 of the certificate, in hexadecimal."""
    cert: str | None = None
    """The certificate in PEM."""
    subject: str | None = None
    uri: str | None = None
    dns: tuple[str, ...] = ()
    by: str | None = None
    """The URI of the proxy's own certificate."""


def _split(header: str) -> list[list[str]]:
    """Split the header into its elements, each a list of ``key=value``; quoted commas and semicolons do not split."""
    elements: list[list[str]] = [[""]]
    for piece in _QUOTED.findall(header):
        if piece == ",":
            elements.append([""])
        elif piece == ";":
            elements[-1].append("")
        else:
            elements[-1][-1] += piece
    return [pairs for each in elements if (pairs := [pair.strip() for pair in each if pair.strip()])]


def _element(pairs: list[str]) -> XfccElement:
    values: dict[str, str] = {}
    dns: list[str] = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        key, value = key.strip().lower(), value.strip()
        if not separator:
            continue
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        if key == "dns":
            dns.append(value)
        elif key in ("cert", "uri", "by"):
            values[key] = unquote(value)
        elif key in ("hash", "subject"):
            values[key] = value
    return XfccElement(**values, dns=tuple(dns))


def _common_name(subject: str) -> str:
    for part in re.split(r"(?<!\\),", subject):
        if part.strip().upper().startswith("CN="):
            return part.strip()[3:]
    return ""


def mtls_authenticate_xfcc(
    *,
    validate: Callable[[XfccElement], AuthContext] | None = None,
    domain: str = "mtls",
    select_element: Literal["first", "last"] = "first",
) -> Authenticate:
    """Return an authenticator for the ``X-Forwarded-Client-Cert`` header of Envoy.

    Args:
        validate: Returns the caller of an element, and raises ValueError for an unknown one. Without it, every client
            that the proxy accepts is accepted, under the common name of its subject.
        domain: The ``domain`` of the AuthContext without ``validate``.
        select_element: "first", the original client, or "last", the client of the nearest proxy.
    """

    def authenticate(request: Request) -> AuthContext:
        header = request.get_header("X-Forwarded-Client-Cert")
        if not header:
            raise ValueError("Missing x-forwarded-client-cert header")
        elements = _split(header)
        if not elements:
            raise ValueError("Empty x-forwarded-client-cert header")
        element = _element(elements[0 if select_element == "first" else -1])
        if validate is not None:
            return validate(element)
        said = {"hash": element.hash, "subject": element.subject, "uri": element.uri, "by": element.by}
        claims: dict[str, object] = {key: value for key, value in said.items() if value}
        if element.dns:
            claims["dns"] = list(element.dns)
        principal = _common_name(element.subject or "")
        return AuthContext(domain=domain, authenticated=True, principal=principal, claims=claims)

    return authenticate


def _cryptography(what: str) -> Any:
    try:
        from cryptography import x509
    except ImportError as error:
        raise ImportError(f'{what} requires cryptography: pip install "penstock[vgi-mtls]"') from error
    return x509


def mtls_authenticate(
    *,
    validate: "Callable[[x509.Certificate], AuthContext]",
    header: str = "X-SSL-Client-Cert",
    check_expiry: bool = False,
) -> Authenticate:
    """Return an authenticator for certificates that a proxy forwards as percent-encoded PEM, as nginx does.

    The proxy must verify who signed the certificate.

    Args:
        validate: Returns the caller with a certificate, and raises ValueError for an unknown one.
        header: The header with the certificate.
        check_expiry: Whether to check the validity period of the certificate here too.

    Raises:
        ImportError: If cryptography is not installed; the extra ``penstock[vgi-mtls]`` installs it.
    """
    load = _cryptography("mtls_authenticate").load_pem_x509_certificate

    def authenticate(request: Request) -> AuthContext:
        pem = unquote(request.get_header(header) or "")
        if not pem:
            raise ValueError(f"Missing {header} header")
        if not pem.startswith(_BEGIN):
            raise ValueError("Header value is not a PEM certificate")
        try:
            certificate = load(pem.encode())
        except ValueError as error:
            raise ValueError("Failed to parse PEM certificate") from error
        if check_expiry:
            now = datetime.now(UTC)
            if now < certificate.not_valid_before_utc:
                raise ValueError("Certificate is not yet valid")
            if now > certificate.not_valid_after_utc:
                raise ValueError("Certificate has expired")
        return validate(certificate)

    return authenticate


def mtls_authenticate_fingerprint(
    *,
    fingerprints: Mapping[str, AuthContext],
    header: str = "X-SSL-Client-Cert",
    algorithm: str = "sha256",
    domain: str = "mtls",  # noqa: ARG001 -- vgi_rpc has it; each AuthContext has its own
    check_expiry: bool = False,
) -> Authenticate:
    """Return an authenticator for certificates with known fingerprints.

    Args:
        fingerprints: The caller of each fingerprint; fingerprints are lower-case hexadecimal digits without colons.
        header: The header with the certificate.
        algorithm: The algorithm of the fingerprints: sha256, sha1, sha384 or sha512.
        domain: Ignored, because each AuthContext has its own.
        check_expiry: Whether to check the validity period of the certificate here too.

    Raises:
        ImportError: If cryptography is not installed; the extra ``penstock[vgi-mtls]`` installs it.
        ValueError: If the algorithm is unknown.
    """
    _cryptography("mtls_authenticate_fingerprint")
    from cryptography.hazmat.primitives import hashes

    if algorithm not in _ALGORITHMS:
        raise ValueError(f"Unsupported hash algorithm: {algorithm}")
    made = getattr(hashes, algorithm.upper())()

    def validate(certificate: "x509.Certificate") -> AuthContext:
        fingerprint = certificate.fingerprint(made).hex()
        if fingerprint not in fingerprints:
            raise ValueError(f"Unknown certificate fingerprint: {fingerprint}")
        return fingerprints[fingerprint]

    return mtls_authenticate(validate=validate, header=header, check_expiry=check_expiry)


def mtls_authenticate_subject(
    *,
    header: str = "X-SSL-Client-Cert",
    domain: str = "mtls",
    allowed_subjects: frozenset[str] | None = None,
    check_expiry: bool = False,
) -> Authenticate:
    """Return an authenticator that identifies callers by the common name of their certificate.

    The claims are ``subject_dn`` (RFC 4514), ``serial`` (hexadecimal) and ``not_valid_after``.

    Args:
        header: The header with the certificate.
        domain: The ``domain`` of the AuthContext.
        allowed_subjects: The accepted common names; by default all are accepted.
        check_expiry: Whether to check the validity period of the certificate here too.

    Raises:
        ImportError: If cryptography is not installed; the extra ``penstock[vgi-mtls]`` installs it.
    """
    common_name = _cryptography("mtls_authenticate_subject").oid.NameOID.COMMON_NAME

    def validate(certificate: "x509.Certificate") -> AuthContext:
        names = certificate.subject.get_attributes_for_oid(common_name)
        name = str(names[0].value) if names else ""
        if allowed_subjects is not None and name not in allowed_subjects:
            raise ValueError(f"Subject CN {name!r} not in allowed subjects")
        claims = {
            "subject_dn": certificate.subject.rfc4514_string(),
            "serial": format(certificate.serial_number, "x"),
            "not_valid_after": certificate.not_valid_after_utc.isoformat(),
        }
        return AuthContext(domain=domain, authenticated=True, principal=name, claims=claims)

    return mtls_authenticate(validate=validate, header=header, check_expiry=check_expiry)
