"""The form of what names a server: its address, and the fingerprint of its certificate.

It is checked where it is given, before anything is resolved or connected: on Spark's driver, on the command line.
"""

import ipaddress
import re

__all__ = ["check_address", "check_server", "fingerprint_digits", "is_local"]

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:\s]+):([0-9]{1,5})")
_FINGERPRINT = re.compile(r"(?:sha256:)?((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)


def check_address(address: str, lowest_port: int = 1) -> str:
    """Give an address back; ``ValueError`` if it is not ``HOST:PORT``, an IPv6 address in brackets."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not lowest_port <= int(found[1]) < 65536:
        raise ValueError(f"must be HOST:PORT, not {address!r}")
    return address


def check_server(address: str) -> str:
    """Give a PipeStream server's address back: ``HOST:PORT``, or a ``pipestream`` URI that names a port.

    Raises ``ValueError`` for anything else.
    """
    if not address.lower().startswith("pipestream://"):
        return check_address(address)
    from penstock.errors import PipeStreamError
    from penstock.pipestream import PipeStreamURI

    try:
        uri = PipeStreamURI.parse(address)
    except PipeStreamError as error:
        raise ValueError(error.message) from None
    if uri.address is None:
        raise ValueError(f"names no port, and there is no default one: pipestream://HOST:PORT/SESSION, not {address}")
    return address


def fingerprint_digits(fingerprint: str) -> str:
    """Give the 64 digits of a fingerprint, whichever way they are written; ``ValueError`` if it is none."""
    found = _FINGERPRINT.fullmatch(fingerprint)
    if found is None:
        raise ValueError(f"must be a SHA-256 in hex, 64 digits, not {fingerprint!r}")
    return found[1].replace(":", "").lower()


def is_local(address: str) -> bool:
    """Say whether ``HOST:PORT`` is on the loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
