"""One attempt of a task that writes rows: a session, in which each row is an entity.

::

    batches ──▶ RowSender ──▶ every entity COMPLETE, every digest matched ──▶ session closed ──▶ Written
                                                                                  │
                             prepared in the sink: not readable until the driver has committed all sessions
"""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from penstock import _core
from penstock._backoff import pauses
from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import ErrorCode, Session, Status
from penstock.spark._options import Options
from penstock.spark._peer import Peer, checked_policy
from penstock.spark.pipestream.owner import Ownership
from penstock.spark.pipestream.peer import read_peer

__all__ = ["ABORT", "COMMIT", "TRANSACTION", "RowSink", "Written"]

_LOG = logging.getLogger("penstock.spark")

TRANSACTION = "penstock.transaction"
"""Metadata of every entity: the transaction to which its session belongs."""
OWNER = "penstock.transaction-owner"
"""Metadata of a session's first entities: the SHA-256 of the token that the commit carries."""
TOKEN = "penstock.transaction-token"  # noqa: S105 - the name of what is shown
"""Metadata of a commit or an abort: the token."""
COMMIT = "application/vnd.penstock.commit+json"
"""The content type of a commit, which the driver sends when all tasks have ended: the sessions to make readable."""
ABORT = "application/vnd.penstock.abort+json"
"""The content type of an abort, which the driver sends when the job has failed: the sessions to discard."""

_STRINGS = ArrayType(StringType())
_COLUMNS: dict[str, tuple[tuple[DataType, ...], str]] = {
    "content": ((BinaryType(), StringType()), "binary, or string, which is sent as UTF-8"),
    "document": ((StringType(),), "string"),
    "path": ((_STRINGS,), "array<string>"),
    "type": ((StringType(),), "string"),
    "metadata": ((MapType(StringType(), StringType()),), "map<string,string>"),
    "doc_id": ((StringType(),), "string"),
    "owner": ((StructType(),), "struct<owner_id:string,group_id:string,scopes:array<string>>"),
}
_COMMITTED = 0x43
"""The sink's code for a commit of a transaction that this owner has already committed with other sessions."""
_NOT_YOURS = 0x44
"""The sink's code for a commit or abort that names no session or belongs to another owner."""
_COMMIT_ATTEMPTS = 6
"""How often a commit is sent, which is safe to repeat; the attempts take about 15 s in total."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The report of a task to the driver: its session, all of whose rows are COMPLETE or may fail under the policy."""

    session: str | None
    """The session's ID; None if there was no row."""
    transaction: str | None
    rows: int
    bytes: int


@dataclass(frozen=True)
class RowSink:
    """The sink as used by tasks and driver: the server, and how rows become entities."""

    peer: Peer
    scopes: bool = False
    """Whether each run of rows of one document has its own scope."""
    atomic: bool = True
    """Whether the rows of all tasks become readable together and only once."""
    owner: Ownership | None = None
    """The owner of the transactions."""

    @classmethod
    def read(cls, options: Options, schema: StructType, *, overwrite: bool) -> "RowSink":
        """Read and check options and columns, on the driver."""
        if overwrite:
            raise SparkError(
                "the pipestream sink only appends: what a sink has acknowledged stays. Use mode('append'), and "
                "outputMode('append') for a stream"
            )
        peer = read_peer(options)
        policy = options.checked("policy", lambda text: checked_policy(text, peer.address) or "")
        sink = cls(
            replace(peer, policy=policy, limits=options.limits(server=False)),
            scopes=options.choice("scopes", "none", "document") == "document",
            atomic=options.flag("atomic", default=True),
        )
        if policy is not None and not sink.scopes:
            raise options.error("policy", "requires scopes=document")
        _check_columns(schema, ignore_extra=options.flag("ignoreExtra"), scopes=sink.scopes)
        return sink

    def send(self, batches: Iterator[pa.RecordBatch], transaction: str | None) -> Written:
        """Send all rows and check that every one has arrived."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return Written(None, transaction, 0, 0)
        metadata = {} if transaction is None else {TRANSACTION: transaction}
        if transaction is not None and self.owner is not None:
            metadata[OWNER] = self.owner.name
        try:
            with self.peer.session(listed=transaction is None) as session:
                sender = _core.RowSender(session._native, metadata, self.scopes, self.peer.policy is not None)
                for batch in chain([first], batches):
                    sender.send(batch)
                    _check(session, sender)
                totals = sender.finish()
                _check(session, sender)
        except PipeStreamError as error:
            raise SparkError(self._lost(session, error), error.kind) from error
        except SparkError:
            raise
        except ValueError as error:
            raise SparkError(f"the rows cannot be sent to {self.peer.address}: {error}") from error
        if totals["left_out"]:
            _LOG.warning("session %s: %d rows are not COMPLETE, as its policy allows", session.id, totals["left_out"])
        return Written(session.id, transaction, totals["rows"], totals["bytes"])

    def commit(
        self,
        transaction: str | None,
        messages: Sequence[Written | None],
        *,
        again: bool = False,
        named: bool = False,
    ) -> None:
        """Make the sessions of all tasks readable together; a repeated commit changes nothing.

        Args:
            transaction: The transaction; without one, nothing is done.
            messages: The reports of the tasks.
            again: An earlier attempt may have committed the same rows in other sessions; then those remain.
            named: Other jobs may use the same transaction, so even a job without rows asks the sink whether it was
                committed.

        Raises:
            SparkError: The sink rejects the commit. If the transaction was committed before with other sessions, none
                of these rows are stored.
        """
        sessions = [message.session for message in messages if message is not None and message.session is not None]
        if transaction is None or not (sessions or named):
            return
        # A job without rows names a session that does not exist: the sink first checks for an earlier commit.
        wanted = sessions or [uuid4().hex]
        exclusive = {"exclusive": True} if self.owner is not None and self.owner.exclusive else {}
        payload = json.dumps({"sessions": wanted, **exclusive}).encode()
        for attempt, pause in zip(range(1, _COMMIT_ATTEMPTS + 1), pauses(0.5, 4.0), strict=False):
            try:
                self._tell(transaction, COMMIT, payload)
            except _CommittedBefore as error:
                if not again:
                    raise SparkError(
                        f"{error}. The rows of this job are not stored: to store them, use another transaction name",
                        error.kind,
                    ) from error
                _LOG.warning("the transaction %s was committed by an earlier attempt, whose rows stay", transaction)
                return
            except (SparkError, PipeStreamError) as error:
                if not sessions and isinstance(error, _NotPrepared):
                    return
                # Retried: it is unknown whether a commit that lost its connection arrived, and a cause of failure (a
                # session that is still open in the sink, a full disk) may be temporary.
                if attempt == _COMMIT_ATTEMPTS or isinstance(error, _Refused):
                    raise
                time.sleep(pause)
            else:
                return

    def abort(self, transaction: str | None, messages: Sequence[Written | None], *, whole: bool) -> None:
        """Discard the sessions of these tasks; with ``whole`` all sessions of the transaction."""
        sessions = [message.session for message in messages if message is not None and message.session is not None]
        if transaction is None or not (sessions or whole):
            return
        self._tell(transaction, ABORT, json.dumps({} if whole else {"sessions": sessions}).encode())

    def _tell(self, transaction: str, kind: str, payload: bytes) -> None:
        with self.peer.session(listed=False) as session:
            shown = {} if self.owner is None else {TOKEN: self.owner.token}
            told = session.send(payload, content_type=kind, metadata={TRANSACTION: transaction, **shown})
            if told.wait() is Status.COMPLETE:
                return
            reason = told.reason
            if (over := session.closed) is not None:
                raise over.error()
            why = "no reason was given" if reason is None else f"{reason.name}: {reason.message}"
            verb = "commit" if kind == COMMIT else "abort"
            refused = SparkError if reason is None else _REFUSALS.get(reason.code, SparkError)
            raise refused(f"{self.peer.address} did not {verb} the transaction {transaction}: {why}")

    def _lost(self, session: Session, error: PipeStreamError) -> str:
        return (
            f"session {session.id} with {self.peer.address} ended early: {error}. "
            "Nothing of this attempt can be read there; Spark's next attempt sends its rows again"
        )


class _Refused(SparkError):
    """The sink rejects the request permanently."""


class _NotPrepared(_Refused):
    """A session to be committed does not exist, or the request is malformed."""


class _CommittedBefore(_Refused):
    """The same owner has committed the transaction with other sessions."""


_REFUSALS: dict[int, type[SparkError]] = {
    ErrorCode.ENTITY_INVALID: _NotPrepared,
    _COMMITTED: _CommittedBefore,
    _NOT_YOURS: _Refused,
}


def _check(session: Session, sender: "_core.RowSender") -> None:
    """Raise if rows have failed: the session's error if it has ended, else an error that lists them."""
    totals = sender.totals()
    if not totals["failed"]:
        return
    if (early := session.closed) is not None:
        raise early.error()
    failures = "; ".join(_failure(*failure) for failure in totals["failures"])
    more = totals["failed"] - len(totals["failures"])
    raise SparkError(
        f"{totals['failed']} rows were not accepted by {session.peer_address}, and {totals['rows']} were: {failures}"
        + (f"; and {more} more" if more else "")
    )


def _failure(document: str | None, path: str | None, code: int, name: str, message: str) -> str:
    where = "a row without a document" if document is None else f"document {document!r}"
    inside = "" if path is None else f", path {path}"
    return f"{where}{inside}: {name} (0x{code:02X}): {message or 'no reason was given'}"


def _check_columns(schema: StructType, *, ignore_extra: bool, scopes: bool) -> None:
    if "content" not in schema.names:
        raise SparkError(
            f"the pipestream sink requires a column content; the columns are {', '.join(schema.names) or 'none'}"
        )
    if scopes and "document" not in schema.names:
        raise SparkError("scopes=document requires a column document")
    for field in schema.fields:
        if field.name not in _COLUMNS:
            if ignore_extra:
                continue
            raise SparkError(
                f"unknown column {field.name!r} for the pipestream sink; valid columns: {', '.join(_COLUMNS)}. Select "
                "those, or set the option ignoreExtra to true"
            )
        types, described = _COLUMNS[field.name]
        if not any(_same(field.dataType, each) for each in types):
            raise SparkError(
                f"the column {field.name} of the pipestream sink must be {described}, "
                f"not {field.dataType.simpleString()}"
            )


def _same(given: DataType, wanted: DataType) -> bool:
    """Return whether two types are equal apart from nullability, collations and lengths."""
    if isinstance(wanted, ArrayType):
        return isinstance(given, ArrayType) and _same(given.elementType, wanted.elementType)
    if isinstance(wanted, MapType):
        return (
            isinstance(given, MapType)
            and _same(given.keyType, wanted.keyType)
            and _same(given.valueType, wanted.valueType)
        )
    return isinstance(given, type(wanted))
