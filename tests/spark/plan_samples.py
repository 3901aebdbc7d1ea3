"""What the tests of plans share: documents that are worth dividing, and what their receipts say."""

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
from samples import repeated

from penstock import receipts as receipts_module
from penstock._previous import EarlierReceipts
from penstock.spark._apart import SendApart
from penstock.spark._divide import Divide
from penstock.spark._gather import Gather

OF_A_SESSION = {"session", "scope", "entity", "attempts", "file", "uri"}
GROUP, SPREAD = 20_000, 3
"""Bytes of a group, and tasks."""


def divided(paths, apart):
    """What goes through the first shuffle."""
    names = [str(path).rpartition("/")[2] for path in paths]
    batch = {"ordinal": list(range(len(paths))), "path": [str(path) for path in paths], "document": names}
    return pa.Table.from_batches(Divide(apart, 0, GROUP)(iter([pa.RecordBatch.from_pydict(batch)])))


def sent(tasks, apart):
    """What goes through the second one."""
    batches = []
    for number in range(SPREAD):
        own = tasks.filter(pa.array([slot % SPREAD == number for slot in tasks.column("slot").to_pylist()]))
        own = own.sort_by([("ordinal", "ascending"), ("first", "ascending")])
        batches += SendApart(apart)(iter(own.to_batches()))
    return pa.Table.from_batches(batches)


def gathered(rows, apart):
    """The rows of the last stage."""
    order = [(name, "ascending") for name in ("ordinal", "place", "step")]
    batches = rows.sort_by(order).combine_chunks().to_batches(max_chunksize=7)
    return [row for batch in Gather(apart)(iter(batches)) for row in batch.to_pylist()]


def zip_file(members, *, bomb=0):
    file = io.BytesIO()
    with repeated([name for name, _ in members]), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        if bomb:
            archive.writestr("bomb", bytes(bomb))
    return file.getvalue()


def tar_file(members, mode="w"):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def write_outsized(folder):
    """Archives that are worth dividing: nested, broken, with bombs, and with names that repeat."""
    nested = (folder / "nested.zip").read_bytes()
    texts = [(f"{number:03}.txt", f"{number} ".encode() * 900) for number in range(60)]
    mails = b"".join(
        b"From a@b Thu Jan  1 00:00:00 2026\n" + (b"Subject: %d\n\nbody %d\n\n" % (number, number))
        for number in range(25)
    )
    files = {
        "deep.zip": zip_file([*texts, ("nested.zip", nested), ("000.txt", b"again"), ("none.zip", zip_file([]))]),
        "bombs.zip": zip_file([*texts[:20], ("b/broken.zip", nested[:500])], bomb=4 << 20),
        "deep.tar.gz": tar_file([*texts, ("nested.zip", nested), ("000.txt", b"again"), ("e", b"")], "w:gz"),
        "one.tar": tar_file([("only.zip", zip_file([*texts, ("nested.zip", nested)]))]),
        "cut.tar": tar_file(texts)[:20_000],
        "box.mbox": mails,
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    encrypted = bytearray((folder / "deep.zip").read_bytes())
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    (folder / "partly.zip").write_bytes(encrypted)
    # The last member's header is said to lie where the first one's is; who sees only one of them sees nothing wrong.
    overlapping = bytearray(zip_file(texts))
    at = overlapping.rindex(b"PK\x01\x02") + 42
    overlapping[at : at + 4] = bytes(4)
    (folder / "overlapping.zip").write_bytes(overlapping)


def what_is_said(receipt):
    """A receipt without what depends on the sessions."""
    kept = {name: value for name, value in receipt.items() if name not in OF_A_SESSION | {"root", "scopes", "parts"}}
    parts = [{name: value for name, value in part.items() if name not in OF_A_SESSION} for part in receipt["parts"]]
    return {**kept, "parts": parts, "depths": sorted({scope["depth"] for scope in receipt["scopes"]})}


def rows_of(rows):
    """What the rows say, each document's in their order."""
    found = {}
    for row in rows:
        own = row if isinstance(row, dict) else row.asDict()
        found.setdefault(own["document"], []).append({n: v for n, v in own.items() if n not in OF_A_SESSION})
    return found


def sessions_of(receipt):
    """The sessions that have a document."""
    return {part["session"] for part in receipt["parts"]} | {receipt["session"]}


def latest_receipts(folder):
    """The latest receipt of each document, by its name."""
    receipts = EarlierReceipts(folder)
    receipts.prepare()
    documents = [json.loads(file.read_text())["document"] for file in folder.glob("*.json")]
    return {document: receipts.find(document) for document in documents}


def differences(receipts, sink):
    """All that is wrong with the receipts in a folder."""
    return [difference.text for _, found in receipts_module.verify_all(receipts, sink) for difference in found]


def resident(which):
    """How much of this process is in memory, in bytes: now (`VmRSS`), or at most (`VmHWM`)."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{which}:"))
    return int(line.split()[1]) << 10


def forget_peak():
    """Let the peak begin anew."""
    Path("/proc/self/clear_refs").write_text("5")
