"""What a client of Spark Connect does whose job nobody wants any more, while its rows come slowly."""

import json
import sys
import threading
import time
from pathlib import Path

from penstock.errors import PimpError
from penstock.pimp import Buffer, Job
from penstock.spark import register, stop_when_cancelled


def slowly(begun: str):
    """A step that passes rows on in hours, and leaves a mark when the first has come."""

    def step(batches):
        for batch in batches:
            for at in range(batch.num_rows):
                yield batch.slice(at, 1)
                Path(begun).touch()
                time.sleep(1)

    return step


def main(options: dict) -> None:
    names: dict = {}
    for block in options["blocks"]:
        exec(block, names)  # noqa: S102 - the page's own code
    spark = names["spark"]
    register(spark)
    begun = Path(options["marks"]) / "rows"
    with Buffer(behind_proxy=True) as buffer:
        job = Job.create(buffer.url)

        def consume() -> None:
            while not begun.exists():
                time.sleep(0.05)
            job.cancel()

        threading.Thread(target=consume, daemon=True).start()
        rows = spark.range(0, 100_000, 1, 2).mapInArrow(slowly(str(begun)), "id long")
        told = {}
        try:
            with stop_when_cancelled(spark, job):
                rows.write.format("pimp").option("key", job.key).mode("append").save(job.url)
        except PimpError as error:
            told = {"code": error.code, "cause": type(error.__cause__).__name__}
        told |= {"state": job.status().state, "tags": sorted(spark.getTags())}
        # The session goes on.
        with stop_when_cancelled(spark, Job.create(buffer.url)):
            told["rows"] = spark.range(5).count()
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
