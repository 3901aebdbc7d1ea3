"""The runner of the benchmarks, and one suite from end to end in its tiny size. No figure is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benches.runner import Bench, Record, against, at_least, at_most
from benches.runner.builds import Builds
from benches.runner.page import render
from benches.runner.results import SuiteResults
from benches.suites import lumberjack
from rich.console import Console

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench():
    console = Console(quiet=True)
    return Bench("sample", quick=False, console=console, builds=Builds(console))


def results_of(bench: Bench, **changes: object) -> SuiteResults:
    machine = {"cpu": "c", "cores": 2, "memory_gib": 1, "kernel": "k", "load_before": 0, "versions": {"rustc": "1"}}
    values = {"title": "A sample", "date": "d", "commit": "c", "quick": False, "seconds": 1.0, "machine": machine}
    return SuiteResults(suite=bench.suite, results=bench.records, **(values | changes))


def test_sides_run_in_turn_after_a_warm_up(bench):
    calls = []
    sides = {"a": lambda: calls.append("a") or len(calls), "b": lambda: calls.append("b") or len(calls)}
    assert bench.interleaved(sides, runs=2) == {"a": [3, 5], "b": [4, 6]}
    assert calls == ["a", "b"] * 3


def test_a_ratio_is_the_median_of_the_ratios_of_neighbours(bench):
    record = bench.record(
        "x", "s", [1, 2, 10], peer=[3, 4, 10], peer_name="p", ratio_of="peer/ours", bar=at_least(2), missed="because"
    )
    assert (record.ratio, record.met, record.note) == (2, True, None)
    record = bench.record(
        "x", "s", [1, 2], peer=[1, 1], peer_name="p", ratio_of="ours/peer", bar=at_most(1), missed="why"
    )
    assert (record.ratio, record.met, record.note) == (1.5, False, "why")


def test_without_a_peer_the_bar_is_for_the_value(bench):
    assert bench.record("x", "MiB", [3, 5, 4], bar=at_most(4)).met
    assert not bench.record("x", "MiB", [3, 5, 4], bar=at_most(3)).met


def test_files_keep_everything_and_the_page_shows_it(bench, tmp_path):
    bench.record("fast", "s", [0.5], peer=[1.25], peer_name="p", ratio_of="peer/ours", bar=at_least(3), missed="Why.")
    bench.record("growth", "MiB", [1, 12345])
    path = results_of(bench).write(tmp_path)
    assert json.loads(path.read_text())["results"][0]["bar"] == {"at_least": 3}
    again = SuiteResults.read(path)
    assert again == results_of(bench)
    page = render([again])
    assert "| fast, s | 0.5 | p: 1.25 | 2.5 (peer/ours) | ≥ 3: **missed** |" in page
    assert "**fast**: Why." in page
    assert "0 of 1 bars are met." in page


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_suite_runs_from_end_to_end(tmp_path):
    command = [sys.executable, "-m", "benches", "--quick", "--results", str(tmp_path), "heap"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    results = SuiteResults.read(tmp_path / "heap.json")
    assert results.quick
    peers = {"priority-queue", "priority-queue, foldhash", "indexed heap, eight children a node"}
    assert {record.peer.name for record in results.results} == peers


@pytest.mark.parametrize("way", ["drop", "arrow", "typed", "spool"])
def test_the_receiver_of_the_suite_lumberjack_starts(tmp_path, way):
    """It takes every option of the receiver by name, and its errors go nowhere while the suite runs."""
    command = [sys.executable, "-c", lumberjack._RECEIVER, way, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout.readline().startswith("listening 127.0.0.1:")
        finally:
            receiver.kill()


def test_a_suite_that_does_not_exist_is_refused():
    done = subprocess.run([sys.executable, "-m", "benches", "nothing"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no such suite: nothing" in done.stdout


def test_a_line_of_two_checkouts_is_a_speed_whatever_its_unit(bench):
    def lines(name: str, unit: str, *medians: float) -> list[Record]:
        return [bench.record(name, unit, [median]) for median in medians]

    slower = against.compare("s", lines("calls", "calls/s", 9, 20, 8), lines("calls", "calls/s", 10, 10, 10), "before")
    assert (slower.name, slower.ratio, slower.ratio_of, slower.met) == ("s: calls", 0.9, "ours/peer", False)
    assert slower.note == "Slower in 2 of 3 pairs."
    less = against.compare("s", lines("memory", "MiB", 5, 4, 5), lines("memory", "MiB", 10, 2, 10), "before")
    assert (less.ratio, less.ratio_of, less.met, less.note) == (2, "peer/ours", True, None)


def test_a_line_of_two_checkouts_pairs_neighbouring_runs(bench):
    def line(ours: list[float], peer: list[float]) -> list[Record]:
        return [bench.record("calls", "calls/s", ours, peer=peer, peer_name="p", ratio_of="ours/peer")]

    # The host becomes half as fast after the first run.
    record = against.compare("s", line([90, 45, 45], [8, 4, 4]), line([100, 50, 50], [10, 5, 4]), "before")
    assert (record.ours.runs, record.ratio) == (3, 0.9)
    assert record.note == "Slower in 3 of 3 pairs. The peer of this line, the same on both sides, has 0.8."
    assert against.compare("s", line([90, 45], [1, 1]), line([90], [1]), "before").ratio == 0.75


def test_two_processes_run_in_turn(tmp_path):
    """Calls alternate as A B, B A, A B; what is outside of calls runs in the turn of its process, too."""
    log = tmp_path / "log"
    for name, calls in (("a", 3), ("b", 4)):
        runner = tmp_path / name / "benches" / "runner.py"
        runner.parent.mkdir(parents=True)
        runner.write_text(
            "class Bench:\n    def interleaved(self, sides, *, runs):\n"
            "        return [call() for _ in range(runs) for call in sides.values()]\n"
        )
        (runner.parent / "__main__.py").write_text(
            f"import sys\nfrom benches.runner import Bench\nlog = open({str(log)!r}, 'a', buffering=1)\n"
            f"print('{name} starts', *sys.argv[1:], file=log)\n"
            f"Bench().interleaved({{'s': lambda: print('{name}', file=log)}}, runs={calls})\n"
            f"print('{name} ends', file=log)\n"
        )
    against.run_in_turn({tmp_path / "a": ["x"], tmp_path / "b": ["y"]})
    calls = ["a starts x", "a", "b starts y", "b", "b", "a", "a", "a ends", "b", "b", "b ends"]
    assert log.read_text().splitlines() == calls
