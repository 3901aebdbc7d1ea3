"""The names, types and counts in a receipt that were concealed from the sink (PipeStream, section 10.6)."""

from collections.abc import Mapping
from typing import Any

from penstock.errors import PipeStreamError
from penstock.pipestream import REFERENCE_TYPE, FileStorageReference, PipeDoc

__all__ = ["Disguise", "envelope", "promised"]

_OPAQUE = "application/octet-stream"


class Disguise:
    """The names and types in the headers of a receipt's parts."""

    def __init__(self, receipt: Mapping[str, Any]) -> None:
        """Read the concealed names and types of a well-formed receipt."""
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
            # A part without a pseudonym gets "", which matches nothing in the sink.
            self._ways.setdefault(path, [*above, part.get("alias", "")])

    def path(self, path: list[str]) -> list[str]:
        """Return the path of a part as it is in its header."""
        return self._ways.get(tuple(path), [""] * len(path)) if self._has_aliases else path

    def type(self, media_type: str) -> str:
        """Return a part's type as it is in its header."""
        return _OPAQUE if self.opaque else media_type

    @property
    def hides_reasons(self) -> bool:
        """Whether the sink does not know why a part failed, because a reason may contain names."""
        return self._has_aliases


def envelope(metadata: Mapping[str, Any], entity: object) -> tuple[str | None, dict[str, Any] | None]:
    """Return the document ID and the owner in a root entity's header, in the form of a receipt."""
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
    """Return the attributes of the object that a reference in the sink describes, by the receipt's fields.

    ``data`` is the payload of the line's entity. Return None if it is not a reference.
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
