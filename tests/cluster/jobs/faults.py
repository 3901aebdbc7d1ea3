"""Jobs in which something goes wrong. The test that runs them does the killing, and makes the file ``go`` when it has.

(What `spark-submit` runs has no stdin.)
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody does

from penstock.spark import COMPOSITE_SCHEMA, PART_SCHEMA, dehydrate, ingest, rehydrate


def wait_for(mark: Path) -> None:
    deadline = time.monotonic() + 120
    while not mark.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody has made {mark}")
        time.sleep(0.05)


PLANS: dict[str, dict] = {
    "task": {"plan": "task"},
    "shuffle": {"plan": "shuffle", "group_bytes": 60_000},
    "peel": {"plan": "peel", "peel_bytes": 1, "group_bytes": 60_000},
    "auto": {"plan": "auto", "peel_bytes": 1, "group_bytes": 60_000},
}
"""Every plan, with groups so small that each document is divided into some."""


def hold_first_attempt(folder: str):
    """A step behind a plan: the first attempt of partition 0 and its copy wait for each other, with receipts out."""

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        rows = list(batches)
        Path(folder).mkdir(exist_ok=True)
        Path(folder, f"ended-{context.partitionId()}-{context.attemptNumber()}").touch()
        if context.partitionId() == 0 and context.attemptNumber() < 2:
            # Whoever were first would have Spark kill the other.
            wait_for(Path(folder, f"ended-0-{1 - context.attemptNumber()}"))
        yield from rows

    return step


def fail_first_attempt(marks: str, plan: str, held: bool):
    """A step behind a plan that fails in the first attempt of partition 1, after all of its rows.

    Held, it waits before that until partition 0 has ended and an executor is lost.
    """

    def step(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        part, attempt = context.partitionId(), context.attemptNumber()
        Path(marks, f"began-{plan}-{part}-{attempt}").touch()
        yield from batches
        if part == 0:
            Path(marks, f"ended-{plan}").touch()
        if part == 1 and attempt == 0:
            if held:
                wait_for(Path(marks, f"ended-{plan}"))
                Path(marks, f"held-{plan}-{context.stageId()}").touch()
                wait_for(Path(marks, f"killed-{plan}"))
            raise RuntimeError("the first attempt is to fail")

    return step


def parts_of(spark: SparkSession, options: dict, plan: str):
    documents = spark.read.format("documents").option("minPartitions", "4").load(options["documents"])
    receipts = f"{options['receipts']}/{plan}"
    apart = dehydrate(options["sink"], fingerprint=options["fingerprint"], receipts=receipts)
    return ingest(documents, apart, **PLANS[plan])


def shuffled(parts):
    """Composites, behind a shuffle."""
    numbered = parts.withColumn("position", F.monotonically_increasing_id())
    return numbered.groupBy("key").applyInArrow(rehydrate(order_by="position"), COMPOSITE_SCHEMA)


def tell(**composites) -> None:
    told = {}
    for plan, frame in composites.items():
        rows = frame.select("document", "key", "parts", "status", "content_root").collect()
        told[plan] = [row.asDict() for row in rows]
    print(json.dumps(told), flush=True)


def speculate(spark: SparkSession, options: dict) -> None:
    plans = {}
    for plan in options["plans"]:
        step = hold_first_attempt(f"{options['marks']}/{plan}")
        plans[plan] = shuffled(parts_of(spark, options, plan).mapInArrow(step, PART_SCHEMA))
    tell(**plans)


def be_killed(spark: SparkSession, options: dict) -> None:
    """Each plan while it sends; and then what executors had finished, their shuffle files too, is lost once more."""
    plans = {}
    for plan in options["plans"]:
        step = fail_first_attempt(options["marks"], plan, plan in options.get("held", ()))
        parts = parts_of(spark, options, plan).mapInArrow(step, PART_SCHEMA)
        composites = shuffled(parts) if plan == "task" else parts.mapInArrow(rehydrate(), COMPOSITE_SCHEMA)
        plans[plan] = composites.persist()
        print(f"{plans[plan].count()} composites", flush=True)
    wait_for(Path(options["marks"], "go"))
    tell(**plans)


def main(options: dict) -> None:
    names: dict = {}
    for block in options["blocks"]:
        exec(block, names)  # noqa: S102 - the page's own code
    spark = names["spark"]
    {"speculation": speculate, "killed": be_killed}[options["fault"]](spark, options)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
