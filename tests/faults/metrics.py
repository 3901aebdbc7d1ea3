"""What a server that was started with --metrics says of itself."""

import re
from urllib.request import urlopen

from ..conformance.pipestream.programs import Serve

__all__ = ["metric"]


def metric(serve: Serve, series: str) -> int:
    """The value of a counter or gauge now."""
    where = re.search(r"metrics at (http://\S+/metrics)", serve.errors.read_text("utf-8"))
    assert where, serve.complaint()
    with urlopen(where[1], timeout=30) as page:  # noqa: S310 - our own server's
        lines = dict(line.rsplit(" ", 1) for line in page.read().decode().splitlines())
    return int(lines[series])
