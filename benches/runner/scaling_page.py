"""``docs/scaling.md``: the cost model, every figure of it computed from ``benches/results/scaling.json``."""

from benches.runner.results import SuiteResults

# What the text reckons with.
ENTITIES = 1e9
EXECUTORS = 1_000
CONNECTIONS = 1_024
WINDOW = 65_536
IDS = 0xFFFF_FFFC
# ext4 makes an inode for every 16 KiB of the disk unless told otherwise.
INODE_OCTETS = 16 << 10

PAGE = """\
# Scaling

What an entity and an octet cost, how far a sink goes, what breaks first, and the settings that follow. Every figure
comes from one run of the suite `scaling` ({date}, commit {commit}, {cpu}, {cores} cores), which writes this page:

```sh
make bench BENCH=scaling
```

## What was run, and what is reckoned

Run: the real state machines of both ends, with their frames and headers, under the testkit's clock, with nothing
between them: single sessions up to 10^7 entities, 1,000 sessions at once with {fleet_entities} entities; {ids:,.0f}
entity IDs assigned and resolved in groups whose cursor waits for its first, through the wrap of the ID space; 10^6 open
parents, and the refusal of the next; both ends over QUIC into a folder sink, with real files and real `fsync`.

Reckoned: everything for 10^9 entities and {executors:,} executors, by multiplying. That is allowed because the
cost of an entity does not depend on how many came before it (the table below: the same from 10^3 to 10^7, and nothing
is kept of those that are resolved), and sessions share nothing but the sink's committing thread and its disk. Not run:
the network between machines, and 10^9 entities in one go; who has the time can, it takes {whole_hours:.1f} h of CPU here:
`cargo run --release -p penstock-bench --bin scaling fleet 1000 1000000`.

## Cost of an entity in the core

| | sender, ns | receiver, ns |
|---|---|---|
{core_rows}

{kept} octets are on the heap after 10^3 entities, {kept_most} after 10^7: queues and the Merkle tree's last leaves. Checking IDs
through the whole circle costs {id_ns:.3g} ns an ID.

| on the wire, octets an entity | root scope | documents of 10 parts |
|---|---|---|
| announced (PENDING, barriers) | {announce:.3g} | {doc_announce:.3g} |
| answered (statuses, cursor, digests) | {status:.3g} | {doc_status:.3g} |
| header of its stream | {header:.3g} | {doc_header:.3g} |

## Cost of an entity and of an octet, end to end

From rows in memory to durable files, TLS, QUIC and SHA-256 at both ends included:

| CPU | an entity | an octet |
|---|---|---|
| sender (Python, an entity a call) | {sender_us:.3g} µs | {sender_ns:.3g} ns |
| sink | {sink_us:.3g} µs | {sink_ns:.3g} ns |

Of an octet's cost SHA-256 is {hash_ns:.2g} ns at each end. An entity of 1 KiB leaves {line:.0f} octets in `entities.jsonl` and
{inodes:.3g} inodes. A file made durable by itself takes {fsync_us:,.0f} µs, in a batch {batch_us:,.0f} µs: the sink commits in
batches, so it goes at the pace of the second as soon as the first would hold it back.

An open session costs a sink {session_kib:.0f} KiB, {session_files:.1f} file descriptors, and {handshake_ms:.2g} ms of CPU for its handshake. An open
(announced, unresolved) entity costs {open_octets:.0f} octets at both ends together, an open parent
{manifest_octets:.0f} octets in the manifest and {child_octets:.2g} for each child.

## 10^9 entities from {executors:,} executors

| one sink, entities of 1 KiB | |
|---|---|
| CPU of the sink | {sink_hours:.1f} core hours: {sink_cores_hour:.0f} cores for one hour |
| CPU of each executor | {sender_seconds:.0f} s |
| IDs of each session | {session_ids:,.0f}, {session_share:.2g} % of a circle; the IDs of one session of 10^9: {one_share:.0f} % |
| memory of the sessions, idle | {idle_mib:.0f} MiB |
| memory of the sessions, each with a full window | {full_gib:.1f} GiB in the core |
| file descriptors | {files:,.0f} |
| `entities.jsonl`, all sessions | {log_gib:.0f} GiB |
| inodes | {inodes_all:.2g}; a disk of {disk_tib:.0f} TiB has as many by default |
| durable in batches, on this disk | {disk_hours:.1f} h |

## What breaks first

In the order in which a growing job meets them:

1. **Connections.** A sink takes {connections:,} sessions at once (each running task has one), and refuses the next. From 512 on
   a client must show its address first, which costs a round trip.
2. **File descriptors.** {session_files:.1f} a session and one for each large payload that is being received: the usual limit of
   1,024 is reached before the limit of connections.
3. **Inodes.** Every entity is a file. At {inode_kib} KiB an inode, a disk of entities below that size runs out of
   inodes before it runs out of octets: 1 TiB takes {per_tib:.2g} entities.
4. **The rate of commits.** A sink has one committing thread; on this disk it makes {batch_rate:,.0f} files a second durable in
   batches.
5. **Memory of windows.** A window is per scope and session: {executors:,} sessions with {window:,} open entities each are
   {full_gib:.1f} GiB. It happens only while the disk is far behind.
6. **The manifest.** 1,000,000 open parents of an endpoint, {manifest_mib:.0f} MiB; the next one is refused with WINDOW_EXCEEDED. A sender with
   `in_flight` documents on their way has as many parents open as that, so it never comes near.
7. **Scopes.** 65,535 IDs, half of them for each end, used again once a document is complete: a limit for documents that are on
   their way, not for those that have passed.
8. **Entity IDs.** {ids_all:,} for each scope, used again behind the cursor: no limit at all; the window must only stay
   below half of the circle.

## Settings that follow

| | |
|---|---|
| sinks | (executors x tasks at once for each) / 512, one at least: {sinks_two} for {executors:,} executors with two tasks each; and as many as the CPU above asks for. Addresses are dealt out to tasks by partition number |
| disks | one sink for each disk (or object store): the committing thread and the disk's `fsync` belong to one sink |
| folders | one for each sink and job. Small entities: a file system with more inodes (`mkfs.ext4 -T small`, XFS), or an object URI |
| `ulimit -n` of a sink | 4 x sessions, 8,192 at least |
| `--window` | 65,536 for up to 100 sessions a sink; {small_window:,} for 1,000, which bounds the core's memory to {small_gib:.2f} GiB |
| `in_flight` | 8 (the default) keeps a task busy; more only where documents are small and the sink is far away |
| partitions | (documents x mean size) / 128 MiB, two for each core at least: a session costs {handshake_ms:.2g} ms, so a task of a second or more does not feel it |
| size of parts | parts below {even_kib:.0f} KiB cost more as entities than as octets: that much of a sink's CPU is spent on either there |
"""


def render(results: SuiteResults) -> str:
    """The page."""
    values = {record.name: record.ours.median for record in results.results}
    return PAGE.format(
        date=results.date,
        commit=results.commit,
        cpu=results.machine["cpu"],
        cores=results.machine["cores"],
        executors=EXECUTORS,
        connections=CONNECTIONS,
        window=WINDOW,
        ids_all=IDS,
        inode_kib=INODE_OCTETS >> 10,
        **_core(values),
        **_ends(values),
        **_whole(values),
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
        "manifest_octets": values["manifest, 0 children"],
        "child_octets": (values["manifest, 1,000 children"] - values["manifest, 0 children"]) / 1000,
        "manifest_mib": values["manifest, 0 children"] * values["manifest, refuses at"] / (1 << 20),
        "open_octets": _open(values),
    }


def _open(values: dict[str, float]) -> float:
    return next(value for name, value in values.items() if name.endswith(" open entities"))


def _ends(values: dict[str, float]) -> dict[str, object]:
    """Two sizes give what an entity costs and what an octet does."""
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
        "disk_tib": values["ends, 1 KiB, files and folders"] * ENTITIES * INODE_OCTETS / (1 << 40),
        "disk_hours": values["disk, a file of a batch"] * ENTITIES / 1e6 / 3600,
        "per_tib": (1 << 40) / INODE_OCTETS,
        "sinks_two": -(-EXECUTORS * 2 // 512),
        "small_window": small_window,
        "small_gib": full * small_window,
    }
