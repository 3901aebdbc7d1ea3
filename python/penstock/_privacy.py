"""How documents go out where their structure or their names must not show; `penstock.documents` shows the class."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Manner", "Privacy", "manner_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """What the headers of a document's parts do not tell (section 10.6). Receipts, which stay here, tell it all.

    >>> Privacy(pad_children=16, opaque_types=True).pseudonym_key_file is None
    True
    """

    pad_children: int = 0
    """Children of a container are made up to a multiple of this, at most 1,000, by entities with random bytes. They
    count in the scope's digest, are in no receipt's parts and no reader's rows. 0 and 1: they are not."""
    opaque_types: bool = False
    """Whether headers say ``application/octet-stream`` instead of a part's type."""
    pseudonym_key_file: str | os.PathLike[str] | None = None
    """A file with a key of 16 bytes or more: headers have pseudonyms, made with HMAC-SHA-256, instead of the names of
    documents, of the ways down to their parts, of each document's ``doc_id`` and of its owner. It is read by whoever
    sends, on an executor of Spark for instance."""

    def __post_init__(self) -> None:
        """Refuse a number of children that is none."""
        if not 0 <= self.pad_children <= 1000:
            raise ValueError(f"pad_children is 0 to 1000, not {self.pad_children}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What the core is told: `Privacy` with its key, or a prefix of references."""

    pad_children: int
    opaque_types: bool
    pseudonym_key: bytes | None
    by_reference: str | None


def manner_of(privacy: Privacy | None, by_reference: str | None) -> Manner:
    """Read the key.

    Raises ``OSError`` if it cannot be read, ``ValueError`` where both are given: a reference has the document's name.
    """
    privacy = privacy or Privacy()
    if by_reference is not None and privacy != Privacy():
        raise ValueError("by_reference and privacy do not go together: a reference has the document's name and type")
    file = privacy.pseudonym_key_file
    return Manner(
        pad_children=privacy.pad_children,
        opaque_types=privacy.opaque_types,
        # Editors end a file with a line's end.
        pseudonym_key=None if file is None else Path(file).read_bytes().rstrip(b"\r\n"),
        by_reference=by_reference,
    )
