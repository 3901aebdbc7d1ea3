"""Runs blocks of docs/cluster.md, and tells what came of them in a line of JSON: composites, and where tasks ran."""

import dataclasses
import json
import os
import sys


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
    names = {"FINGERPRINT": options["fingerprint"]}
    for block in options["blocks"]:
        exec(block, names)  # noqa: S102 - the page's own code
    spark = names["spark"]
    rows = names["composites"].select("document", "parts", "status", "content_root").collect()
    ran = spark.range(8).repartition(4).mapInArrow(places(options["hidden"]), "place string").collect()
    workers = names["check_workers"](spark, tasks=8)
    told = {
        "rows": [row.asDict() for row in rows],
        "places": [json.loads(row.place) for row in ran],
        "workers": [dataclasses.asdict(worker) for worker in workers],
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
