"""Account for every document: compare the results with the listing, and the receipts with the sink."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.dataset as ds

from penstock import receipts

__all__ = ["Account", "take_account"]

_COLUMNS = ["document", "key", "path", "type", "bytes", "sha256", "status", "reason", "depth"]
_SETTLED = {"COMPLETE", "FAILED", "SKIPPED", "ABANDONED", "DEFERRED"}


@dataclass
class Account:
    """The outcome of the documents."""

    documents: Counter[str] = field(default_factory=Counter)
    """Documents by status."""
    parts: Counter[str] = field(default_factory=Counter)
    """Parts by status, without the documents themselves."""
    types: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Parts by type and status."""
    type_bytes: Counter[str] = field(default_factory=Counter)
    depths: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Parts by depth and status."""
    depth_bytes: Counter[int] = field(default_factory=Counter)
    bytes: int = 0
    """The bytes of all parts."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """The path and reason of every part and document that is not COMPLETE."""
    digests: int = 0
    """The number of SHA-256 digests, content roots and Merkle roots that were verified against the sink."""
    composites: int = 0
    texts: int = 0
    """The number of parts and documents whose text was read."""
    problems: list[str] = field(default_factory=list)
    """Whatever is not accounted for. The demo succeeds only without problems."""

    @property
    def verified(self) -> bool:
        """Whether everything is accounted for."""
        return not self.problems


def take_account(
    results: Path, receipts_folder: Path, sink: Path, listed: int, verified: Callable[[int], None]
) -> Account:
    """Read the rows that Spark wrote, verify every receipt against the sink, and compare the rows with the receipts.

    Args:
        results: The folder of the parts and the composites.
        receipts_folder: The folder of the receipts.
        sink: The sink's folder, whose sessions are closed.
        listed: The number of documents that were listed.
        verified: Called with the number of receipts that were verified so far.
    """
    account = Account()
    rows = _read_parts(results / "parts", account)
    account.composites = ds.dataset(results / "composites", format="parquet").count_rows()
    account.texts = ds.dataset(results / "parts", format="parquet").count_rows(filter=ds.field("text").is_valid())
    documents = account.documents.total()
    for what, count in (("rows of documents", documents), ("composites", account.composites)):
        if count != listed:
            account.problems.append(f"{listed} documents were listed, but {count} {what} were found")
    found = {path.stem for path in receipts_folder.glob("*.json")}
    for key in sorted(rows.keys() - found):
        account.problems.append(f"a document has no receipt, {key}.json")
    if found:
        for done, (receipt, differences) in enumerate(receipts.verify_all(receipts_folder, sink), 1):
            _check(receipt, [difference.text for difference in differences], rows.get(receipt.stem), account)
            verified(done)
    return account


def _read_parts(folder: Path, account: Account) -> Counter[str]:
    """Account for the rows, and return the number of rows of each document by its key."""
    rows: Counter[str] = Counter()
    for batch in ds.dataset(folder, format="parquet").to_batches(columns=_COLUMNS):
        for row in batch.to_pylist():
            rows[row["key"]] += 1
            where = " » ".join([row["document"], *row["path"]])
            if row["status"] not in _SETTLED:
                account.problems.append(f"{where} has the status {row['status']}, which is not final")
            if row["status"] != "COMPLETE":
                account.failures.append((where, row["reason"] or ""))
                if not row["reason"]:
                    account.problems.append(f"{where} is {row['status']} without a reason")
            _count(row["depth"], row["type"] or "unknown", row["status"], row["bytes"] or 0, account)
    return rows


def _count(depth: int, kind: str, status: str, size: int, account: Account) -> None:
    if depth == 0:
        account.documents[status] += 1
        return
    account.parts[status] += 1
    account.types[kind, status] += 1
    account.type_bytes[kind] += size
    account.depths[depth, status] += 1
    account.depth_bytes[depth] += size
    account.bytes += size


def _check(path: Path, differences: list[str], rows: int | None, account: Account) -> None:
    if differences:
        account.problems += [f"{path.name}: {difference}" for difference in differences]
        return
    receipt = receipts.load(path)
    parts = receipt["parts"]
    if rows is None:
        account.problems.append(f"{path.name} belongs to a document without rows")
    # Documents with the same name and content share one receipt, but each has its own rows.
    elif rows % (len(parts) + 1) != 0:
        account.problems.append(f"{path.name} lists {len(parts)} parts, but there are {rows - 1} rows")
    account.digests += sum(part["sha256"] is not None for part in [receipt, *parts]) + len(receipt["scopes"]) + 1
