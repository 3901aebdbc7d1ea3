"""The limits of a PipeStream end and their ranges, for the classes, the command line and Spark."""

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["LIMITS", "SERVER_LIMITS", "Limits"]


def _limit(default: float, least: float, most: float, *, server: bool = False) -> Any:
    """Declare a limit with its range; ``server`` marks one that only servers have."""
    return field(default=default, metadata={"range": (least, most), "server": server})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on what peers may make a PipeStream end do (PipeStream, sections 10.4 and 10.5).

    The defaults are those of the specification, and mostly the highest permitted values: an operator can only make them
    stricter. What exceeds a limit is rejected with an error code (`ErrorCode`) and counted under the limit's name
    (`ServerCounters.limits`). Times are in seconds, sizes in bytes.

    Raises:
        ValueError: A value is outside its limit's range; the message names the limit and the range.

    >>> Limits(max_header=64 << 10).max_header
    65536
    >>> Limits(max_scope_depth=8)
    Traceback (most recent call last):
    ValueError: max_scope_depth is 1 to 7, not 8
    """

    max_connections: int = _limit(1_024, 1, 1_000_000, server=True)
    """The most connections at once; further ones are refused."""
    max_scope_depth: int = _limit(7, 1, 7)
    """The deepest level of scopes; a deeper one closes the connection with DEPTH_EXCEEDED. The smaller value of both
    ends applies."""
    max_entities_per_scope: int = _limit(4_294_967_294, 1, 4_294_967_294)
    """The most entities of a scope in total; more close the connection with WINDOW_EXCEEDED. The smaller value of both
    ends applies."""
    max_open_entities: int = _limit(1_000_000, 64, 1_000_000)
    """The most entities of a session without a terminal status; more from the peer close the connection with
    WINDOW_EXCEEDED. This end's own announcements wait."""
    max_open_parents: int = _limit(1_000_000, 1, 1_000_000)
    """The most open parents of a session; a further one fails with WINDOW_EXCEEDED."""
    max_children: int = _limit(4_294_967_294, 1, 4_294_967_294)
    """The most children of one parent, whatever its length; with more the parent fails with ENTITY_INVALID."""
    max_children_per_mib: int = _limit(1_000, 1, 4_294_967_294)
    """The most children of one parent for each MiB, or part of one, of its original; with more the parent fails with
    ENTITY_INVALID."""
    max_parent_time: float = _limit(3_600.0, 0.1, 3_600.0)
    """The most seconds that a parent may be open; then it fails with IDLE_TIMEOUT, and so does everything open below
    it."""
    max_open_checkpoints: int = _limit(1_024, 1, 1_024)
    """The most unanswered checkpoints; more close the connection with WINDOW_EXCEEDED."""
    max_checkpoint_time: float = _limit(4_294_967.295, 0.001, 4_294_967.295)
    """The most seconds that a checkpoint may be open, whatever timeout it requests (30 s by default); then it has timed
    out."""
    max_header: int = _limit(1 << 20, 1 << 10, 1 << 20)
    """The most bytes of a header; a longer one closes the connection with ENTITY_TOO_LARGE."""
    max_metadata: int = _limit(1 << 20, 256, 1 << 20)
    """The most bytes of the names and values in a header's metadata; with more its entity fails with
    ENTITY_TOO_LARGE."""
    max_held_headers: int = _limit(16 << 20, 64 << 10, 16 << 20)
    """The most bytes of headers that wait for their announcement; more close the connection with WINDOW_EXCEEDED."""
    max_claims: int = _limit(1_000_000, 1, 1_000_000, server=True)
    """The most claim checks that are known; beyond it, entities that would be deferred fail with WINDOW_EXCEEDED."""
    max_claim_life: float = _limit(86_400.0, 1.0, 86_400.0, server=True)
    """The most seconds that a claim check is valid; a later redemption fails with CLAIM_EXPIRED."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a value out of range."""
        for each in fields(self):
            value, (least, most) = getattr(self, each.name), each.metadata["range"]
            if not least <= value <= most:
                raise ValueError(f"{each.name} must be from {least} to {most}, not {value}")


LIMITS: dict[str, tuple[float, float]] = {each.name: each.metadata["range"] for each in fields(Limits)}
"""The range of each limit."""
SERVER_LIMITS = frozenset(each.name for each in fields(Limits) if each.metadata["server"])
"""The names of the limits that only servers have."""
