"""The job of docs/cluster.md: documents, a shuffle, composites; on a cluster, or through Spark Connect.

It prints a line of JSON: the composites, and where the tasks ran.
"""

import dataclasses
import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody does

from penstock.spark import COMPOSITE_SCHEMA, PART_SCHEMA, check_workers, dehydrate, register, rehydrate


def connect(url: str, archive: str) -> SparkSession:
    """A session of a Connect server, which is sent the environment of the executors."""
    session = SparkSession.builder.remote(url).getOrCreate()
    session.addArtifact(f"{archive}#environment", archive=True)
    session.conf.set("spark.sql.execution.pyspark.python", "environment/bin/python")
    return session


def places(hidden):
    """A function for mapInArrow that tells where it runs, and what it sees of the driver's folders."""

    def place(batches):
        import pyarrow as pa

        import penstock

        for _ in batches:
            pass
        seen = [path for path in hidden if os.path.exists(path) and os.listdir(path)]  # noqa: PTH110, PTH208
        found = {"python": sys.executable, "penstock": penstock.__file__, "folder": os.getcwd(), "seen": seen}  # noqa: PTH109
        yield pa.record_batch({"place": [json.dumps(found)]})

    return place


def main(options: dict) -> None:
    if "remote" in options:
        spark = connect(options["remote"], options["archive"])
    else:
        spark = SparkSession.builder.getOrCreate()
    register(spark)
    documents = spark.read.format("documents").option("minPartitions", "4").load(options["documents"])
    apart = dehydrate(options["sink"], fingerprint=options["fingerprint"], receipts=options["receipts"])
    parts = documents.mapInArrow(apart, PART_SCHEMA).withColumn("position", F.monotonically_increasing_id())
    composites = parts.groupBy("key").applyInArrow(rehydrate(order_by="position"), COMPOSITE_SCHEMA)
    rows = composites.select("document", "parts", "status", "content_root").collect()
    ran = spark.range(8).repartition(4).mapInArrow(places(options["hidden"]), "place string").collect()
    workers = [dataclasses.asdict(worker) for worker in check_workers(spark, tasks=8)]
    told = {
        "rows": [row.asDict() for row in rows],
        "places": [json.loads(row.place) for row in ran],
        "workers": workers,
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
