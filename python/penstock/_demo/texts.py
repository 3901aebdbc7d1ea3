"""The demo's worker of vgi: makes texts of contents.

Spark's workers never read a part's text: `vgi_map` hands their batches, in shared memory, to a process that could as
well be of another interpreter, with other libraries, or on a GPU.
"""

from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa

from penstock.documents import PART_SCHEMA, Limits, dehydrate
from penstock.vgi import AnnotatedBatch, CallContext, ExchangeState, Level, OutputCollector, Stream, run_server

__all__ = ["Texts", "TextsImpl"]

_LEAF = Limits(max_depth=0)
_READ = ["document", "path", "type", "status", "text", "content"]


@dataclass
class Read(ExchangeState):
    """Reads the texts of a batch of rows, which come back with ``text`` instead of ``content``."""

    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002
        """Give the rows with their texts."""
        rows = input.batch
        texts = [_text(row) for row in rows.select(_READ).to_pylist()]
        ctx.client_log(Level.DEBUG, f"{sum(text is not None for text in texts)} texts of {len(texts)} parts")
        given = {"text": pa.array(texts, pa.string()), "content": pa.nulls(len(texts), pa.binary())}
        out.emit_arrays([given.get(name, rows[name]) for name in rows.schema.names])


def _text(row: dict[str, Any]) -> str | None:
    content = row["content"]
    # Parts of mails have theirs, for only the mail's header says their charset.
    if row["text"] is not None or row["status"] != "COMPLETE" or content is None:
        return cast("str | None", row["text"])
    part = next(dehydrate(row["path"][-1] if row["path"] else row["document"], content, limits=_LEAF))
    if part.type == row["type"]:
        return part.text
    # What it is was told where it lay: a page of a PDF is text even if it looks like a mail.
    return str(content, "utf-8", "replace") if row["type"] == "text/plain" else None


class Texts(Protocol):
    """What the worker does."""

    def read(self) -> Stream[Read]:
        """Read the texts of parts."""


class TextsImpl:
    """The worker."""

    def read(self) -> Stream[Read]:
        """Take rows of parts, and give the same."""
        return Stream(output_schema=PART_SCHEMA, state=Read(), input_schema=PART_SCHEMA)


if __name__ == "__main__":
    run_server(Texts, TextsImpl())
