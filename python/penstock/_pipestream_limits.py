"""The limits of a PipeStream end, and what each may be; the command line and Spark read them from here."""

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["LIMITS", "SERVER_LIMITS", "Limits"]


def _limit(default: float, least: float, most: float, *, server: bool = False) -> Any:
    """Declare a limit with its range; ``server``: a client has none of it."""
    return field(default=default, metadata={"range": (least, most), "server": server})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a PipeStream end lets its peers make it do (sections 10.4 and 10.5).

    The defaults are those of the specification, and mostly the highest that there are: an operator makes them stricter.
    What exceeds one is refused with the registry's code (section 11.4) and counted under the limit's name
    (`ServerCounters.limits`). Times are in seconds, sizes in bytes.

    Raises:
        ValueError: For a value outside a limit's range; names the limit and the range.

    >>> Limits(max_header=64 << 10).max_header
    65536
    >>> Limits(max_scope_depth=8)
    Traceback (most recent call last):
    ValueError: max_scope_depth is 1 to 7, not 8
    """

    max_connections: int = _limit(1_024, 1, 1_000_000, server=True)
    """Connections at once; more are refused."""
    max_scope_depth: int = _limit(7, 1, 7)
    """How deep scopes may lie; deeper is DEPTH_EXCEEDED, closed. Both ends keep to the smaller."""
    max_entities_per_scope: int = _limit(4_294_967_294, 1, 4_294_967_294)
    """Entities that a scope may have in all; more is WINDOW_EXCEEDED, closed. Both ends keep to the smaller."""
    max_open_entities: int = _limit(1_000_000, 64, 1_000_000)
    """Entities of a session without a terminal status; more is WINDOW_EXCEEDED, closed. Our own announcements wait."""
    max_open_parents: int = _limit(1_000_000, 1, 1_000_000)
    """Parents of a session that are open; one more fails, WINDOW_EXCEEDED."""
    max_children: int = _limit(4_294_967_294, 1, 4_294_967_294)
    """Children of one parent, whatever its length; with more the parent fails, ENTITY_INVALID."""
    max_children_per_mib: int = _limit(1_000, 1, 4_294_967_294)
    """Children of one parent for each MiB (begun) of its original; with more the parent fails, ENTITY_INVALID."""
    max_parent_time: float = _limit(3_600.0, 0.1, 3_600.0)
    """How long a parent may be open; then it fails, IDLE_TIMEOUT, and what is open below it."""
    max_open_checkpoints: int = _limit(1_024, 1, 1_024)
    """Checkpoints that are not answered; more is WINDOW_EXCEEDED, closed."""
    max_checkpoint_time: float = _limit(4_294_967.295, 0.001, 4_294_967.295)
    """How long a checkpoint may be open, whatever it asks for (30 s where it does not say); then it has timed out."""
    max_header: int = _limit(1 << 20, 1 << 10, 1 << 20)
    """The length of a header; a longer one is ENTITY_TOO_LARGE, closed."""
    max_metadata: int = _limit(1 << 20, 256, 1 << 20)
    """Bytes of the names and values of a header's metadata; with more its entity fails, ENTITY_TOO_LARGE."""
    max_held_headers: int = _limit(16 << 20, 64 << 10, 16 << 20)
    """Bytes of headers that wait for their announcement; more is WINDOW_EXCEEDED, closed."""
    max_claims: int = _limit(1_000_000, 1, 1_000_000, server=True)
    """Claim checks that are known; beyond, what was to be set aside fails, WINDOW_EXCEEDED."""
    max_claim_life: float = _limit(86_400.0, 1.0, 86_400.0, server=True)
    """How long a claim check is good; a later redemption is CLAIM_EXPIRED."""

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        for each in fields(self):
            value, (least, most) = getattr(self, each.name), each.metadata["range"]
            if not least <= value <= most:
                raise ValueError(f"{each.name} is {least} to {most}, not {value}")


LIMITS: dict[str, tuple[float, float]] = {each.name: each.metadata["range"] for each in fields(Limits)}
"""The range of each limit."""
SERVER_LIMITS = frozenset(each.name for each in fields(Limits) if each.metadata["server"])
"""Those that a client has not."""
