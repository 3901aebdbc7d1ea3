"""Which children make up which parents, and which parents are complete (sections 9.2 and 9.5)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from penstock import _core
from penstock.pipestream._codes import ResolutionState, Status

__all__ = ["Completion", "Manifest", "Resolution", "merkle_root"]


class Completion(StrEnum):
    """What `Manifest.complete_child` did: completions are idempotent (section 9.2)."""

    APPLIED = "applied"
    """The child is terminal now."""
    REPEATED = "repeated"
    """The child was terminal already; the first status stands."""
    ORPHANED = "orphaned"
    """There is no entry for the parent yet; the completion waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A parent all of whose children are terminal (section 9.2)."""

    scope_id: int
    """The parent's scope."""
    parent_id: int
    """The parent."""
    state: ResolutionState
    """RESOLVED, or FAILED where a child is not COMPLETE (the STRICT policy)."""
    children: int
    """All children."""
    succeeded: int
    """Children that are COMPLETE."""
    failed: int
    """Children that are FAILED or ABANDONED."""
    deferred: int
    """Children that are DEFERRED."""


class Manifest:
    """The Assembly Manifest (section 9.2): parents by scope and entity ID, their children, and which are resolved.

    Completions are idempotent and may come in any order, before the child was added or even before the parent was
    opened. Adding a child and completing one takes constant time, taking out a resolved parent logarithmic time.

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
            max_entries: Parents that may be open at a time.
            max_age: Seconds that a parent may stay open, before `expire` takes it out.
            orphan_age: Seconds for which a completion waits for its parent.
            max_orphans: Completions that may wait for their parents.
        """
        self._native = _core.Manifest(max_entries, max_age, orphan_age, max_orphans)

    def open(self, scope_id: int, parent_id: int) -> None:
        """Open the entry of a parent and take in the completions that came before it.

        Raises:
            PipeStreamError: WINDOW_EXCEEDED at ``max_entries``; a misuse if the entry is open already.
        """
        self._native.open(scope_id, parent_id)

    def add_child(self, scope_id: int, parent_id: int, child_id: int, status: Status | None = None) -> None:
        """Add a child, or record its status. A terminal status stands.

        Raises:
            PipeStreamError: A misuse without an entry, or for a new child of a sealed one.
        """
        self._native.add_child(scope_id, parent_id, child_id, status)

    def complete_child(self, scope_id: int, parent_id: int, child_id: int, status: Status) -> Completion:
        """Record a child's terminal status; the first one stands.

        Raises:
            PipeStreamError: ENTITY_INVALID for a child that a sealed entry does not know; a misuse where the status
                is not terminal; WINDOW_EXCEEDED at ``max_orphans``.
        """
        return Completion(self._native.complete_child(scope_id, parent_id, child_id, status))

    def seal(self, scope_id: int, parent_id: int) -> None:
        """Say that the parent has all its children: once they are terminal it is resolved.

        Raises:
            PipeStreamError: A misuse without an entry.
        """
        self._native.seal(scope_id, parent_id)

    def pop_resolved(self) -> Resolution | None:
        """Take out a parent that is resolved, if there is one."""
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
        """Take out a parent, resolved or not, and say whether it was there."""
        return self._native.remove(scope_id, parent_id)

    def expire(self) -> list[tuple[int, int]]:
        """Drop orphans that waited too long, and take out the parents (scope, entity) that were open too long."""
        return self._native.expire()

    def children(self, scope_id: int, parent_id: int) -> list[tuple[int, Status | None]]:
        """Give the children by ascending ID, each with its latest status."""
        children = self._native.children(scope_id, parent_id)
        return [(child, None if status is None else Status(status)) for child, status in children]

    def unresolved_count(self, scope_id: int, parent_id: int) -> int:
        """Say how many children are not terminal; 0 without an entry."""
        return self._native.unresolved_count(scope_id, parent_id)

    @property
    def orphan_count(self) -> int:
        """How many completions wait for their parents."""
        return self._native.orphan_count()

    def __contains__(self, key: tuple[int, int]) -> bool:
        """Whether the parent (scope, entity) has an entry."""
        return self._native.contains(*key)

    def __len__(self) -> int:
        """How many parents are open."""
        return len(self._native)

    def __repr__(self) -> str:
        """Say how much is in it."""
        return f"Manifest({len(self)} open, {self.orphan_count} orphans)"


def merkle_root(leaves: Iterable[tuple[int, Status]]) -> bytes:
    """Give the root over entity IDs and statuses (section 9.4), 32 bytes; the order of the leaves does not matter.

    It covers IDs and statuses only; what the entities contain is covered by a receipt's content root.

    >>> merkle_root([(1, Status.COMPLETE), (2, Status.COMPLETE), (3, Status.FAILED)]).hex()[:16]
    'bd7c6e1d58136615'
    """
    return _core.merkle_root(list(leaves))
