"""The page of benchmarks says what the results say, and a missed bar says why."""

import pytest
from benches.__main__ import RESULTS, names, pages
from benches.runner import against
from benches.runner.page import read_all


@pytest.fixture(scope="module")
def results():
    return read_all(RESULTS)


def test_the_pages_are_those_of_the_results(results, saw):
    made = pages()
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name} is not that of benches/results: python -m benches --page"
    saw(len(results), "suites with results", at_least=3)
    saw(len(made), "pages", at_least=3)


def test_results_come_from_suites_in_full_size(results, saw):
    for suite in results:
        assert suite.suite in [*names(), against.NAME], f"benches/results has {suite.suite}.json, which no suite writes"
        assert not suite.quick, f"benches/results/{suite.suite}.json is from a quick run"
        assert suite.results, f"benches/results/{suite.suite}.json has no figures"
    saw(sum(len(suite.results) for suite in results), "figures", at_least=1)


def test_missed_bars_say_why(results, saw):
    barred = [record for suite in results for record in suite.results if record.bar]
    for record in barred:
        assert record.met == record.bar.is_met(record.ratio if record.peer else record.ours.median)
        assert record.met or record.note, f"{record.suite}: {record.name} misses its bar and does not say why"
    saw(len(barred), "bars", at_least=1)
