"""Batches of Spark through a worker of vgi."""

import logging
import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.errors import SparkError
from penstock.spark import vgi_map

WORKER = ["env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", sys.executable]
WORKER.append(str(Path(__file__).resolve().parents[1] / "vgi" / "worker.py"))
VALUES = pa.schema([("value", pa.float64())])


def numbers(spark: SparkSession, *given: float):
    return spark.createDataFrame([(each,) for each in given], "value double").coalesce(1)


def test_every_batch_goes_through_the_worker(spark: SparkSession) -> None:
    frame = spark.range(0, 900, numPartitions=3).select(f.col("id").cast("double").alias("value"))
    scaled = frame.mapInArrow(vgi_map(WORKER, "scale", arguments={"factor": 2.0}), "value double")
    assert scaled.agg(f.sum("value")).first()[0] == 809_100.0


def test_an_empty_partition_starts_no_worker(spark: SparkSession) -> None:
    nobody = vgi_map(["/no/such/worker"], "scale", arguments={"factor": 2.0})
    assert numbers(spark, 1.0).where("value > 5").mapInArrow(nobody, "value double").count() == 0


def test_an_exception_of_the_method_fails_the_task(spark: SparkSession) -> None:
    scaled = numbers(spark, 13.0).mapInArrow(vgi_map(WORKER, "scale", arguments={"factor": 2.0}), "value double")
    with pytest.raises(PySparkException, match="13 is bad luck"):
        scaled.collect()


@pytest.mark.parametrize(("number", "reason"), [(13.0, "13 is bad luck"), (666.0, "TransportError")])
def test_what_fails_becomes_rows_and_the_next_batch_goes_on(spark: SparkSession, number: float, reason: str) -> None:
    made = vgi_map(WORKER, "scale", arguments={"factor": 2.0}, on_failure="row", schema=VALUES)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    try:
        rows = numbers(spark, 1.0, number, 2.0).mapInArrow(made, "value double, error string").collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [row["value"] for row in rows] == [2.0, None, 4.0]
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert reason in rows[1]["error"]


def test_a_worker_that_hangs_becomes_rows_and_holds_nobody(spark: SparkSession) -> None:
    # The time is also that of the worker's start, so it is not short.
    made = vgi_map(WORKER, "scale", arguments={"factor": 2.0}, on_failure="row", schema=VALUES, timeout=10.0)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    try:
        rows = numbers(spark, 2.0, 1_000.0).mapInArrow(made, "value double, error string").collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [row["value"] for row in rows] == [4.0, None]
    assert "within the time-out" in rows[1]["error"]


def test_a_resource_profile_goes_with_the_frame(spark: SparkSession) -> None:
    profile = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1)).build
    over = vgi_map(WORKER, "scale", arguments={"factor": 2.0}).over(
        numbers(spark, 1.0), "value double", profile=profile
    )
    # A session in one process has no other executors to run it on; its plan has the profile.
    plan = over._jdf.queryExecution().optimizedPlan().toString()
    assert f"Profile: id = {profile.id}," in plan
    assert "cpus, amount: 1.0" in plan


def test_logs_of_the_method_are_in_the_drivers_log(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.spark.vgi"):
        numbers(spark, 1.0, 2.0).mapInArrow(
            vgi_map(WORKER, "scale", arguments={"factor": 1.0}), "value double"
        ).collect()
    assert "scale: 2 values" in caplog.messages


def test_what_cannot_work_is_refused_before_a_job_starts() -> None:
    with pytest.raises(SparkError, match="a list"):
        vgi_map("worker.py", "scale")
    with pytest.raises(SparkError, match="requires the schema"):
        vgi_map(WORKER, "scale", on_failure="row")
    with pytest.raises(SparkError, match="are not str, int, float, bool or bytes"):
        vgi_map(WORKER, "scale", arguments={"factor": [1.0]})
