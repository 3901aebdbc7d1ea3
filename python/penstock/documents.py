"""Documents taken apart into their parts, and put together again as trees.

>>> from penstock.documents import dehydrate, rehydrate
>>> parts = list(dehydrate("note.txt", b"A line of text."))
>>> parts[0].type, parts[0].status, parts[0].text
('text/plain', 'COMPLETE', 'A line of text.')
>>> rehydrate(parts).root.bytes
15

Formats are told by content, not by name. Damage is never an exception: what cannot be taken out of its container is a
part with the status FAILED and a reason, and its siblings live on.
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
"""What a document is read from. A path is streamed. A binary file is read from its position to its end: it is copied,
but one of more than 64 MiB that can seek is read in place, so it must stay open as long as parts of it are in use."""

_PIECE = 1 << 20
# `Part` has a field of that name.
_bytes = bytes
_HIGHEST = {"max_depth": (1 << 32) - 1, "max_ratio": (1 << 32) - 1, "part_seconds": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one document may cost. Beyond a limit a part is FAILED, with the limit in its reason.

    Text and names are cut instead, and the part is not FAILED for it.

    >>> deep = Limits(max_depth=0)
    >>> import io, zipfile
    >>> zipfile.ZipFile(file := io.BytesIO(), "w").close()
    >>> [part.reason for part in dehydrate("a.zip", file.getvalue(), limits=deep)]
    ["the container's children would lie deeper than 0, the limit of depth"]
    """

    max_depth: int = 7
    """How deep parts may lie; the document itself is at depth 0."""
    max_children: int = 1_000_000
    """How many children any container may have."""
    children_per_mib: int = 1000
    """How many children a container may have for each MiB (begun) of its own size, and at least."""
    max_inflated: int = 4 << 30
    """Bytes of one part."""
    max_total_inflated: int = 64 << 30
    """Bytes of all parts of one document together."""
    max_ratio: int = 1000
    """How many times larger than its compressed form a part may be, beyond 1 MiB."""
    max_text: int = 16 << 20
    """Bytes of text kept for a part; what lies beyond is cut."""
    max_markup: int = 64 << 20
    """Bytes of one HTML or XML document that are read for its text, links and embedded data."""
    part_seconds: float = 60.0
    """How long one part may take; for a PDF, one page."""
    max_name: int = 4096
    """Bytes of a member's name; what lies beyond is cut."""
    pdf_memory: int = 1 << 30
    """Bytes of memory that the reader of a PDF may take."""

    def __post_init__(self) -> None:
        """Refuse what is no limit: ``ValueError`` names the field."""
        for each in fields(self):
            value, highest = getattr(self, each.name), _HIGHEST.get(each.name, (1 << 63) - 1)
            if not 0 <= value <= highest:
                raise ValueError(f"{each.name} is 0 to {highest}, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a document, or the document itself (``path`` is empty, ``depth`` is 0).

    >>> (part,) = dehydrate("note.txt", b"A line of text.")
    >>> part.path, part.content, part.reason
    ((), b'A line of text.', None)
    """

    path: tuple[str, ...]
    """The way down from the document through its containers. Names only: never use them as paths of files."""
    type: str
    """The MIME type, told by content."""
    sha256: str | None
    """Of the part's bytes as they came out of its container, in hex; ``None`` if they were never obtained."""
    bytes: int | None
    """How many bytes that are."""
    depth: int
    """How many containers the part lies in."""
    status: str = "COMPLETE"
    """A PipeStream status, ``COMPLETE`` or ``FAILED`` as long as nothing was sent."""
    reason: str | None = None
    """Why the status is not ``COMPLETE``; ``None`` if it is."""
    text: str | None = None
    """The decoded text of a part that is text."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the part says of itself: ``html.title``, ``mail.subject``, ``text.charset``, ..."""
    container: bool = False
    """Whether it was entered: the parts that follow, one deeper, are its children."""
    file: str | None = None
    """Where the bytes lie in the sink's folder, for a part that was sent."""
    reference: "_core.Content | None" = field(default=None, repr=False, compare=False)
    """The bytes where this process has them, for :meth:`open` and :attr:`content`. A pickle leaves them out."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all but the bytes, which belong to this process."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "reference"}
        return _make_part, (given,)

    def open(self) -> BinaryIO:
        """Open the part's bytes for reading; each call has a position of its own.

        Raises :class:`penstock.DocumentsError` if they are not here: they were never obtained, the part is a container
        that its children stand for, or they are in the sink.
        """
        if self.reference is None:
            raise DocumentsError(f"no bytes here for {'/'.join(self.path) or 'the document'}", "misuse")
        return io.BufferedReader(_Reader(self.reference))

    @property
    def content(self) -> "_bytes | None":
        """The part's bytes, or ``None`` where :meth:`open` would raise."""
        if self.reference is None:
            return None
        with self.open() as stream:
            return stream.read()


def _make_part(given: dict[str, Any]) -> Part:
    return Part(**given)


class _Reader(io.RawIOBase):
    """A part's bytes as a raw stream."""

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
    """Take a document apart: the document itself first, then its parts, depth first in each container's order.

    ``name`` is the document's own name, which names what a compressed stream holds and helps to tell Markdown and CSV.
    A document that cannot be read gives one part, FAILED with the reason. The iterator ends by itself; each part is
    taken out of its container when it is asked for.

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
    """A part with its children, in a :class:`Composite`. Its properties are the part's fields."""

    part: Part
    """The part. Its status follows its children's: a container with a child that is not COMPLETE is FAILED."""
    children: "list[Node]" = field(default_factory=list)
    """The parts right below it, in the container's order."""

    @property
    def path(self) -> tuple[str, ...]:
        """The way down to it."""
        return self.part.path

    @property
    def type(self) -> str:
        """Its MIME type."""
        return self.part.type

    @property
    def bytes(self) -> int | None:
        """How many bytes it has."""
        return self.part.bytes

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of its bytes, in hex."""
        return self.part.sha256

    @property
    def status(self) -> str:
        """Its status."""
        return self.part.status

    @property
    def reason(self) -> str | None:
        """Why the status is not ``COMPLETE``."""
        return self.part.reason

    @property
    def text(self) -> str | None:
        """Its text."""
        return self.part.text

    def walk(self) -> "Iterator[Node]":
        """Give this node and all below it, depth first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def to_dict(self) -> dict[str, Any]:
        """Give the node and all below it as plain dictionaries, without bytes."""
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
    """A document put together again: a tree of its parts, as :func:`rehydrate` gives it."""

    root: Node
    """The document itself."""
    content_root: str
    """The receipt's digest over paths, bytes and statuses of all parts, in hex."""

    @property
    def status(self) -> str:
        """The document's status."""
        return self.root.status

    @property
    def text(self) -> str:
        """The text of all parts in their order, an empty line between two."""
        return "\n\n".join(node.text for node in self.walk() if node.text)

    def walk(self) -> Iterator[Node]:
        """Give the document and all its parts, depth first."""
        return self.root.walk()

    def find(self, path: Iterable[str]) -> Node | None:
        """Find the first part with that path; duplicates are further on in :meth:`walk`."""
        wanted = tuple(path)
        return next((node for node in self.walk() if node.path == wanted), None)

    def to_dict(self) -> dict[str, Any]:
        """Give the tree as plain dictionaries, without bytes; ``content_root`` is beside the document's own fields."""
        return {**self.root.to_dict(), "content_root": self.content_root}

    def to_json(self) -> str:
        """Give :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def rehydrate(parts: Iterable[Part], *, strict: bool = True) -> Composite:
    """Put a document together out of its parts in the order in which :func:`dehydrate` gives them.

    Each part belongs to the last one before it that lies one less deep. Bytes stay where they are: by reference.
    A container with a child that is not COMPLETE becomes FAILED; not so with ``strict=False``, for parts that were sent
    under a policy, which has given every container its status. Raises :class:`penstock.DocumentsError` if the parts are
    not those of exactly one document.

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
    """Make a container FAILED when a child is not COMPLETE; children come before their parents (decision 11)."""
    incomplete = sum(child.status != "COMPLETE" for child in node.children)
    if incomplete and node.status == "COMPLETE":
        reason = f"{incomplete} of {len(node.children)} parts are not COMPLETE"
        node.part = replace(node.part, status="FAILED", reason=reason)


def _code(node: Node) -> int:
    try:
        return Status[node.status]
    except KeyError:
        raise DocumentsError(f"{node.status!r} of part {list(node.path)} is not a status", "misuse") from None
