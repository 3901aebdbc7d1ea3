"""``docs/scaling.md``: the cost model, every figure of it computed from ``benches/results/scaling.json``.

The text is ``scaling.md.in``, with a field for each figure.
"""

from pathlib import Path
from typing import Any

from benches.runner.results import SuiteResults

# What the text reckons with.
ENTITIES = 1e9
EXECUTORS = 1_000
CONNECTIONS = 1_024
WINDOW = 65_536
IDS = 0xFFFF_FFFC
# ext4 makes an inode for every 16 KiB of the disk unless told otherwise.
INODE_BYTES = 16 << 10
TEXT = Path(__file__).with_name("scaling.md.in")


def render(results: SuiteResults) -> str:
    """The page."""
    values = {record.name: record.ours.median for record in results.results}
    return TEXT.read_text().format(
        date=results.date,
        commit=results.commit,
        cpu=results.machine["cpu"],
        cores=results.machine["cores"],
        busy=_busy(results.machine),
        executors=EXECUTORS,
        connections=CONNECTIONS,
        window=WINDOW,
        ids_all=IDS,
        inode_kib=INODE_BYTES >> 10,
        **_core(values),
        **_ends(values),
        **_whole(values),
    )


def _busy(machine: dict[str, Any]) -> str:
    """A warning where the machine had more to do than it has cores."""
    load, cores = machine["load_before"], machine["cores"]
    if load <= cores:
        return ""
    return (
        f"\n**The machine was busy: its load before the run was {load:g}, with {cores} cores.** Times of CPU and of "
        "disk are several\ntimes those of an idle machine, differ between lines for that reason alone, and what is "
        "reckoned from them is too\nmuch. Bytes, counts and limits are not affected.\n"
    )


def _core(values: dict[str, float]) -> dict[str, object]:
    rows = [name.removesuffix(", sender") for name in values if name.startswith("core, ") and name.endswith(", sender")]
    fleet = next(name for name in rows if "sessions at once" in name)
    kept = [value for name, value in values.items() if name.startswith("core, heap kept")]
    both = values[f"{fleet}, sender"] + values[f"{fleet}, receiver"]
    return {
        "core_rows": "\n".join(
            f"| {name.removeprefix('core, ')} | {values[f'{name}, sender']:,.0f} | {values[f'{name}, receiver']:,.0f} |"
            for name in rows
        ),
        "fleet_entities": fleet.split(", ")[-1].split()[0],
        "whole_hours": both * ENTITIES / 1e9 / 3600,
        "kept": f"{kept[0]:,.0f}",
        "kept_most": f"{kept[-1]:,.0f}",
        "ids": values["IDs walked"],
        "id_ns": values["IDs, assigned and resolved"],
        "announce": values["wire, announce"],
        "status": values["wire, status"],
        "header": values["wire, header"],
        "doc_announce": values["wire, documents, announce"],
        "doc_status": values["wire, documents, status"],
        "doc_header": values["wire, documents, header"],
        "manifest_bytes": values["manifest, 0 children"],
        "child_bytes": (values["manifest, 1,000 children"] - values["manifest, 0 children"]) / 1000,
        "manifest_mib": values["manifest, 0 children"] * values["manifest, refuses at"] / (1 << 20),
        "open_bytes": _open(values),
    }


def _open(values: dict[str, float]) -> float:
    return next(value for name, value in values.items() if name.endswith(" open entities"))


def _ends(values: dict[str, float]) -> dict[str, object]:
    """Two sizes give what an entity costs and what a byte does."""
    small, large = 1 << 10, 4 << 20

    def line(side: str) -> tuple[float, float]:
        few, many = values[f"ends, 1 KiB, {side}"], values[f"ends, 4 MiB, {side}"]
        slope = (many - few) / (large - small)
        return few - slope * small, slope * 1000

    (sender_us, sender_ns), (sink_us, sink_ns) = line("sender"), line("sink")
    return {
        "sender_us": sender_us,
        "sender_ns": sender_ns,
        "sink_us": sink_us,
        "sink_ns": sink_ns,
        "even_kib": sink_us * 1000 / sink_ns / 1024,
        "hash_ns": values["SHA-256"],
        "line": values["ends, 1 KiB, entities.jsonl"],
        "inodes": values["ends, 1 KiB, files and folders"],
        "fsync_us": values["disk, a file made durable by itself"],
        "batch_us": values["disk, a file of a batch"],
        "batch_rate": 1e6 / values["disk, a file of a batch"],
        "session_kib": values["sink, an open session, memory"],
        "session_files": values["sink, an open session, file descriptors"],
        "handshake_ms": values["sink, an open session, handshake and one entity"],
    }


def _whole(values: dict[str, float]) -> dict[str, object]:
    sink, sender = values["ends, 1 KiB, sink"], values["ends, 1 KiB, sender"]
    small_window = 4_096
    # A sink keeps its own half of an open entity.
    full = EXECUTORS * _open(values) / 2 / (1 << 30)
    return {
        "sink_hours": sink * ENTITIES / 1e6 / 3600,
        "sink_cores_hour": max(1.0, sink * ENTITIES / 1e6 / 3600),
        "sender_seconds": sender * ENTITIES / EXECUTORS / 1e6,
        "session_ids": ENTITIES / EXECUTORS,
        "session_share": ENTITIES / EXECUTORS / IDS * 100,
        "one_share": ENTITIES / IDS * 100,
        "idle_mib": values["sink, an open session, memory"] * EXECUTORS / 1024,
        "full_gib": full * WINDOW,
        "files": values["sink, an open session, file descriptors"] * EXECUTORS,
        "log_gib": values["ends, 1 KiB, entities.jsonl"] * ENTITIES / (1 << 30),
        "inodes_all": values["ends, 1 KiB, files and folders"] * ENTITIES,
        "disk_tib": values["ends, 1 KiB, files and folders"] * ENTITIES * INODE_BYTES / (1 << 40),
        "disk_hours": values["disk, a file of a batch"] * ENTITIES / 1e6 / 3600,
        "per_tib": (1 << 40) / INODE_BYTES,
        "sinks_two": -(-EXECUTORS * 2 // 512),
        "small_window": small_window,
        "small_gib": full * small_window,
    }
