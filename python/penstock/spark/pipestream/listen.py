"""The server that the source runs itself, on the driver."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock._addresses import check_address
from penstock._header_key import header_key
from penstock._places import is_uri
from penstock.errors import SparkError
from penstock.pipestream import Limits, Server, SinkReader
from penstock.spark._options import Options
from penstock.spark.pipestream.peer import status_interval

__all__ = ["Listen"]

_LOG = logging.getLogger("penstock.spark")


@dataclass(frozen=True)
class Listen:
    """Options of the server: where it listens, what it stores, and which clients it accepts."""

    listen: str
    spool: str
    """A folder on the driver, or the URI of a prefix in an object store."""
    advertise: str | None = None
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    max_payload: int | None = None
    limits: Limits = field(default_factory=Limits)
    storage: Mapping[str, str] = field(default_factory=dict)
    header_key_file: str | None = None
    status_interval: float | None = None

    @classmethod
    def read(cls, options: Options) -> "Listen | None":
        """Read the options; return ``None`` if the source follows a sink that another process fills."""
        listen, spool, advertise = (options.text(name) for name in ("listen", "spool", "advertise"))
        if listen is None:
            own = ("spool", "advertise", "client_ca", "header_key_file")
            given = next((name for name in own if options.text(name) is not None), None)
            if given is not None:
                raise options.error(given, "requires the option listen")
            return None
        if spool is None:
            raise options.error("listen", "requires the option spool: a directory or URI in which entities are stored")
        if options.text("address") or options.text("path"):
            raise options.error(
                "listen", "and an address are mutually exclusive: the source either listens or connects"
            )
        for name, value in (("listen", listen), ("advertise", advertise)):
            try:
                check_address(value or listen, lowest_port=0)
            except ValueError as error:
                raise options.error(name, str(error)) from None
        if not is_uri(spool):
            options.check_reachable(listen, advertise)
        elif advertise is not None:
            raise options.error("advertise", f"requires a spool in a directory: executors read {spool} directly")
        options.check_together("cert", "key")
        return cls(
            listen,
            spool if is_uri(spool) else options.file("spool") or spool,
            advertise,
            options.file("cert"),
            options.file("key"),
            client_ca=options.file("client_ca"),
            max_payload=options.positive("max_payload", 0) if options.text("max_payload") else None,
            limits=options.limits(server=True),
            storage=options.storage(spool) if is_uri(spool) else {},
            header_key_file=options.file("header_key_file"),
            status_interval=options.checked("status_interval", status_interval),
        )

    @property
    def sink(self) -> SinkReader:
        """A reader of the spool that needs no server."""
        return SinkReader(self.spool, storage=self.storage)

    def start(self) -> tuple[Server, SinkReader]:
        """Start to listen; return the server and the reader for the executors."""
        # Executors authenticate with the key of this run and need no certificate, even if senders must have one.
        key = None if is_uri(self.spool) else secrets.token_hex(32)
        try:
            sealing = header_key(self.header_key_file)
        except ValueError as error:
            raise SparkError(f"header_key_file: {error}") from None
        server = Server(
            self.listen,
            sink=self.spool,
            storage=self.storage,
            read_key=key,
            reader_certificates="optional",
            cert=self.cert,
            key=self.key,
            client_ca=self.client_ca,
            max_payload=self.max_payload,
            limits=self.limits,
            header_key=sealing,
            status_interval=self.status_interval,
        )
        _LOG.warning("listening %s fingerprint %s", server.address, server.fingerprint)
        if key is None:
            return server, self.sink
        address = self.advertise or server.address
        if address.endswith(":0"):
            address = f"{address[:-2]}:{server.address.rpartition(':')[2]}"
        return server, SinkReader.connect(address, fingerprint=server.fingerprint, read_key=key)
