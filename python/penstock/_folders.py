"""What documents there are in a folder: one way to list it, for the command line and for Spark.

Nothing that is in the folder is left out in silence. What cannot be read (a broken link, a folder without permission, a
FIFO) is listed too; whoever sends it finds out why, and its document is FAILED with that reason.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.documents import document_name

__all__ = ["list_documents"]


def list_documents(path: str) -> Iterator[tuple[str, str]]:
    """Give name and path of all that is below a folder, in the order of the names; anything else is itself a document.

    Links to files are followed. Links to folders are not, and are no documents: the folder that one points to is either
    listed itself or outside of what was asked for, and a cycle would never end.
    """
    if not Path(path).is_dir():
        yield document_name(path), path
        return
    pending = [path]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            yield document_name(folder, None if folder == path else path), folder
            continue
        for entry in entries:
            if not _is_folder(entry):
                yield document_name(entry.path, path), entry.path
        pending += [entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads to itself, or through a folder without permission.
        return False
