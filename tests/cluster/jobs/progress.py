"""What a client of Spark Connect sees of a job, and of a streaming query, while they run."""

import io
import json
import queue
import sys
import threading
import time
from pathlib import Path

from rich.console import Console

from penstock.spark import ProgressListener, progress


def held(mark: str):
    """A step whose last partition waits until the client has seen that the others have ended."""

    def step(batches):
        from pyspark import TaskContext

        yield from batches
        deadline = time.monotonic() + 120
        while TaskContext.get().partitionId() == 3 and not Path(mark).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody has made {mark}")
            time.sleep(0.05)

    return step


def watch(spark, mark: Path) -> dict:
    shown, during = io.StringIO(), []
    spark.conf.set("spark.connect.progress.reportInterval", "100ms")
    with progress(spark, name="rows", console=Console(file=shown)) as seen:

        def let_go() -> None:
            while seen.done < 3:
                time.sleep(0.05)
            during.extend([seen.tasks, seen.done])
            mark.touch()

        threading.Thread(target=let_go, daemon=True).start()
        rows = spark.range(0, 1000, 1, 4).mapInArrow(held(str(mark)), "id long").count()
    told = {"rows": rows, "during": during, "tasks": seen.tasks, "lines": shown.getvalue().splitlines()}
    # What runs after the block is not counted.
    spark.range(0, 1000, 1, 4).mapInArrow(held(str(mark)), "id long").count()
    return {**told, "after": seen.tasks}


def listen(spark, folder: Path) -> list:
    batches: queue.SimpleQueue = queue.SimpleQueue()
    inbox = folder / "inbox"
    inbox.mkdir()
    (inbox / "lines.txt").write_text("a\nb\nc\n")
    listener = ProgressListener(batches.put)
    spark.streams.addListener(listener)
    stream = spark.readStream.text(str(inbox)).writeStream.format("noop").queryName("lines")
    query = stream.option("checkpointLocation", str(folder / "state")).trigger(availableNow=True).start()
    query.awaitTermination(120)
    ended = listener.wait(60)
    spark.streams.removeListener(listener)
    batch = batches.get_nowait()
    return [ended, batch.name, batch.query == str(query.id), batch.batch, batch.rows]


def main(options: dict) -> None:
    names: dict = {}
    for block in options["blocks"]:
        exec(block, names)  # noqa: S102 - the page's own code
    spark = names["spark"]
    folder = Path(options["marks"])
    told = {**watch(spark, folder / "seen"), "batch": listen(spark, folder)}
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
