"""Rows through the sink and the source "pipestream", batch and streaming; the test that runs it kills an executor."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - as everybody does


def slowly(marks: str):
    """A step before the sink: it says that it has begun, and lets the rows of a task pass one batch at a time."""

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        Path(marks, f"began-{context.partitionId()}-{context.attemptNumber()}").touch()
        for batch in batches:
            time.sleep(0.1)
            yield batch
        # An attempt that fails when all of its rows are in the sink.
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt is to fail")

    return step


def trust(frame, options: dict):
    return frame.option("fingerprint", options["fingerprint"])


def streams(spark, options: dict) -> dict:
    """The sink is read by a stream into files, and the files are written to the sink by another one."""
    stream = trust(spark.readStream.format("pipestream"), options).load(options["sink"])
    stream = stream.select(F.col("content").cast("string").alias("content"))
    files = stream.writeStream.format("parquet").option("checkpointLocation", options["shared"] + "/files")
    files.trigger(availableNow=True).start(options["shared"] + "/rows").awaitTermination()
    rows = spark.read.parquet(options["shared"] + "/rows")
    streamed = rows.agg(F.count("content"), F.countDistinct("content")).first()

    back = spark.readStream.schema("content string").parquet(options["shared"] + "/rows").writeStream
    back = trust(back.format("pipestream"), options).option("checkpointLocation", options["shared"] + "/sink")
    back.trigger(availableNow=True).start(options["sink"]).awaitTermination()
    both = trust(spark.read.format("pipestream"), options).load(options["sink"]).count()
    return {"streamed": list(streamed), "both": both}


def carry(spark, options: dict) -> dict:
    """How many rows, and how many different ones, came through each way."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    rows = spark.range(0, options["rows"], 1, 4).select(F.concat(F.lit("row "), "id").alias("content"))
    rows = rows.mapInArrow(slowly(options["marks"]), "content string")
    trust(rows.write.format("pipestream").mode("append"), options).save(options["sink"])

    read = trust(spark.read.format("pipestream"), options).load(options["sink"])
    found = read.select(F.col("content").cast("string").alias("content"))
    told = found.agg(F.count("content"), F.countDistinct("content")).first()

    return {"batch": list(told), **streams(spark, options)}


def main(options: dict) -> None:
    names: dict = {}
    for block in options["blocks"]:
        exec(block, names)  # noqa: S102 - the page's own code
    spark = names["spark"]
    print(json.dumps(carry(spark, options)))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
