"""The demo's vgi worker, which extracts text from the contents of parts.

Spark's workers never read a part's text: `vgi_map` passes their batches through shared memory to another process, which
could use another interpreter, other libraries or a GPU.
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
    """Reads the texts of a batch of rows, and returns the rows with ``text`` instead of ``content``."""

    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002
        """Return the rows with their texts."""
        rows = input.batch
        texts = [_text(row) for row in rows.select(_READ).to_pylist()]
        ctx.client_log(Level.DEBUG, f"{sum(text is not None for text in texts)} texts of {len(texts)} parts")
        given = {"text": pa.array(texts, pa.string()), "content": pa.nulls(len(texts), pa.binary())}
        out.emit_arrays([given.get(name, rows[name]) for name in rows.schema.names])


def _text(row: dict[str, Any]) -> str | None:
    content = row["content"]
    # Parts of mails already have their text, because only the mail's header has their charset.
    if row["text"] is not None or row["status"] != "COMPLETE" or content is None:
        return cast("str | None", row["text"])
    part = next(dehydrate(row["path"][-1] if row["path"] else row["document"], content, limits=_LEAF))
    if part.type == row["type"]:
        return part.text
    # The type is known from the container: a page of a PDF is text even if its content looks like a mail.
    return str(content, "utf-8", "replace") if row["type"] == "text/plain" else None


class Texts(Protocol):
    """The methods of the worker."""

    def read(self) -> Stream[Read]:
        """Read the texts of parts."""


class TextsImpl:
    """The implementation of the worker."""

    def read(self) -> Stream[Read]:
        """Return a stream that receives rows of parts and returns them with their texts."""
        return Stream(output_schema=PART_SCHEMA, state=Read(), input_schema=PART_SCHEMA)


if __name__ == "__main__":
    run_server(Texts, TextsImpl())
