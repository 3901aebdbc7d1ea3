"""Logs on a cluster: executors read what a receiver keeps, beside Spark or within the driver's own query."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark import register

SCHEMA = "n bigint, _rescue string"


def numbers(frame) -> list:
    """The events' numbers, and in whose folders the tasks ran that read them."""

    def place(batches):
        import pyarrow as pa

        folder = str(Path.cwd())
        for batch in batches:
            yield pa.record_batch({"n": batch["n"], "folder": pa.array([folder] * batch.num_rows)})

    rows = frame.mapInArrow(place, "n bigint, folder string").collect()
    return [sorted(row.n for row in rows), sorted({row.folder for row in rows})]


def logs(reader, options: dict):
    return reader.format("lumberjack").options(**options).schema(SCHEMA)


def into_files(spark: SparkSession, folder: str, options: dict):
    writer = logs(spark.readStream, options).load().writeStream.format("parquet")
    return writer.option("checkpointLocation", f"{folder}/checkpoint").option("path", f"{folder}/rows")


def found(spark: SparkSession, folder: str) -> list:
    return sorted(row.n for row in spark.read.schema(SCHEMA).parquet(f"{folder}/rows").collect())


def main(options: dict) -> None:
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    beside, shared = options["beside"], options["shared"]
    told = {"batch": numbers(logs(spark.read, {**beside, "minPartitions": "8"}).load())}
    followed = into_files(spark, f"{shared}/beside", {**beside, "maxRowsPerTrigger": "1000"})
    followed.trigger(availableNow=True).start().awaitTermination()
    told["streamed"] = found(spark, f"{shared}/beside")

    # Now the receiver is the driver's, in a folder that nobody else has. The test sends when the port is open.
    query = into_files(spark, f"{shared}/own", options["own"]).start()
    deadline = time.monotonic() + 240
    while not Path(f"{shared}/own/rows").exists() or len(told.get("own", ())) < options["events"]:
        if query.exception() or time.monotonic() > deadline:
            raise query.exception() or TimeoutError(f"only {len(told.get('own', ()))} events came")
        time.sleep(0.5)
        if Path(f"{shared}/own/rows/_spark_metadata").exists():
            told["own"] = found(spark, f"{shared}/own")
    query.stop()
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
