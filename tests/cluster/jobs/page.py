"""Runs blocks of docs/cluster.md, and tells what came of them in a line of JSON: composites, and where tasks ran."""

import dataclasses
import json
import os
import sys

import rows


def places(spark, hidden) -> list:
    """Where tasks run, and what they see of the driver's folders."""
    ran = spark.range(8).repartition(4).mapInArrow(tell_place(hidden), "place string").collect()
    return [json.loads(row.place) for row in ran]


def tell_place(hidden):

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
    names = {"FINGERPRINT": options["fingerprint"]}
    for block in options["blocks"]:
        exec(block, names)  # noqa: S102 - the page's own code
    spark = names["spark"]
    # First: the sink has nothing else then.
    carried = rows.carry(spark, options) if "rows" in options else None
    composites = names["composites"].select("document", "parts", "status", "content_root").collect()
    told = {
        "rows": [row.asDict() for row in composites],
        "places": places(spark, options["hidden"]),
        "workers": [dataclasses.asdict(worker) for worker in names["check_workers"](spark, tasks=8)],
    }
    print(json.dumps({**told, "carried": carried}))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
