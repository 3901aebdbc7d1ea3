"""The assembly manifest: the children of each parent, and the parents that are complete (sections 9.2 and 9.5)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from penstock import _core
from penstock.pipestream._codes import ResolutionState, Status

__all__ = ["Completion", "Manifest", "Resolution", "merkle_root"]


class Completion(StrEnum):
    """The effect of `Manifest.complete_child`; completions are idempotent (PipeStream, section 9.2)."""

    APPLIED = "applied"
    """The child is terminal now."""
    REPEATED = "repeated"
    """The child was terminal already and keeps its first status."""
    ORPHANED = "orphaned"
    """The parent has no entry yet; the completion is kept until it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A parent whose children are all terminal (PipeStream, section 9.2)."""

    scope_id: int
    """The ID of the parent's scope."""
    parent_id: int
    """The parent's ID."""
    state: ResolutionState
    """RESOLVED, or FAILED if a child is not COMPLETE (the STRICT policy)."""
    children: int
    """The number of all children."""
    succeeded: int
    """The number of children that are COMPLETE."""
    failed: int
    """The number of children that are FAILED or ABANDONED."""
    deferred: int
    """The number of children that are DEFERRED."""


class Manifest:
    """The Assembly Manifest: parents by scope and entity ID, and their children (PipeStream, section 9.2).

    Completions are idempotent and may arrive in any order, even before the child is added or the parent is opened.
    Adding and completing a child take constant time, removing a resolved parent logarithmic time.

    >>> manifest = Manifest()
    >>> manifest.open(0, 7)
    >>> manifest.add_child(0, 7, 1)
    >>> manifest.seal(0, 7)
    >>> manifest.complete_child(0, 7, 1, Status.COMPLETE)
    <Completion.APPLIED: 'applied'>
    >>> manifest.pop_resolved().state
    <ResolutionState.RESOLVED: 2>
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        *,
        max_entries: int = 1_000_000,
        max_age: float = 3600.0,
        orphan_age: float = 30.0,
        max_orphans: int = 1_000_000,
    ) -> None:
        """Make an empty manifest.

        Args:
            max_entries: The most parents that may be open at once.
            max_age: Seconds that a parent may stay open before `expire` removes it.
            orphan_age: Seconds for which a completion is kept until its parent is opened.
            max_orphans: The most completions that may be kept for parents that are not open yet.
        """
        self._native = _core.Manifest(max_entries, max_age, orphan_age, max_orphans)

    def open(self, scope_id: int, parent_id: int) -> None:
        """Open the entry of a parent, and apply the completions that arrived before it.

        Raises:
            PipeStreamError: WINDOW_EXCEEDED at ``max_entries``; of kind "misuse" if the entry is open already.
        """
        self._native.open(scope_id, parent_id)

    def add_child(self, scope_id: int, parent_id: int, child_id: int, status: Status | None = None) -> None:
        """Add a child, or record its status; a terminal status does not change any more.

        Raises:
            PipeStreamError: Of kind "misuse" if the parent has no entry, or for a new child of a sealed entry.
        """
        self._native.add_child(scope_id, parent_id, child_id, status)

    def complete_child(self, scope_id: int, parent_id: int, child_id: int, status: Status) -> Completion:
        """Record a child's terminal status; a second one changes nothing.

        Raises:
            PipeStreamError: ENTITY_INVALID for an unknown child of a sealed entry; of kind "misuse" if the status is
                not terminal; WINDOW_EXCEEDED at ``max_orphans``.
        """
        return Completion(self._native.complete_child(scope_id, parent_id, child_id, status))

    def seal(self, scope_id: int, parent_id: int) -> None:
        """Report that the parent has all its children: it is resolved once they are terminal.

        Raises:
            PipeStreamError: Of kind "misuse" if the parent has no entry.
        """
        self._native.seal(scope_id, parent_id)

    def pop_resolved(self) -> Resolution | None:
        """Remove a resolved parent and return it; return None if there is none."""
        fields = self._native.pop_resolved()
        if fields is None:
            return None
        return Resolution(
            scope_id=fields["scope_id"],
            parent_id=fields["parent_id"],
            state=ResolutionState(fields["state"]),
            children=fields["children"],
            succeeded=fields["succeeded"],
            failed=fields["failed"],
            deferred=fields["deferred"],
        )

    def remove(self, scope_id: int, parent_id: int) -> bool:
        """Remove a parent, resolved or not; return whether it had an entry."""
        return self._native.remove(scope_id, parent_id)

    def expire(self) -> list[tuple[int, int]]:
        """Drop completions that waited too long; remove parents that were open too long, and return (scope, entity)."""
        return self._native.expire()

    def children(self, scope_id: int, parent_id: int) -> list[tuple[int, Status | None]]:
        """Return the children by ascending ID, each with its latest status."""
        children = self._native.children(scope_id, parent_id)
        return [(child, None if status is None else Status(status)) for child, status in children]

    def unresolved_count(self, scope_id: int, parent_id: int) -> int:
        """Return the number of children that are not terminal; 0 if the parent has no entry."""
        return self._native.unresolved_count(scope_id, parent_id)

    @property
    def orphan_count(self) -> int:
        """The number of completions that are kept for parents that are not open yet."""
        return self._native.orphan_count()

    def __contains__(self, key: tuple[int, int]) -> bool:
        """Return whether the parent (scope, entity) has an entry."""
        return self._native.contains(*key)

    def __len__(self) -> int:
        """Return the number of open parents."""
        return len(self._native)

    def __repr__(self) -> str:
        """Return the numbers of open parents and orphans."""
        return f"Manifest({len(self)} open, {self.orphan_count} orphans)"


def merkle_root(leaves: Iterable[tuple[int, Status]]) -> bytes:
    """Return the Merkle root over entity IDs and statuses, 32 bytes (PipeStream, section 9.4).

    The order of the leaves does not matter. The root covers only IDs and statuses; a receipt's content root covers the
    contents of the entities.

    >>> merkle_root([(1, Status.COMPLETE), (2, Status.COMPLETE), (3, Status.FAILED)]).hex()[:16]
    'bd7c6e1d58136615'
    """
    return _core.merkle_root(list(leaves))
