"""Workers are forked, used again, or not: a session is never one that another process opened."""

import pytest

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("reuse", ["true", "false"])
def test_workers_are_forked_and_used_again(start_spark, rows_of, sink, corpus, tmp_path, reuse, differences):
    # Spark's default is not set: so the session of the other files serves here too.
    settings = {} if reuse == "true" else {"spark.python.worker.reuse": reuse}
    with start_spark("local[2]", **settings) as spark:
        assert spark.sparkContext.getConf().get("spark.python.worker.reuse", "true") == reuse
        counts = {rows_of(spark, sink, corpus, tmp_path / str(turn)).count() for turn in range(3)}
    assert len(counts) == 1
    assert differences(tmp_path / "2", tmp_path / "sink") == []


FORKING = """
import os, sys
import pyarrow as pa
from penstock.spark import dehydrate

def run(name):
    apart = dehydrate(sys.argv[1], fingerprint=sys.argv[2])
    batches = apart(iter([pa.record_batch({"path": [sys.argv[3]]})]))
    print(name, sum(batch.num_rows for batch in batches), flush=True)

run("before")
child = os.fork()
run("child" if child == 0 else "parent")
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_process_that_sent_documents_may_fork_and_both_send_more(run_python, sink, corpus):
    printed = run_python(FORKING, sink.address, sink.fingerprint, str(corpus / "nested.zip"))
    lines = dict(line.split() for line in printed.splitlines())
    assert set(lines) == {"before", "child", "parent"}
    assert len(set(lines.values())) == 1
