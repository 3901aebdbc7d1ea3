"""The receiver that the source runs itself, on the driver."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from penstock._addresses import check_address
from penstock._places import is_uri
from penstock.lumberjack import Receiver, Spool, SpoolReader
from penstock.spark._options import Options

__all__ = ["Listen"]

_LOG = logging.getLogger("penstock.spark")
_GRACE = 5.0


@dataclass(frozen=True)
class Listen:
    """Options of the receiver: where it listens, what it stores, and when it acknowledges."""

    listen: str
    spool: str
    advertise: str | None = None
    ack: Literal["spool", "commit"] = "spool"
    dedup: bool = True
    spool_bytes: int | None = None
    tls: bool | None = None
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    metrics: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, options: Options) -> "Listen | None":
        """Read the options; return ``None`` if the source reads a spool that another process writes."""
        names = ("spool", "advertise", "ack", "dedup", "spoolBytes", "tls", "client_ca", "metrics", "cert", "key")
        listen, given = options.text("listen"), [name for name in names if options.text(name) is not None]
        if listen is None:
            if given:
                raise options.error(given[0], "requires the option listen")
            return None
        spool = options.text("spool")
        if spool is None:
            raise options.error("listen", "requires the option spool: a directory or URI in which events are stored")
        if options.text("address") or options.text("path"):
            raise options.error("listen", "and an address are mutually exclusive: the source either listens or reads")
        advertise = options.text("advertise")
        for name, value in (("listen", listen), ("advertise", advertise), ("metrics", options.text("metrics"))):
            try:
                check_address(value or listen, lowest_port=0)
            except ValueError as error:
                raise options.error(name, str(error)) from None
        if not is_uri(spool):
            options.check_reachable(listen, advertise)
        cert, key = options.file("cert"), options.file("key")
        options.check_together("cert", "key")
        return cls(
            listen,
            spool if is_uri(spool) else options.file("spool") or spool,
            advertise,
            cast("Literal['spool', 'commit']", options.choice("ack", "spool", "commit")),
            dedup=options.flag("dedup", default=True),
            spool_bytes=options.positive("spoolBytes", 0) if options.text("spoolBytes") else None,
            tls=options.flag("tls") if options.text("tls") else None,
            cert=cert,
            key=key,
            client_ca=options.file("client_ca"),
            metrics=options.text("metrics"),
            storage=options.storage(spool) if is_uri(spool) else {},
        )

    def open_spool(self, read_key: str) -> tuple[Spool, Callable[[], tuple[SpoolReader, Callable[[], None]]]]:
        """Open the spool; return it and a function that starts to serve senders and readers.

        That function returns the reader for the executors and a function that closes the receiver and the spool.
        """
        more = {} if self.spool_bytes is None else {"max_bytes": self.spool_bytes}
        spool = Spool(self.spool, ack=self.ack, dedup=self.dedup, storage=self.storage, **more)

        def serve() -> tuple[SpoolReader, Callable[[], None]]:
            try:
                receiver = Receiver(
                    self.listen,
                    spool=spool,
                    tls=self.tls,
                    cert=self.cert,
                    key=self.key,
                    client_ca=self.client_ca,
                    metrics=self.metrics,
                )
            except BaseException:
                spool.close()
                raise

            def close() -> None:
                # The grace period lets the receiver acknowledge what was committed before it closes.
                receiver.close(_GRACE if self.ack == "spool" else 1.0)
                spool.close()

            trust = "" if receiver.fingerprint is None else f" fingerprint {receiver.fingerprint}"
            _LOG.warning("listening %s%s", receiver.address, trust)
            try:
                return self._reader(spool, read_key), close
            except BaseException:
                close()
                raise

        return spool, serve

    def _reader(self, spool: Spool, read_key: str) -> SpoolReader:
        if is_uri(self.spool):
            return SpoolReader(self.spool, storage=self.storage)
        host = self.listen.rpartition(":")[0]
        place = self.advertise or f"{host}:0"
        bind = f"{'0.0.0.0' if self.advertise else host}:{place.rpartition(':')[2]}"  # noqa: S104 - readers have a key
        address, fingerprint = spool.serve(bind, read_key=read_key)
        reached = f"{place.rpartition(':')[0]}:{address.rpartition(':')[2]}"
        return SpoolReader.connect(reached, read_key=read_key, fingerprint=fingerprint)
