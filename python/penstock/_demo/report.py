"""The table at the end of the demo."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from penstock._demo.account import Account

__all__ = ["print_report"]

_SHOWN_TYPES = 20
_SHOWN_FAILURES = 25


def print_report(
    console: Console, account: Account, seconds: Mapping[str, float], places: Mapping[str, Path], logged: int
) -> None:
    """Print the outcome of the documents, the duration of the stages, and the paths of all output."""
    parts: list[RenderableType] = [_documents(account, logged), Text(), _types(account), Text(), _depths(account)]
    if account.failures:
        parts += [Text(), _failures(account)]
    parts += [Text(), _rates(account, seconds), Text(), _places(places)]
    console.print(Group(*parts))


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left else "right", overflow="fold")
    return table


def _documents(account: Account, logged: int) -> Table:
    table = _table("Accounted for", "", "total", "complete", "failed", "skipped")
    for name, statuses in (("documents", account.documents), ("parts", account.parts)):
        counts = [statuses.total(), *(statuses[status] for status in ("COMPLETE", "FAILED", "SKIPPED"))]
        table.add_row(name, *(f"{count:,}" for count in counts))
    table.add_row("composites", f"{account.composites:,}")
    table.add_row("texts read by the worker", f"{account.texts:,}")
    table.add_row("digests verified", f"{account.digests:,}")
    table.add_row("bytes of parts", decimal(account.bytes))
    table.add_row("lines of logs acknowledged", f"{logged:,}")
    return table


def _types(account: Account) -> Table:
    table = _table("Parts by type", "type", "parts", "complete", "failed", "bytes")
    totals: Counter[str] = Counter()
    for (kind, _), count in account.types.items():
        totals[kind] += count
    for kind, count in totals.most_common(_SHOWN_TYPES):
        complete, failed = (account.types[kind, status] for status in ("COMPLETE", "FAILED"))
        table.add_row(Text(kind), f"{count:,}", f"{complete:,}", f"{failed:,}", decimal(account.type_bytes[kind]))
    rest = totals.most_common()[_SHOWN_TYPES:]
    if rest:
        size = sum(account.type_bytes[kind] for kind, _ in rest)
        table.add_row(f"{len(rest)} more", f"{sum(count for _, count in rest):,}", "", "", decimal(size))
    return table


def _depths(account: Account) -> Table:
    table = _table("Parts by depth", "depth", "parts", "complete", "failed", "bytes")
    for depth in sorted(account.depth_bytes):
        complete, failed = (account.depths[depth, status] for status in ("COMPLETE", "FAILED"))
        count = sum(number for (at, _), number in account.depths.items() if at == depth)
        table.add_row(str(depth), f"{count:,}", f"{complete:,}", f"{failed:,}", decimal(account.depth_bytes[depth]))
    return table


def _failures(account: Account) -> Table:
    table = _table("Not complete", "what", "why", left=2)
    for where, reason in account.failures[:_SHOWN_FAILURES]:
        table.add_row(Text(where), Text(reason))
    if len(account.failures) > _SHOWN_FAILURES:
        table.add_row(f"and {len(account.failures) - _SHOWN_FAILURES:,} more", "the results have the reason of each")
    return table


def _rates(account: Account, seconds: Mapping[str, float]) -> Table:
    table = _table("Seconds", "stage", "seconds")
    for name, taken in seconds.items():
        table.add_row(name, f"{taken:.1f}")
    table.add_row("total", f"{sum(seconds.values()):.1f}")
    taken = seconds.get("splitting and sending", 0.0)
    if taken > 0:
        table.add_row("parts per second", f"{account.parts.total() / taken:,.0f}")
        table.add_row("bytes per second", decimal(int(account.bytes / taken)))
    return table


def _places(places: Mapping[str, Path]) -> Table:
    table = _table("Output", "what", "where", left=2)
    for name, path in places.items():
        table.add_row(name, Text(str(path)))
    return table
