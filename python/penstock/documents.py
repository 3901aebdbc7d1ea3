"""Split documents into their parts, and reassemble the parts as trees.

>>> from penstock.documents import dehydrate, rehydrate
>>> parts = list(dehydrate("note.txt", b"A line of text."))
>>> parts[0].type, parts[0].status, parts[0].text
('text/plain', 'COMPLETE', 'A line of text.')
>>> rehydrate(parts).root.bytes
15

Formats are recognized by content, not by name. Damage is never an exception: a part that cannot be read out of its
container has the status FAILED and a reason, and its siblings are not affected.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, BinaryIO, TypeAlias

from penstock import _core
from penstock._privacy import Privacy
from penstock._sending import PART_SCHEMA, DocumentResult, DocumentSender, SentDocument, document_name
from penstock.errors import DocumentsError
from penstock.pipestream import Status

__all__ = [
    "PART_SCHEMA",
    "Composite",
    "DocumentResult",
    "DocumentSender",
    "Limits",
    "Node",
    "Part",
    "Privacy",
    "SentDocument",
    "Source",
    "dehydrate",
    "document_name",
    "rehydrate",
]

Source: TypeAlias = bytes | str | os.PathLike[str] | BinaryIO
"""The types that a document can be read from. A path is streamed. A binary file is read from its current position to
its end. It is copied, unless it is seekable and larger than 64 MiB: then it is read in place, and must stay open as
long as its parts are in use."""

_PIECE = 1 << 20
# `Part` has a field named `bytes`, which hides the type.
_bytes = bytes
_HIGHEST = {"max_depth": (1 << 32) - 1, "max_ratio": (1 << 32) - 1, "part_seconds": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the resources that one document may use. A part that exceeds one is FAILED, and its reason names it.

    Text and names that are too long are cut off instead, which does not make the part FAILED.

    >>> deep = Limits(max_depth=0)
    >>> import io, zipfile
    >>> zipfile.ZipFile(file := io.BytesIO(), "w").close()
    >>> [part.reason for part in dehydrate("a.zip", file.getvalue(), limits=deep)]
    ["the container's children would lie deeper than 0, the limit of depth"]
    """

    max_depth: int = 7
    """The deepest level of parts; the document itself is at depth 0."""
    max_children: int = 1_000_000
    """The most children of any container."""
    children_per_mib: int = 1000
    """The most children of a container for each MiB, or part of one, of its own size."""
    max_inflated: int = 4 << 30
    """The most bytes of one part."""
    max_total_inflated: int = 64 << 30
    """The most bytes of all parts of one document together."""
    max_ratio: int = 1000
    """The largest ratio of a part's size to its compressed size, for parts of more than 1 MiB."""
    max_text: int = 16 << 20
    """The most bytes of text that are kept for a part; the rest is cut off."""
    max_markup: int = 64 << 20
    """The most bytes of one HTML or XML document that are read for its text, links and embedded data."""
    part_seconds: float = 60.0
    """The most seconds that one part may take; for a PDF, one page."""
    max_name: int = 4096
    """The most bytes of a member's name; the rest is cut off."""
    pdf_memory: int = 1 << 30
    """The most bytes of memory that the PDF reader may use."""

    def __post_init__(self) -> None:
        """Raise ``ValueError``, which names the field, for a value out of range."""
        for each in fields(self):
            value, highest = getattr(self, each.name), _HIGHEST.get(each.name, (1 << 63) - 1)
            if not 0 <= value <= highest:
                raise ValueError(f"{each.name} must be from 0 to {highest}, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a document, or the document itself (``path`` is empty, ``depth`` is 0).

    >>> (part,) = dehydrate("note.txt", b"A line of text.")
    >>> part.path, part.content, part.reason
    ((), b'A line of text.', None)
    """

    path: tuple[str, ...]
    """The names from the document's containers down to the part. Never use them as file paths."""
    type: str
    """The MIME type, recognized by content."""
    sha256: str | None
    """The SHA-256 of the part's bytes as they were read from its container, in hex; ``None`` if they never were."""
    bytes: int | None
    """The number of those bytes."""
    depth: int
    """The number of containers that the part lies in."""
    status: str = "COMPLETE"
    """A PipeStream status: ``COMPLETE`` or ``FAILED`` until the part is sent."""
    reason: str | None = None
    """Why the status is not ``COMPLETE``; ``None`` if it is."""
    text: str | None = None
    """The decoded text of a part that is text."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Metadata found in the part: ``html.title``, ``mail.subject``, ``text.charset``, ..."""
    container: bool = False
    """Whether the part was split: the parts that follow it, one level deeper, are its children."""
    file: str | None = None
    """The path of the bytes in the sink's folder, for a part that was sent."""
    reference: "_core.Content | None" = field(default=None, repr=False, compare=False)
    """A reference to the bytes in this process, for :meth:`open` and :attr:`content`; not pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle everything except the bytes, which belong to this process."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "reference"}
        return _make_part, (given,)

    def open(self) -> BinaryIO:
        """Open the part's bytes for reading. Each call returns a stream with its own position.

        Raises:
            DocumentsError: This process does not have the bytes: they were never read, the part is a container whose
                children replace it, or they are in the sink.
        """
        if self.reference is None:
            raise DocumentsError(f"no bytes are available for {'/'.join(self.path) or 'the document'}", "misuse")
        return io.BufferedReader(_Reader(self.reference))

    @property
    def content(self) -> "_bytes | None":
        """The part's bytes; ``None`` if :meth:`open` would raise."""
        if self.reference is None:
            return None
        with self.open() as stream:
            return stream.read()


def _make_part(given: dict[str, Any]) -> Part:
    return Part(**given)


class _Reader(io.RawIOBase):
    """The bytes of a part, as a raw stream."""

    def __init__(self, content: "_core.Content") -> None:
        super().__init__()
        self._content = content
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            offset += self._content.size()
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        data = self._content.read_at(self._position, min(len(buffer), _PIECE))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def dehydrate(name: str, source: Source, *, limits: Limits | None = None) -> Iterator[Part]:
    """Split a document: yield the document itself, then its parts, depth first in each container's order.

    A document that cannot be read yields one part, which is FAILED with the reason. Each part is read out of its
    container only when the iterator reaches it.

    Args:
        name: The document's own name. The content of a compressed stream is named after it, and it helps to recognize
            Markdown and CSV.
        source: A path, the bytes themselves, or a binary file.
        limits: The limits to apply; by default those of :class:`Limits`.

    >>> import io, zipfile
    >>> file = io.BytesIO()
    >>> with zipfile.ZipFile(file, "w") as archive:
    ...     archive.writestr("a/b.txt", "one")
    >>> [(part.path, part.type, part.bytes) for part in dehydrate("a.zip", file.getvalue())][1:]
    [(('a/b.txt',), 'text/plain', 3)]
    """
    for given in _core.Dehydrator(name, source, limits or Limits()):
        yield Part(
            path=tuple(given["path"]),
            type=given["type"],
            sha256=given["sha256"],
            bytes=given["bytes"],
            depth=given["depth"],
            status="COMPLETE" if given["reason"] is None else "FAILED",
            reason=given["reason"],
            text=given["text"],
            metadata=given["metadata"],
            container=given["container"],
            reference=given["content"],
        )


@dataclass(slots=True)
class Node:
    """A part and its children, in a :class:`Composite`. Its properties are the part's fields."""

    part: Part
    """The part. Its status depends on its children's: a container with a child that is not COMPLETE is FAILED."""
    children: "list[Node]" = field(default_factory=list)
    """The parts directly below it, in the container's order."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names from the document's containers down to the part."""
        return self.part.path

    @property
    def type(self) -> str:
        """The part's MIME type."""
        return self.part.type

    @property
    def bytes(self) -> int | None:
        """The part's size in bytes; ``None`` if the bytes were never read."""
        return self.part.bytes

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the part's bytes, in hex; ``None`` if they were never read."""
        return self.part.sha256

    @property
    def status(self) -> str:
        """The part's status."""
        return self.part.status

    @property
    def reason(self) -> str | None:
        """Why the status is not ``COMPLETE``; ``None`` if it is."""
        return self.part.reason

    @property
    def text(self) -> str | None:
        """The part's text; ``None`` if it has none."""
        return self.part.text

    def walk(self) -> "Iterator[Node]":
        """Yield this node and all nodes below it, depth first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def to_dict(self) -> dict[str, Any]:
        """Return the node and all nodes below it as plain dictionaries, without the parts' content."""
        part = self.part
        own: dict[str, Any] = {
            "path": list(part.path),
            "type": part.type,
            "bytes": part.bytes,
            "sha256": part.sha256,
            "status": part.status,
            "reason": part.reason,
            "text": part.text,
            "file": part.file,
            "metadata": dict(part.metadata),
        }
        return {**own, "children": [child.to_dict() for child in self.children]}


@dataclass(frozen=True, slots=True)
class Composite:
    """A reassembled document: the tree of its parts that :func:`rehydrate` returns."""

    root: Node
    """The document itself."""
    content_root: str
    """The digest over the paths, bytes and statuses of all parts, as in a receipt, in hex."""

    @property
    def status(self) -> str:
        """The document's status."""
        return self.root.status

    @property
    def text(self) -> str:
        """The text of all parts in order, separated by empty lines."""
        return "\n\n".join(node.text for node in self.walk() if node.text)

    def walk(self) -> Iterator[Node]:
        """Yield the document and all its parts, depth first."""
        return self.root.walk()

    def find(self, path: Iterable[str]) -> Node | None:
        """Return the first part with a path, or ``None``. :meth:`walk` also yields the others if the path repeats."""
        wanted = tuple(path)
        return next((node for node in self.walk() if node.path == wanted), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain dictionaries, without content; ``content_root`` is next to the document's fields."""
        return {**self.root.to_dict(), "content_root": self.content_root}

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def rehydrate(parts: Iterable[Part], *, strict: bool = True) -> Composite:
    """Reassemble a document from its parts, in the order in which :func:`dehydrate` yields them.

    Each part is a child of the last part before it that is one level higher. The bytes are not copied: the tree refers
    to them.

    Args:
        parts: All parts of one document, the document itself first.
        strict: Whether a container with a child that is not COMPLETE becomes FAILED. Use False for parts that were
            sent under a policy, which has already decided every container's status.

    Raises:
        DocumentsError: The parts are not those of exactly one document.

    >>> composite = rehydrate(dehydrate("page.html", b"<!doctype html><title>T</title><p>One line."))
    >>> composite.status, composite.text, len(composite.root.children)
    ('COMPLETE', 'One line.', 0)
    """
    root: Node | None = None
    way: list[Node] = []
    for part in parts:
        node = Node(part)
        if part.depth > len(way) or (part.depth == 0) != (root is None) or len(part.path) != part.depth:
            raise DocumentsError(f"part {list(part.path)} does not follow the parts before it", "misuse")
        del way[part.depth :]
        if way and way[-1].path != part.path[:-1]:
            raise DocumentsError(f"part {list(part.path)} does not lie in {list(way[-1].path)}", "misuse")
        if way:
            way[-1].children.append(node)
        else:
            root = node
        way.append(node)
    if root is None:
        raise DocumentsError("there are no parts, not even the document itself", "misuse")
    nodes = list(root.walk())
    for node in reversed(nodes) if strict else ():
        _apply_strict(node)
    tree = _core.ContentTree()
    for node in nodes[1:]:
        digest = None if node.sha256 is None else _bytes.fromhex(node.sha256)
        tree.push(list(node.path), digest, _code(node))
    return Composite(root, tree.root().hex())


def _apply_strict(node: Node) -> None:
    """Make a container FAILED if a child is not COMPLETE. Children must be processed before their parents."""
    incomplete = sum(child.status != "COMPLETE" for child in node.children)
    if incomplete and node.status == "COMPLETE":
        reason = f"{incomplete} of {len(node.children)} parts are not COMPLETE"
        node.part = replace(node.part, status="FAILED", reason=reason)


def _code(node: Node) -> int:
    try:
        return Status[node.status]
    except KeyError:
        raise DocumentsError(f"{node.status!r} of part {list(node.path)} is not a status", "misuse") from None
