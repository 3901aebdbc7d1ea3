"""Tasks that fail and are tried again: once in the results, once in the receipts."""

import pytest

from penstock.spark import PART_SCHEMA

pytestmark = pytest.mark.timeout(300)


def fail_first_attempt(after_rows: bool):
    """A step behind dehydrate that fails in the first attempt of partition 0: after its last rows, or on its first."""

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        failing = context.partitionId() == 0 and context.attemptNumber() == 0
        for batch in batches:
            if failing and not after_rows:
                raise RuntimeError("the first attempt is to fail")
            yield batch
        if failing:
            raise RuntimeError("the first attempt is to fail")

    return step


@pytest.fixture(scope="module")
def retrying(start_spark):
    with start_spark("local[2,3]") as session:
        yield session


@pytest.mark.parametrize("after_rows", [True, False])
def test_a_retried_task_is_once_in_the_results(
    retrying, rows_of, sink, corpus, tmp_path, after_rows, differences, receipts_of
):
    failing = rows_of(retrying, sink, corpus).mapInArrow(fail_first_attempt(after_rows), PART_SCHEMA)
    rows = failing.select("document", "path", "depth").collect()
    documents = [row.document for row in rows if row.depth == 0]
    receipts = receipts_of(tmp_path / "receipts")
    assert sorted(documents) == sorted(receipts)
    assert len(rows) == sum(1 + len(receipt["parts"]) for receipt in receipts.values())
    assert differences(tmp_path / "receipts", tmp_path / "sink") == []
    attempts = [path for path in (tmp_path / "sink").iterdir() if path.is_dir()]
    assert len(attempts) == 3
    assert len({receipt["session"] for receipt in receipts.values()}) == 2
