"""Functions for ``mapInArrow`` that split documents into parts and reassemble them.

Both are objects that hold only options, so any pickler can send them to the workers. No native resource is opened
before a worker sees the first row, and the runtime of the Rust core belongs to the process that uses it, so a worker
may be forked at any time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock._addresses import check_address, fingerprint_digits
from penstock._places import check_storage, is_uri
from penstock._sending import CLAIM_SCHEMA, PART_SCHEMA
from penstock.documents import Limits, Privacy
from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import CompletionMode, OwnershipContext, PipeDoc
from penstock.pipestream import Limits as SessionLimits
from penstock.pipestream._connect import client_limits
from penstock.spark._paths import from_option

if TYPE_CHECKING:
    from penstock.pipestream import CompletionPolicy
    from penstock.spark._peer import Peer

__all__ = ["Dehydrate", "Rehydrate", "dehydrate", "redeem", "rehydrate"]

_MAX_TEXT = 64 << 20
# Spark limits a value to 2 GiB.
_MAX_CONTENT = (1 << 31) - (1 << 16)


@dataclass(frozen=True)
class Dehydrate:
    """A function for ``mapInArrow`` that splits the documents named in a column ``path``; created by ``dehydrate``.

    Each attempt of a task has its own PipeStream session, which is closed before the last rows are returned. The
    session of an attempt that fails or is stopped early is aborted, and Spark's next attempt sends its documents again;
    results and receipts name only the session of the attempt that succeeded.
    """

    sink: str
    fingerprint: str | None = None
    ca: str | None = None
    system_ca: bool = False
    cert: str | None = None
    key: str | None = None
    mtu: int | None = None
    receipts: str | None = None
    previous: str | None = None
    root: str | None = None
    limits: Limits | None = None
    in_flight: int = 8
    text: bool = True
    max_content: int = 0
    storage: Mapping[str, str] = field(default_factory=dict)
    privacy: Privacy | None = None
    policy: str | None = None
    redeems: bool = False
    owner: OwnershipContext | None = None
    header_key_file: str | None = None
    session_limits: SessionLimits | None = None

    @property
    def peer(self) -> "Peer":
        """The server of the sink, or the object store if the sink is a URI."""
        from penstock.spark._peer import Peer

        trust = (self.fingerprint, self.ca, self.system_ca, self.cert, self.key)
        # Redeeming parts that an earlier session deferred needs layer 2, as a policy does.
        layers = None if self.previous is None else 2
        return Peer(
            self.sink,
            *trust,
            self.mtu,
            storage=self.storage,
            policy=self.policy,
            layers=layers,
            header_key_file=self.header_key_file,
            limits=self.session_limits,
        )

    @property
    def has_claims(self) -> bool:
        """Whether rows have a column ``claim``, as they do with a policy and for `redeem`."""
        return self.policy is not None or self.redeems

    @property
    def schema(self) -> StructType:
        """The columns of the rows: ``PART_SCHEMA``, followed by ``claim string`` if ``has_claims``.

        ``claim`` is the claim check, in 16 hex digits, of a part that is DEFERRED or was sent again under its claim
        check; otherwise it is null.
        """
        return from_arrow_schema(CLAIM_SCHEMA if self.has_claims else PART_SCHEMA)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Split the documents that the paths name. Spark calls this once for each attempt of a task."""
        from penstock.spark._dehydrate import take_apart

        return take_apart(self, batches)


@dataclass(frozen=True)
class Rehydrate:
    """A function that reassembles documents from the rows of their parts; created by ``rehydrate``."""

    text: bool = True
    max_text: int = _MAX_TEXT
    order_by: str | None = None

    def __call__(self, *batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reassemble the documents that the rows describe. Spark calls this for each task, or for each group.

        Exactly one argument is accepted. It is variadic because ``applyInArrow`` counts the named parameters, including
        ``self``, and passes the group's key as well to a function with two.
        """
        from penstock.spark._rehydrate import put_together

        (rows,) = batches
        return put_together(self, rows)


def dehydrate(
    sink: str,
    *,
    fingerprint: str | None = None,
    ca: str | None = None,
    system_ca: bool = False,
    cert: str | None = None,
    key: str | None = None,
    mtu: int | None = None,
    receipts: str | None = None,
    previous: str | None = None,
    root: str | None = None,
    limits: Limits | None = None,
    in_flight: int = 8,
    text: bool = True,
    max_content: int = 0,
    storage: Mapping[str, str] | None = None,
    privacy: Privacy | None = None,
    policy: "CompletionPolicy | str | None" = None,
    owner: OwnershipContext | None = None,
    header_key_file: str | None = None,
    session_limits: SessionLimits | None = None,
) -> Dehydrate:
    """Create a function for ``mapInArrow`` that splits documents and sends every part to a sink.

    The function reads the column ``path`` (a local path, a ``file:`` URI, or the URI of an object, opened in the task)
    and, if present, the columns ``document`` (the name in receipts), ``doc_id`` (the document's UUID) and ``owner`` (as
    in ``PART_SCHEMA``). It returns rows of ``PART_SCHEMA``: for each document one row for the document itself, then one
    for each part, depth first, in the order of the input.

    Args:
        sink: ``host:port`` of a PipeStream server, or a URI, ``s3://bucket/prefix``, to which tasks write directly.
        fingerprint: SHA-256 of the server's certificate in hex, as ``serve`` prints it; only this certificate is
            trusted. A server needs exactly one of ``fingerprint``, ``ca`` and ``system_ca``, a URI none of them.
        ca: A file of certificates (PEM) to trust instead; like ``cert`` and ``key`` it is read on the executors.
        system_ca: Trust the certificates of the machine instead.
        cert, key: The client's certificate and its private key (PEM files).
        mtu: The largest UDP payload to probe on the path, 1,200 to 9,000 bytes; the default is that of `Session`.
        receipts: A folder that all executors share, or a URI; each document's receipt is written there, ``KEY.json``.
        previous: A folder or a URI with earlier receipts of the same sink, for example the same as ``receipts``. Of
            each document found there only parts that are new, changed or not COMPLETE are sent; DEFERRED parts are
            redeemed.
        root: The folder to which names are relative if there is no column ``document``; a document outside it is named
            by the last component of its path.
        limits: Bounds on what a document may cost; by default those of ``penstock.documents.Limits``.
        in_flight: How many documents of a task may be sent before the first of them is settled.
        text: Whether rows include the text of parts; parts of mails always do: their content states no charset.
        max_content: The largest part, in bytes, whose content is included in its row; the content of larger parts is
            null there and only in the sink.
        storage: Options of the object store, for all URIs; by default the environment of the executors is used.
        privacy: What headers must not reveal: by default names and types are in them. Its key is read on executors.
        policy: How parts that fail are handled, and their containers: a `penstock.pipestream.CompletionPolicy` or its
            text form, ``"quorum:0.8,on-failure=retry"``. The rows then have the columns of `Dehydrate.schema`.
        owner: The owner of documents that have none in a column ``owner``.
        header_key_file: A file, read on the executors, with the key that seals headers; the server needs the same key.
        session_limits: Bounds on what the server may make a task do and, if the sink is a URI, on what the task may
            make its own server do; by default those of ``penstock.pipestream.Limits``.

    Returns:
        The function; it holds only options and can be pickled.

    Raises:
        SparkError: An option is invalid; raised on the driver.

    >>> dehydrate("127.0.0.1:4433", fingerprint="ab" * 32).in_flight
    8
    """
    manner = (_storage(storage, sink, receipts, previous, root), _privacy(privacy), _policy(policy, sink, privacy))
    rest = (mtu, receipts, previous, root, limits, in_flight, text, max_content, *manner)
    whose, sealing, bounds = _owner(owner), _absolute(header_key_file), _session_limits(session_limits)
    made = Dehydrate(
        sink,
        fingerprint,
        ca,
        system_ca,
        cert,
        key,
        *rest,
        owner=whose,
        header_key_file=sealing,
        session_limits=bounds,
    )
    return _checked_options(made)


def _session_limits(limits: SessionLimits | None) -> SessionLimits | None:
    try:
        return None if limits is None else client_limits(limits)
    except PipeStreamError as error:
        raise SparkError(f"session_limits: {error}") from None


def _owner(owner: OwnershipContext | None) -> OwnershipContext | None:
    try:
        if owner is not None:
            PipeDoc(doc_id="-", entity_id=1, ownership=owner).encode()
    except (PipeStreamError, TypeError) as error:
        raise SparkError(f"owner: {error}") from None
    return owner


def _privacy(privacy: Privacy | None) -> Privacy | None:
    if privacy is None or privacy.pseudonym_key_file is None:
        return privacy
    return replace(privacy, pseudonym_key_file=_absolute(str(privacy.pseudonym_key_file)))


def redeem(sink: str, *, receipts: str, **options: Any) -> Dehydrate:
    """Create a function for ``mapInArrow`` that sends the parts an earlier job deferred and completes its receipts.

    The function reads the same rows as that of `dehydrate`. A document whose receipt has DEFERRED parts is split again;
    their claim checks are redeemed, and those parts are sent along with all others that are not COMPLETE in the
    receipt. The new receipt, which replaces the earlier one, names their new places, and the rows of these documents
    are returned. Other documents are not opened. A claim check that is no longer valid does no harm: its part is sent
    like any other.

    Args:
        sink: ``host:port`` of the PipeStream server that has the earlier sessions.
        receipts: The folder or the URI with the receipts of the earlier job; the new ones are written there.
        options: All other options of `dehydrate` except ``previous``. ``root`` must be that of the earlier job, so that
            documents have the same names.

    Raises:
        SparkError: An option is invalid; raised on the driver.

    Example:
        >>> from penstock.spark import redeem
        >>> take_up = redeem("127.0.0.1:4433", fingerprint="ab" * 32, receipts="/data/receipts")
        >>> take_up.schema.names[-1]
        'claim'
    """
    if is_uri(sink):
        raise SparkError("claim checks require a server: the sink must be HOST:PORT, not a URI")
    return replace(dehydrate(sink, receipts=receipts, previous=receipts, **options), redeems=True)


def _policy(policy: "CompletionPolicy | str | None", sink: str, privacy: Privacy | None) -> str | None:
    from penstock.spark._peer import checked_policy, parsed

    try:
        checked = checked_policy(policy, sink)
    except ValueError as error:
        raise SparkError(f"policy: {error}") from None
    if checked is not None and privacy is not None and privacy.pad_children > 1:
        chosen = parsed(checked)
        if chosen is not None and chosen.mode is not CompletionMode.STRICT:
            raise SparkError("policy: padding counts as COMPLETE, so pad_children requires strict")
    return checked


def _checked_options(given: Dehydrate) -> Dehydrate:
    _check_sink(given)
    if (given.cert is None) != (given.key is None):
        raise SparkError("cert and key must be used together")
    if given.mtu is not None and not 1_200 <= given.mtu <= 9_000:
        raise SparkError(f"mtu must be from 1200 to 9000 bytes, not {given.mtu}")
    if given.in_flight < 1:
        raise SparkError(f"in_flight must be at least 1, not {given.in_flight}")
    if not 0 <= given.max_content <= _MAX_CONTENT:
        raise SparkError(f"max_content must be from 0 to {_MAX_CONTENT} bytes, not {given.max_content}")
    pin = None if given.fingerprint is None else _checked("fingerprint", fingerprint_digits, given.fingerprint)
    return replace(
        given,
        fingerprint=pin,
        ca=_absolute(given.ca),
        cert=_absolute(given.cert),
        key=_absolute(given.key),
        receipts=_place(given.receipts),
        previous=_place(given.previous),
        root=_place(given.root),
    )


def _check_sink(given: Dehydrate) -> None:
    trust = (given.fingerprint is not None) + (given.ca is not None) + given.system_ca
    if not is_uri(given.sink):
        _checked("sink", check_address, given.sink)
        if trust != 1:
            raise SparkError("set exactly one of fingerprint, ca and system_ca, to verify the sink")
        return
    if given.sink.startswith("hdfs:"):
        raise SparkError(f"{given.sink}: hdfs URIs cannot be sinks; use s3, gs or abfs")
    if given.header_key_file is not None:
        raise SparkError("header_key_file cannot be used with a sink that is a URI")
    if trust or given.cert is not None or given.key is not None:
        raise SparkError("fingerprint, ca, system_ca, cert and key cannot be used with a sink that is a URI")


def rehydrate(*, text: bool = True, max_text: int = _MAX_TEXT, order_by: str | None = None) -> Rehydrate:
    """Create a function that reassembles documents: it returns one row of ``COMPOSITE_SCHEMA`` for each.

    The function reads the rows that ``dehydrate`` returned. With ``mapInArrow``, a document's rows must be in one
    partition and in their original order, as they are directly after ``dehydrate``. A shuffle loses that order: for
    ``groupBy("key").applyInArrow``, first number the rows with ``monotonically_increasing_id`` directly after
    ``dehydrate``, and pass the name of that column as ``order_by``.

    ``parts`` counts the rows below the document, ``failed`` those of them that are FAILED; ``tree`` has one element for
    each, depth first, and ``content_root`` is that of the document's receipt.

    Args:
        text: Whether composites have text: ``text`` joins the texts of all parts in order, and each element of ``tree``
            has that of its part.
        max_text: How many characters of text a composite may have, 64 Mi by default. Text beyond that is omitted, also
            from ``tree``, and ``text_cut`` is true; the rows of the parts keep all of it.
        order_by: The column by which the rows of a group are sorted.

    Raises:
        SparkError: An option is invalid.

    Example:
        >>> from penstock.spark import rehydrate
        >>> rehydrate(text=False)
        Rehydrate(text=False, max_text=67108864, order_by=None)
    """
    if max_text < 0:
        raise SparkError(f"max_text must not be negative: {max_text}")
    return Rehydrate(text=text, max_text=max_text, order_by=order_by)


def _checked(option: str, check: Callable[[str], str], value: str) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise SparkError(f"{option} {error}") from None


def _absolute(option: str | None) -> str | None:
    # A relative path refers to the driver's working directory, which the workers do not share.
    return None if option is None else str(Path(from_option(option)).absolute())


def _place(option: str | None) -> str | None:
    return option if option is not None and is_uri(option) else _absolute(option)


def _storage(storage: Mapping[str, str] | None, *uris: str | None) -> dict[str, str]:
    try:
        return check_storage(storage, *uris)
    except ValueError as error:
        raise SparkError(str(error)) from None
