"""Options that conceal the structure or the names of documents; `penstock.documents` exports the class."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Manner", "Privacy", "manner_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """What the headers of a document's parts conceal (PipeStream, section 10.6). Receipts, which stay here, do not.

    >>> Privacy(pad_children=16, opaque_types=True).pseudonym_key_file is None
    True
    """

    pad_children: int = 0
    """Pad the children of each container to a multiple of this, at most 1,000, with entities of random bytes. Padding
    counts in the scope's digest, but is not in a receipt's parts or a reader's rows. 0 and 1 add none."""
    opaque_types: bool = False
    """Whether headers have the type ``application/octet-stream`` instead of a part's real type."""
    pseudonym_key_file: str | os.PathLike[str] | None = None
    """A file with a key of at least 16 bytes. Headers then have pseudonyms, made with HMAC-SHA-256, instead of
    documents' names, the paths of their parts, each ``doc_id`` and owner. The process that sends reads the file, for
    example a Spark executor."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if ``pad_children`` is out of range."""
        if not 0 <= self.pad_children <= 1000:
            raise ValueError(f"pad_children must be from 0 to 1000, not {self.pad_children}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The options for the core: those of `Privacy` with the key itself, or the URL prefix of references."""

    pad_children: int
    opaque_types: bool
    pseudonym_key: bytes | None
    by_reference: str | None


def manner_of(privacy: Privacy | None, by_reference: str | None) -> Manner:
    """Return the options for the core, with the key read from its file.

    Raises:
        OSError: The key cannot be read.
        ValueError: Both arguments are given: a reference contains the document's name.
    """
    privacy = privacy or Privacy()
    if by_reference is not None and privacy != Privacy():
        raise ValueError(
            "by_reference and privacy are mutually exclusive: a reference has the document's name and type"
        )
    file = privacy.pseudonym_key_file
    return Manner(
        pad_children=privacy.pad_children,
        opaque_types=privacy.opaque_types,
        # Editors add a newline at the end of a file.
        pseudonym_key=None if file is None else Path(file).read_bytes().rstrip(b"\r\n"),
        by_reference=by_reference,
    )
