"""List the documents in a folder, in the same way for the command line and for Spark.

Nothing in the folder is left out silently. Entries that cannot be read (a broken link, a folder without permission, a
FIFO) are listed too: the sender finds the reason, and the document is FAILED with it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.documents import document_name

__all__ = ["list_documents"]


def list_documents(path: str) -> Iterator[tuple[str, str]]:
    """Yield the name and path of each file below a folder, in order of name; any other path is a document itself.

    Links to files are followed. Links to folders are neither followed nor documents: the folder is either listed
    anyway or outside of ``path``, and a cycle would never end.
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
        # A link to itself, or through a folder without permission.
        return False
