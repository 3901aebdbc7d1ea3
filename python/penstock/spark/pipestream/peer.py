"""Options of the data source "pipestream" that name a server and say how to trust it."""

from penstock._addresses import check_address, fingerprint_digits
from penstock._places import is_uri
from penstock.errors import SparkError
from penstock.spark._options import Options
from penstock.spark._peer import Peer

__all__ = ["read_peer", "status_interval"]

_LEAST_INTERVAL, _MOST_INTERVAL = 0.001, 10.0


def status_interval(text: str) -> float:
    """Parse the seconds between two writes to stream 0; raise ``ValueError`` if they are invalid."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _LEAST_INTERVAL <= seconds <= _MOST_INTERVAL:
        raise ValueError(f"must be from {_LEAST_INTERVAL} to {_MOST_INTERVAL:g} seconds, not {text!r}")
    return seconds


def read_peer(options: Options) -> Peer:
    """Read the address of a server, and the options that ``penstock.spark.dehydrate`` also accepts."""
    address = options.target()
    if is_uri(address):
        return Peer(address, storage=options.storage(address))
    try:
        check_address(address)
    except ValueError as error:
        raise SparkError(f"the address of the pipestream {options.what} {error}") from None
    peer = Peer(
        address,
        fingerprint=options.checked("fingerprint", fingerprint_digits),
        ca=options.file("ca"),
        system_ca=options.flag("system_ca"),
        cert=options.file("cert"),
        key=options.file("key"),
        mtu=options.within("mtu", 1_200, 9_000),
        header_key_file=options.file("header_key_file"),
        status_interval=options.checked("status_interval", status_interval),
    )
    if (peer.fingerprint is not None) + (peer.ca is not None) + peer.system_ca != 1:
        trust = "exactly one of the options fingerprint, ca and system_ca"
        raise SparkError(f"set {trust}, to verify the server of the pipestream {options.what}")
    options.check_together("cert", "key")
    return peer
