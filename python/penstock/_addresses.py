"""Check the form of server addresses and certificate fingerprints.

They are checked where they are given, on Spark's driver or on the command line, before anything is resolved or
connected.
"""

import ipaddress
import re

__all__ = ["check_address", "check_server", "fingerprint_digits", "is_local"]

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:\s]+):([0-9]{1,5})")
_FINGERPRINT = re.compile(r"(?:sha256:)?((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)


def check_address(address: str, lowest_port: int = 1) -> str:
    """Return an address unchanged; raise ``ValueError`` unless it is ``HOST:PORT``, with IPv6 addresses in brackets."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not lowest_port <= int(found[1]) < 65536:
        raise ValueError(f"must be HOST:PORT, not {address!r}")
    return address


def check_server(address: str) -> str:
    """Return the address of a PipeStream server unchanged.

    Raises:
        ValueError: It is neither ``HOST:PORT`` nor a ``pipestream`` URI with a port.
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
        raise ValueError(f"has no port, and there is no default port: pipestream://HOST:PORT/SESSION, not {address}")
    return address


def fingerprint_digits(fingerprint: str) -> str:
    """Return the 64 hex digits of a fingerprint, however it is written; raise ``ValueError`` if it is not one."""
    found = _FINGERPRINT.fullmatch(fingerprint)
    if found is None:
        raise ValueError(f"must be a SHA-256 in hex, 64 digits, not {fingerprint!r}")
    return found[1].replace(":", "").lower()


def is_local(address: str) -> bool:
    """Return whether ``HOST:PORT`` is on the loopback interface."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
