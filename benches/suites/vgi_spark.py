"""A function of Spark in a worker of vgi (`vgi_map`) against the same function as a body of `mapInArrow`.

The function doubles sixteen columns of numbers, in two tasks; a third job gives the batches back as they are, which is
what Spark itself takes. Spark's start and its first jobs are outside, workers live on. CPU time is that of the JVM, the
Python workers of Spark and the workers of vgi together.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches.runner import Bench
from benches.suites._peers import column

_WORKER = Path(__file__).with_name("_vgi_scale.py")
_GB = 1_000_000_000
_JIFFIES = os.sysconf("SC_CLK_TCK")


def run(bench: Bench) -> None:
    bench.use_extension()
    from penstock.spark import local_session, vgi_map

    settings = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    rows = bench.sized(4_000_000, 2_000)
    with local_session("benches", master="local[2]", config=settings) as spark:
        names = [f"c{number}" for number in range(16)]
        frame = spark.range(0, rows, numPartitions=2).selectExpr(*(f"id + {name[1:]}D as {name}" for name in names))
        schema = ", ".join(f"{name} double" for name in names)
        frames = {
            "vgi_map": frame.mapInArrow(vgi_map([sys.executable, str(_WORKER)], "double"), schema),
            "plain": frame.mapInArrow(_plain, schema),
            "identity": frame.mapInArrow(_identity, schema),
        }
        sums = {name: made.agg({"c3": "sum"}).collect()[0][0] for name, made in frames.items()}
        if not sums["vgi_map"] == sums["plain"] == 2 * sums["identity"]:
            raise RuntimeError(f"not the same work: {sums}")
        runs = bench.interleaved({name: _job(made) for name, made in frames.items()})
    _record(bench, runs, rows * len(names) * 8 / _GB)


def _record(bench: Bench, runs: dict[str, list[dict[str, float]]], size: float) -> None:
    for figure, unit in (("seconds", "s"), ("cpu", "s CPU")):
        of = {name: column(made, figure) for name, made in runs.items()}
        for peer, said in (("plain", "the same in mapInArrow"), ("identity", "identity in mapInArrow")):
            bench.record(
                f"vgi_map of {size:g} GB, against {said}",
                unit,
                of["vgi_map"],
                peer=of[peer],
                peer_name=said,
                ratio_of="ours/peer",
            )
            more = [(ours - other) / size for ours, other in zip(of["vgi_map"], of[peer], strict=True)]
            bench.record(f"what vgi_map takes more than {said}", f"{unit}/GB", more)


def _plain(batches: Iterator[Any]) -> Iterator[Any]:
    from benches.suites._vgi_scale import doubled

    for batch in batches:
        yield doubled(batch)


def _identity(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _job(frame: Any) -> Any:
    def measured() -> dict[str, float]:
        before = _tree_cpu()
        seconds = Bench.seconds(lambda: frame.write.format("noop").mode("overwrite").save())
        return {"seconds": seconds, "cpu": _tree_cpu() - before}

    return measured


def _tree_cpu() -> float:
    """Seconds of CPU of this process and all that descend from it."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / _JIFFIES
    return sum(seconds for process, seconds in used.items() if _descends(process, parents))


def _descends(process: int, parents: dict[int, int]) -> bool:
    while process not in (0, os.getpid()):
        process = parents.get(process, 0)
    return process == os.getpid()
