"""The envelope of a document: the ID and the owner of the document that an entity carries (section 7.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock import _core
from penstock.pipestream._fields import ReadableBuffer, as_bytes, check_uint

__all__ = ["OwnershipContext", "PipeDoc"]

_ENTRY = "pipestream.doc"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipContext:
    """The OwnershipContext message: the owner of a document and its access scopes (PipeStream, section 7.1).

    None means "not set". Each string has 1 to 256 bytes, without control characters.

    >>> OwnershipContext(owner_id="alice", group_id="finance", scopes=["read", "audit"])
    OwnershipContext(owner_id='alice', group_id='finance', scopes=('read', 'audit'))
    """

    owner_id: str | None = None
    """The owner's ID."""
    group_id: str | None = None
    """The ID of the owner's group."""
    scopes: Sequence[str] = ()
    """The access scopes, at most 64, in the sender's order."""

    def __post_init__(self) -> None:
        """Keep the access scopes as a tuple; a single str is rejected, although it is a sequence."""
        if isinstance(self.scopes, str):
            raise TypeError("OwnershipContext.scopes must be a sequence of str, not a str")
        object.__setattr__(self, "scopes", tuple(self.scopes))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeDoc:
    """The PipeDoc message: the envelope of a document (PipeStream, section 7.1).

    `penstock.documents.DocumentSender` sends one with the root entity of each document: the Base64 of the message, as
    ``pipestream.doc`` in the header's metadata.

    >>> doc = PipeDoc(doc_id="6f9619ff-8b86-8d01-b42d-00c04fc964ff", entity_id=1)
    >>> doc.encode().hex()
    '0a2436663936313966662d386238362d386430312d623432642d3030633034666339363466661001'
    >>> PipeDoc.decode(doc.encode()) == doc
    True
    """

    doc_id: str
    """The document's ID, 1 to 256 bytes, without control characters; penstock uses UUIDs."""
    entity_id: int
    """The entity's ID in its scope."""
    ownership: OwnershipContext | None = None
    """The owner of the document, if it is known."""

    def __post_init__(self) -> None:
        """Check the entity's ID."""
        check_uint(self, 32, "entity_id")

    def encode(self) -> bytes:
        """Return the protobuf message.

        Raises:
            PipeStreamError: ENTITY_INVALID if ``doc_id`` is missing or a string exceeds its limits.
        """
        return _core.encode_pipe_doc(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "PipeDoc":
        """Decode a protobuf message.

        Raises:
            PipeStreamError: ENTITY_INVALID if it does not parse or a required field is missing.
        """
        return _of(_core.decode_pipe_doc(as_bytes(data)))

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, str], entity_id: int) -> "PipeDoc | None":
        """Return the envelope in an entity's metadata; None if there is none.

        >>> PipeDoc.of_metadata({"pipestream.doc": "CgFkEAc="}, 7)
        PipeDoc(doc_id='d', entity_id=7, ownership=None)

        Raises:
            PipeStreamError: ENTITY_INVALID if it is not Base64, not a valid message, or names another entity.
        """
        entry = metadata.get(_ENTRY)
        return None if entry is None else _of(_core.pipe_doc_of_entry(entry, entity_id))


def _of(fields: "_core._PipeDocFields") -> PipeDoc:
    owner = fields["ownership"]
    ownership = None if owner is None else OwnershipContext(**owner)
    return PipeDoc(doc_id=fields["doc_id"], entity_id=fields["entity_id"], ownership=ownership)
