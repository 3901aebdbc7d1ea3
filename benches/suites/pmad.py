"""PMAD beside the C original, glibc, mimalloc and jemalloc: pairs of alloc and free.

The original is rebuilt from its published description (`peers/pmad/pmad.c`): one mapping that is divided beforehand, a
table, free lists; it catches no wrong free. Ours has all its checks. 1,000 pairs are timed at once, so p99.9 is that of
such thousands. The other allocators get the same loop of C, by LD_PRELOAD.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benches.runner import Bench, at_most
from benches.runner.machine import REPOSITORY

_SIZES = (16, 64, 256, 1024)
_LIBRARIES = {"mimalloc": "libmimalloc.so.2", "jemalloc": "libjemalloc.so.2"}
_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def run(bench: Bench) -> None:
    """Measure each size with all allocators in turn."""
    ours, original = bench.program("pmad"), _built()
    samples = str(bench.sized(20_000, 100))
    preload = {name: _library(file) for name, file in _LIBRARIES.items()}

    def c(what: str, size: int, library: str | None = None) -> Callable[[], Any]:
        env = dict(os.environ) if library is None else {**os.environ, "LD_PRELOAD": library}
        return lambda: bench.json_of(original, what, str(size), samples, env=env)

    for size in _SIZES[:1] if bench.quick else _SIZES:

        def rust(what: str, size: int = size) -> Callable[[], Any]:
            return lambda: bench.json_of(ours, what, str(size), samples)

        made = bench.interleaved(
            {
                "Pool": rust("pool"),
                "SharedPool": rust("shared"),
                "C original": c("pool", size),
                "glibc": c("malloc", size),
                **{name: c("malloc", size, library) for name, library in preload.items()},
            },
            runs=7,
        )
        for figure, name in (("p50", "p50"), ("p999", "p99.9")):
            values = {side: [float(found[figure]) for found in runs] for side, runs in made.items()}
            _record(bench, size, name, values)


def _record(bench: Bench, size: int, name: str, values: dict[str, list[float]]) -> None:
    what = f"{size} B, {name} of a pair"
    bench.record(
        what,
        "ns",
        values["Pool"],
        peer=values["C original"],
        peer_name="C original",
        ratio_of="ours/peer",
        bar=at_most(1.2 if name == "p50" else 1.0),
        missed=_MISSED.get(name),
    )
    for peer in ("glibc", *_LIBRARIES):
        bench.record(what, "ns", values["Pool"], peer=values[peer], peer_name=peer, ratio_of="ours/peer")
    bench.record(f"{what}, SharedPool", "ns", values["SharedPool"])


def _built() -> Path:
    source = REPOSITORY / "benches" / "peers" / "pmad" / "pmad.c"
    program = REPOSITORY / "target" / "pmad-original"
    program.parent.mkdir(exist_ok=True)
    # Without this the compiler leaves out malloc and free together.
    flags = ("-O3", "-march=native", "-fno-builtin", "-Wall", "-Wextra")
    subprocess.run(["cc", *flags, "-o", str(program), str(source)], check=True)
    return program


def _library(file: str) -> str:
    for folder in _FOLDERS:
        if (path := Path(folder) / file).exists():
            return str(path)
    raise RuntimeError(f"{file} is not installed: apt-get install libmimalloc2.0 libjemalloc2")


_MISSED: dict[str, str] = {
    "p50": (
        "Processes of ours come in two kinds, with the same program and arguments: 5.4 to 5.8 ns and 7.4 to 7.7 "
        "ns for a pair, six of twelve runs each; the C original had the first kind alone, 5.0 to 5.8. What tells "
        "them apart was not found; it is fixed when a process begins, so it may be where stack and heap come to "
        "lie."
    ),
    "p99.9": (
        "A thousand pairs take 5.5 µs, and the clock of the system ticks each 4 ms: one in 727 of such thousands "
        "has a tick in it, which is more than one in a thousand, so p99.9 is how long the system takes for one. "
        "Ours had 17 to 66 ns in twelve runs, the C original 17 to 62."
    ),
}
