"""Jobs in which something goes wrong. The test that runs them does the killing, and makes the file ``go`` when it has.

(What `spark-submit` runs has no stdin.)
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody does

from penstock.spark import COMPOSITE_SCHEMA, PART_SCHEMA, dehydrate, register, rehydrate


def wait_for(mark: Path) -> None:
    deadline = time.monotonic() + 120
    while not mark.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody has made {mark}")
        time.sleep(0.05)


def hold_first_attempt(folder: str):
    """A step behind dehydrate that makes the first attempt of partition 0 wait, with its receipts out, for a copy."""

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        rows = list(batches)
        mark = Path(folder, f"ended-{context.partitionId()}-{context.attemptNumber()}")
        mark.touch()
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            wait_for(Path(folder, "ended-0-1"))
        yield from rows

    return step


def fail_first_attempt(batches):
    """A step behind dehydrate that fails in the first attempt of partition 1, after all of its rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    yield from batches
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt is to fail")


def composites_of(spark: SparkSession, options: dict, step):
    documents = spark.read.format("documents").option("minPartitions", "4").load(options["documents"])
    apart = dehydrate(options["sink"], fingerprint=options["fingerprint"], receipts=options["receipts"])
    parts = documents.mapInArrow(apart, PART_SCHEMA).mapInArrow(step, PART_SCHEMA)
    parts = parts.withColumn("position", F.monotonically_increasing_id())
    return parts.groupBy("key").applyInArrow(rehydrate(order_by="position"), COMPOSITE_SCHEMA)


def tell(composites) -> None:
    rows = composites.select("document", "key", "parts", "status", "content_root").collect()
    print(json.dumps({"rows": [row.asDict() for row in rows]}), flush=True)


def main(options: dict) -> None:
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    if options["fault"] == "speculation":
        tell(composites_of(spark, options, hold_first_attempt(options["marks"])))
    else:
        # Killed while it sends; and what an executor had finished, its shuffle files too, is lost once more before
        # the composites are read.
        composites = composites_of(spark, options, fail_first_attempt).persist()
        print(f"{composites.count()} composites", flush=True)
        wait_for(Path(options["marks"], "go"))
        tell(composites)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
