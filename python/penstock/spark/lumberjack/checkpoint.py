"""A source's position in a query's checkpoint: how far the last committed micro-batch read."""

import json
from pathlib import Path
from typing import Any

from pyarrow import fs

from penstock._places import is_uri, local_path

__all__ = ["committed_offsets"]


def committed_offsets(checkpoint: str) -> list[dict[str, Any]]:
    """Return the offsets of all sources in the last batch that Spark recorded in its log of commits.

    >>> committed_offsets("/no/such/checkpoint")
    []

    Raises:
        OSError: The checkpoint cannot be read.
    """
    if is_uri(checkpoint):
        files, root = fs.FileSystem.from_uri(checkpoint)
    else:
        files, root = fs.LocalFileSystem(), str(Path(local_path(checkpoint)).absolute())
    selector = fs.FileSelector(f"{root}/commits", allow_not_found=True)
    names = [info.base_name for info in files.get_file_info(selector) if info.is_file]
    batches = [int(name) for name in names if name.isascii() and name.isdecimal()]
    if not batches:
        return []
    with files.open_input_stream(f"{root}/offsets/{max(batches)}") as file:
        lines = file.read().decode().splitlines()
    # The first two lines are the version of the log and the batch's metadata; one line for each source follows.
    found = []
    for line in lines[2:]:
        try:
            offset = json.loads(line)
        except ValueError:
            continue
        if isinstance(offset, dict):
            found.append(offset)
    return found
