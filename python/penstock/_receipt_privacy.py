"""What a receipt says of names, types and numbers that the sink was not to see (section 10.6)."""

from collections.abc import Mapping
from typing import Any

from penstock.errors import PipeStreamError
from penstock.pipestream import REFERENCE_TYPE, FileStorageReference, PipeDoc

__all__ = ["Disguise", "envelope", "promised"]

_OPAQUE = "application/octet-stream"


class Disguise:
    """The names and types that the headers of a receipt's parts have."""

    def __init__(self, receipt: Mapping[str, Any]) -> None:
        """Take a receipt of the right form."""
        privacy = receipt.get("privacy", {})
        self.opaque: bool = privacy.get("opaque_types", False)
        self.document: str = privacy.get("document") or receipt["document"]
        envelope = receipt.get("alias", receipt)
        self.doc_id: str | None = envelope.get("doc_id")
        self.owner: Mapping[str, Any] | None = envelope.get("owner")
        self._has_aliases: bool = self.document != receipt["document"]
        self._ways: dict[tuple[str, ...], list[str]] = {}
        for part in receipt["parts"] if self._has_aliases else ():
            path = tuple(part["path"])
            above = self._ways.get(path[:-1], [])
            # Without a pseudonym it is one that nothing in the sink has.
            self._ways.setdefault(path, [*above, part.get("alias", "")])

    def path(self, path: list[str]) -> list[str]:
        """Give the way down to a part as its header has it."""
        return self._ways.get(tuple(path), [""] * len(path)) if self._has_aliases else path

    def type(self, media_type: str) -> str:
        """Give a part's type as its header has it."""
        return _OPAQUE if self.opaque else media_type

    @property
    def hides_reasons(self) -> bool:
        """Whether the sink was not told why a part failed: a reason may have names."""
        return self._has_aliases


def envelope(metadata: Mapping[str, Any], entity: object) -> tuple[str | None, dict[str, Any] | None]:
    """Tell which document a root entity's header names, and whose, in the receipt's fields."""
    entry = metadata.get("pipestream.doc")
    if not isinstance(entry, str) or not isinstance(entity, int):
        return None, None
    try:
        doc = PipeDoc.of_metadata({"pipestream.doc": entry}, entity)
    except (PipeStreamError, OverflowError):
        return None, None
    if doc is None:
        return None, None
    owner = doc.ownership
    if owner is None:
        return doc.doc_id, None
    return doc.doc_id, {"owner_id": owner.owner_id, "group_id": owner.group_id, "scopes": list(owner.scopes)}


def promised(line: Mapping[str, Any], data: bytes | None) -> dict[str, Any] | None:
    """Tell what a message in the sink says of its object, in the receipt's fields; None where a line has no message.

    ``bytes`` are the payload of the entity that the line is about.
    """
    if line.get("content_type") != REFERENCE_TYPE or data is None:
        return None
    try:
        attrs = FileStorageReference.decode(data).attrs
    except PipeStreamError:
        return None
    size = attrs.get("size")
    return {
        "sha256": attrs.get("sha256"),
        "bytes": None if size is None else int(size),
        "type": attrs.get("content_type"),
    }
