"""The sink: rows that are sent to Lumberjack receivers."""

import base64
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from penstock._addresses import check_address, fingerprint_digits
from penstock.errors import LumberjackError, SparkError
from penstock.lumberjack import Sender
from penstock.lumberjack._event import json_text, rows_of
from penstock.lumberjack._options import SendOptions
from penstock.spark._options import Options

__all__ = ["LumberjackStreamWriter", "LumberjackWriter", "Shipped", "Shipping"]

_EVENT = "event"


@dataclass(frozen=True)
class Shipped(WriterCommitMessage):
    """The report of a task to the driver: how many events were acknowledged."""

    events: int


@dataclass(frozen=True)
class Shipping:
    """The receivers to which rows are sent, and the form in which they are sent."""

    hosts: tuple[str, ...]
    fingerprint: str | None = None
    ca: str | None = None
    system_ca: bool = False
    cert: str | None = None
    key: str | None = None
    plain: bool = False
    balance: bool = False
    frames: Literal["json", "map"] = "json"
    protocol: Literal[1, 2] = 2
    window: int = 2_048
    compress: int = 3
    retry: int = 60

    @classmethod
    def read(cls, options: Options, schema: StructType, *, overwrite: bool) -> "Shipping":
        """Read and check options and columns, on the driver."""
        if overwrite:
            raise SparkError("the lumberjack sink only appends: use mode('append'), and outputMode('append')")
        hosts = tuple(host.strip() for host in options.target().split(","))
        for host in hosts:
            try:
                check_address(host)
            except ValueError as error:
                raise SparkError(f"the address of the lumberjack sink {error}") from None
        if not schema.fields:
            raise SparkError("the lumberjack sink requires at least one column")
        if schema.fieldNames() == [_EVENT] and schema[_EVENT].dataType != StringType():
            raise SparkError(
                f"the column {_EVENT} of the lumberjack sink, if it is the only one, must be a string with JSON"
            )
        shipping = cls(
            hosts,
            fingerprint=options.checked("fingerprint", fingerprint_digits),
            ca=options.file("ca"),
            system_ca=options.flag("system_ca"),
            cert=options.file("cert"),
            key=options.file("key"),
            plain=options.flag("plain"),
            balance=options.flag("balance"),
            frames=cast("Literal['json', 'map']", options.choice("frames", "json", "map")),
            protocol=1 if options.choice("protocol", "2", "1") == "1" else 2,
            window=options.within("window", 1, 65_536) or 2_048,
            compress=3 if options.text("compress") is None else options.within("compress", 0, 9) or 0,
            retry=options.positive("retry", 60),
        )
        options.check_together("cert", "key")
        options.finish()
        shipping.check()
        return shipping

    def check(self) -> None:
        """Reject options with which no task could send: no way to trust the receiver, or more than one."""
        if (self.fingerprint is not None) + (self.ca is not None) + self.system_ca > 1:
            raise SparkError("the lumberjack sink accepts only one of the options fingerprint, ca and system_ca")
        try:
            SendOptions(
                hosts=list(self.hosts),
                fingerprint=self.fingerprint,
                ca=self.ca,
                system_ca=self.system_ca,
                plain=self.plain,
            ).check()
        except LumberjackError as error:
            raise SparkError(f"the lumberjack sink: {error}") from None

    def ship(self, batches: Iterable[pa.RecordBatch]) -> Shipped:
        """Send rows and wait until all of them are acknowledged."""
        try:
            with Sender(
                self.hosts,
                balance=self.balance,
                fingerprint=self.fingerprint,
                ca=self.ca,
                system_ca=self.system_ca,
                cert=self.cert,
                key=self.key,
                plain=self.plain,
                frames=self.frames,
                protocol=self.protocol,
                window=self.window,
                compress=self.compress,
                retry=float(self.retry),
            ) as sender:
                for batch in batches:
                    if batch.schema.names == [_EVENT] and self.frames == "json":
                        sender.send(batch, wait=False)
                    else:
                        sender.send(self._events(batch), wait=False)
                sender.flush()
                return Shipped(sender.acknowledged)
        except LumberjackError as error:
            raise SparkError(f"{', '.join(self.hosts)} did not accept the rows: {error}", error.kind) from error

    def _events(self, batch: pa.RecordBatch) -> Iterator[object]:
        for row in rows_of(batch):
            if self.frames == "map":
                yield {name: _text(value) for name, value in row.items() if value is not None}
            else:
                yield json_text(row, _plain).encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    """Return the JSON form of a Spark value: times in ISO 8601, bytes in base64, all others as strings."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _text(value: Any) -> str:
    """Return the text of a value for a pair of strings."""
    if isinstance(value, str):
        return value
    plain = value if isinstance(value, int | float | dict | list) else _plain(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        return json_text(plain).strip('"')
    return plain if isinstance(plain, str) else json_text(plain, _plain)


@dataclass(frozen=True)
class LumberjackWriter(DataSourceArrowWriter):
    """Sends the rows of a job; a task that runs again sends its rows again."""

    shipping: Shipping

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "LumberjackWriter":
        """Create the writer from the options; invalid ones raise an error here, before any task runs."""
        return cls(Shipping.read(Options(options, "sink", "lumberjack"), schema, overwrite=overwrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Shipped:
        """Send the rows of a partition."""
        return self.shipping.ship(iterator)


@dataclass(frozen=True)
class LumberjackStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch; one that runs again sends its rows again."""

    shipping: Shipping

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> "LumberjackStreamWriter":
        """Create the writer from the options; invalid ones raise an error here, before any task runs."""
        return cls(Shipping.read(Options(options, "sink", "lumberjack"), schema, overwrite=overwrite))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Shipped:
        """Send the rows of a partition."""
        return self.shipping.ship(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: the receivers keep acknowledged events."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: the receivers keep acknowledged events."""
