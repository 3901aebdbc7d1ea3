"""Options that say how a daemon is reached."""

from penstock._addresses import fingerprint_digits
from penstock._places import is_uri
from penstock.errors import QuicxError, SparkError
from penstock.quicx._options import DEFAULT_ADDRESS, ReachOptions
from penstock.spark._options import Options

__all__ = ["read_reach", "read_spool"]


def read_reach(options: Options) -> ReachOptions:
    """Read the daemon's address, and how it is trusted.

    Raises:
        SparkError: There is neither an address nor a socket, or options contradict each other.
    """
    socket = options.file("socket")
    address = DEFAULT_ADDRESS
    if socket is None or options.text("address") is not None or options.text("path") is not None:
        address = options.target()
        if socket is not None:
            raise options.error("socket", f"and the address {address} are mutually exclusive")
    options.check_together("cert", "key")
    reach = ReachOptions(
        address=address,
        socket=socket,
        fingerprint=options.checked("fingerprint", fingerprint_digits),
        ca=options.file("ca"),
        system_ca=options.flag("system_ca"),
        cert=options.file("cert"),
        key=options.file("key"),
        server_name=options.text("server_name"),
        plain=options.flag("plain"),
    )
    if (reach.fingerprint is not None) + (reach.ca is not None) + reach.system_ca > 1:
        raise SparkError("set only one of the options fingerprint, ca and system_ca")
    try:
        return reach.check()
    except QuicxError as error:
        raise SparkError(f"the quicx {options.what}: {error}") from None


def read_spool(options: Options) -> tuple[str | None, dict[str, str]]:
    """Read the option ``spool``, a folder or a URI, and the options of its store."""
    spool = options.text("spool")
    if spool is None or not is_uri(spool):
        return options.file("spool"), {}
    return spool, options.storage(spool)
