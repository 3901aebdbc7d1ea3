"""Publish the demo's composites as jobs that a browser shows as they arrive, with one job that lists them."""

import json
import time
import webbrowser
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.dataset as ds
from rich.console import Console

from penstock.errors import PimpError
from penstock.pimp import Buffer, Job

__all__ = ["Published", "show_published"]

_THREADS = 4
# A composite has the text of the whole document; a job holds at most 50 MiB.
_MOST = 40 << 20
# With more documents the list would be too long to be useful.
_DOCUMENTS = 2_000
# A little less than the lifetime of jobs.
_SHOWN_SECONDS = 290.0


class Published:
    """A buffer in this process with a job for each document, for as long as the ``with`` block lasts."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._buffer = Buffer(store=store, behind_proxy=True)
        self.problems: list[str] = []
        """The documents that could not be published, or were not read back as they were written."""
        self.documents = 0
        """The number of documents that were published and read back."""
        self.left_out = 0
        """The number of documents that are not listed: those beyond a limit, or with a problem."""
        self.link: str | None = None
        """The URL of the page with the list of documents, with a link for each."""

    def publish(self, composites: Path, advance: Callable[[int], None]) -> None:
        """Write a job for each composite, read each back as a browser would, and write the list."""
        lines: list[str] = []
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-publish") as pool:
            rows = _rows(composites)
            for line in pool.map(self._one, islice(rows, _DOCUMENTS)):
                if line is None:
                    self.left_out += 1
                else:
                    lines.append(line)
                    self.documents += 1
                advance(self.documents)
            self.left_out += sum(1 for _ in rows)
        job = Job.create(self._buffer.url)
        with job.sender(content_type="application/x-ndjson", encoding="identity") as sender:
            sender.send(sorted(lines))
        self.link = job.page_url

    def _one(self, row: dict[str, Any]) -> str | None:
        text = json.dumps(row, ensure_ascii=False, default=str)
        if len(text) > _MOST or len(text.encode()) > _MOST:
            return None
        job = Job.create(self._buffer.url)
        try:
            with job.sender(content_type="application/json", meta={"document": row["document"]}) as sender:
                sender.send(text)
            found = job.consumer().read()
        except PimpError as error:
            self.problems.append(f"{row['document']} was not published: {error}")
            return None
        if found != text.encode():
            self.problems.append(f"{row['document']} was published, but its content differs")
            return None
        told = {name: row[name] for name in ("document", "status", "parts", "failed")}
        return json.dumps(told | {"link": job.page_url}, ensure_ascii=False) + "\n"

    @property
    def command(self) -> str:
        """The command that serves the jobs again at the same address."""
        return f"penstock pimp serve --listen {self._buffer.address} --store {self._store} --behind-proxy"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._buffer.close(grace=1.0)


def show_published(console: Console, published: Published, *, opens: bool) -> None:
    """Print the link; if ``opens``, show it in a browser until Ctrl-C or the end of the jobs' lifetime."""
    more = f", {published.left_out:,} omitted" if published.left_out else ""
    console.print(f"\nPublished: {published.documents:,} composites{more}. The list:")
    console.print(published.link, soft_wrap=True, markup=False, highlight=False)
    if not (opens and console.is_terminal and webbrowser.open(published.link or "")):
        console.print(
            f"To serve it for five minutes: {published.command}", soft_wrap=True, markup=False, highlight=False
        )
        return
    console.print("It is served for five minutes; Ctrl-C ends it.")
    with suppress(KeyboardInterrupt):
        time.sleep(_SHOWN_SECONDS)


def _rows(composites: Path) -> Iterator[dict[str, Any]]:
    for batch in ds.dataset(composites, format="parquet").to_batches(batch_size=16):
        yield from batch.to_pylist()
