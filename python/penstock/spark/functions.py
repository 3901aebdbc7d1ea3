"""What goes into ``mapInArrow``: taking documents apart, and putting them together.

Both are objects that hold options and nothing else, so they travel to the workers by any pickle. Nothing native is
opened before a worker sees the first row, and the runtime of the Rust core belongs to the process that uses it, so a
worker may be forked at any time.
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
# Values of Spark end at 2 GiB.
_MAX_CONTENT = (1 << 31) - (1 << 16)


@dataclass(frozen=True)
class Dehydrate:
    """Takes the documents of a column ``path`` apart; made by ``dehydrate``.

    Each attempt of a task is a PipeStream session of its own, closed before the last rows are given out. One that fails
    or is stopped early is aborted, and Spark's next attempt sends its documents again; results and receipts name only
    the session of the attempt that ended.
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
        """The server of the sink, or the store that the sink is."""
        from penstock.spark._peer import Peer

        trust = (self.fingerprint, self.ca, self.system_ca, self.cert, self.key)
        # What an earlier session has set aside is taken up again, which needs layer 2 as a policy does.
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
        """Whether rows have a column ``claim``."""
        return self.policy is not None or self.redeems

    @property
    def schema(self) -> StructType:
        """The columns of its rows: ``PART_SCHEMA``, and with a policy ``claim string`` at the end.

        That is the claim check of a part that is DEFERRED, or that came again under it, in 16 hex digits, else null.
        """
        return from_arrow_schema(CLAIM_SCHEMA if self.has_claims else PART_SCHEMA)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take apart what the paths name; Spark calls this once for each attempt of a task."""
        from penstock.spark._dehydrate import take_apart

        return take_apart(self, batches)


@dataclass(frozen=True)
class Rehydrate:
    """Puts documents together from the rows of their parts; made by ``rehydrate``."""

    text: bool = True
    max_text: int = _MAX_TEXT
    order_by: str | None = None

    def __call__(self, *batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Put together what the rows describe; Spark calls this for each task, or for each group.

        There is exactly one argument. It has no name because ``applyInArrow`` counts the names, ``self`` among them,
        and takes a function of two for one that wants the group's key as well.
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
    """Make a function for ``mapInArrow`` that takes documents apart and sends every part to a sink.

    It reads the columns ``path`` (a local path, a ``file:`` URI, or the URI of an object, read in the task) and, where
    there are some, ``document`` (its name in receipts), ``doc_id`` (its UUID) and ``owner`` (as in ``PART_SCHEMA``). It
    gives ``PART_SCHEMA``: for each document a row, then one for each part, depth first, in the order of the input.

    Args:
        sink: ``host:port`` of a PipeStream server; or a URI, ``s3://bucket/prefix``, where each task writes by itself.
        fingerprint: SHA-256 of the server's certificate in hex, as ``serve`` prints it, to trust just this one.
        ca: A file of certificates (PEM) to trust instead; like ``cert`` and ``key`` it is read on the executors.
        system_ca: Trust the certificates of the machine instead.
        cert: The client's certificate (PEM file); ``key`` has its private key.
        key: See ``cert``.
        mtu: The largest UDP payload that is tried on the path, 1,200 to 9,000 bytes; the default is `Session`'s.
        receipts: A folder that all executors share, or a URI; each document gets a receipt there, ``KEY.json``.
        previous: A folder or a URI of earlier receipts of the same sink, the same as ``receipts`` for instance. Of each
            document in them only parts are sent that are new, changed, or not COMPLETE; DEFERRED ones are redeemed.
        root: The folder that names are relative to where there is no column ``document``; else their last part counts.
        limits: What a document may cost; the defaults of ``penstock.documents.Limits``.
        in_flight: How many documents of a task are sent before the first of them is settled.
        text: Whether rows have the texts of parts. Without, only parts of mails have one: no content tells its charset.
        max_content: The largest part in bytes whose content its row has; the others' is null, and in the sink.
        storage: Options of the store for all URIs; by default the environment of the executors says it all.
        privacy: What headers do not tell; its key is read on the executors. By default they tell names and types.
        policy: What becomes of parts that fail, and of their containers: a `penstock.pipestream.CompletionPolicy` or
            its text, ``"quorum:0.8,on-failure=retry"``; then rows are those of `Dehydrate.schema`.
        owner: Whose documents are that have none in a column ``owner``.
        header_key_file: A file, read on the executors, with the key that seals headers, as the server has it.
        session_limits: What the server may make a task do, and what a sink that is a URI may be made to do; the
            defaults of ``penstock.pipestream.Limits``.

    Raises:
        SparkError: An option is wrong, here on the driver.
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
    """Make a function for ``mapInArrow`` that takes up again what an earlier job had set aside, and completes receipts.

    It takes the same rows as `dehydrate`. A document whose receipt has parts that are DEFERRED is taken apart again;
    their claim checks are redeemed, and these parts are sent, with whatever else is not COMPLETE there. The receipt
    that replaces the earlier one names their new places, and rows are given of these documents. Other documents are not
    even opened. A claim check that is not good any more does no harm: its part is sent like any other.

    Args:
        sink: ``host:port`` of the PipeStream server that has the earlier sessions.
        receipts: The folder or the URI of the receipts of the earlier job; the new ones go there.
        options: All others of `dehydrate` but ``previous``. ``root`` must be that of the earlier job, so that documents
            have the same names.

    Raises:
        SparkError: An option is wrong. Raised here, on the driver.

    Example:
        >>> from penstock.spark import redeem
        >>> take_up = redeem("127.0.0.1:4433", fingerprint="ab" * 32, receipts="/data/receipts")
        >>> take_up.schema.names[-1]
        'claim'
    """
    if is_uri(sink):
        raise SparkError("claim checks are a server's: the sink must be HOST:PORT, not a URI")
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
            raise SparkError("policy: padding counts as COMPLETE, so pad_children goes with strict only")
    return checked


def _checked_options(given: Dehydrate) -> Dehydrate:
    _check_sink(given)
    if (given.cert is None) != (given.key is None):
        raise SparkError("cert and key go together")
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
            raise SparkError("say how to trust the sink: exactly one of fingerprint, ca and system_ca")
        return
    if given.sink.startswith("hdfs:"):
        raise SparkError(f"{given.sink}: URIs of hdfs cannot be sinks; those of s3, gs and abfs can")
    if given.header_key_file is not None:
        raise SparkError("a sink that is a URI has no server to seal headers for: leave out header_key_file")
    if trust or given.cert is not None or given.key is not None:
        raise SparkError("a sink that is a URI has no certificate: leave out fingerprint, ca, system_ca, cert and key")


def rehydrate(*, text: bool = True, max_text: int = _MAX_TEXT, order_by: str | None = None) -> Rehydrate:
    """Make a function that puts documents together: a row of ``COMPOSITE_SCHEMA`` for each.

    It takes the rows of ``dehydrate``. For ``mapInArrow`` a document's rows must be in one partition, in the order in
    which they were given: behind ``dehydrate`` they are. After a shuffle they are in no order, so for
    ``groupBy("key").applyInArrow`` number them first, with ``monotonically_increasing_id`` right behind ``dehydrate``,
    and name that column in ``order_by``.

    ``parts`` counts the rows below the document, ``failed`` those of them that are FAILED, ``tree`` has one element for
    each, depth first, and ``content_root`` is that of the document's receipt.

    Args:
        text: Whether composites have text: ``text``, the texts of all parts in order, and that of each in ``tree``.
        max_text: How many characters of text a composite may have. What lies beyond is left out, of ``tree`` as well,
            and ``text_cut`` says so; the rows of the parts have it all.
        order_by: The column that the rows of a group are sorted by.

    Raises:
        SparkError: An option is wrong.

    Example:
        >>> from penstock.spark import rehydrate
        >>> rehydrate(text=False)
        Rehydrate(text=False, max_text=67108864, order_by=None)
    """
    if max_text < 0:
        raise SparkError(f"max_text must not be negative, as {max_text} is")
    return Rehydrate(text=text, max_text=max_text, order_by=order_by)


def _checked(option: str, check: Callable[[str], str], value: str) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise SparkError(f"{option} {error}") from None


def _absolute(option: str | None) -> str | None:
    # A relative path is relative to the driver's folder, which the workers do not have.
    return None if option is None else str(Path(from_option(option)).absolute())


def _place(option: str | None) -> str | None:
    return option if option is not None and is_uri(option) else _absolute(option)


def _storage(storage: Mapping[str, str] | None, *uris: str | None) -> dict[str, str]:
    try:
        return check_storage(storage, *uris)
    except ValueError as error:
        raise SparkError(str(error)) from None
