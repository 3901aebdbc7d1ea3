"""What a query's checkpoint says of a source: how far the last micro-batch read that was committed."""

import json
from pathlib import Path
from typing import Any

from pyarrow import fs

from penstock._places import is_uri, local_path

__all__ = ["committed_offsets"]


def committed_offsets(checkpoint: str) -> list[dict[str, Any]]:
    """Give the offsets of all sources of the last batch that Spark has written into the log of commits.

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
    # The version of the log, what the batch was run with, and a line for each source.
    found = []
    for line in lines[2:]:
        try:
            offset = json.loads(line)
        except ValueError:
            continue
        if isinstance(offset, dict):
            found.append(offset)
    return found
