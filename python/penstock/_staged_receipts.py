"""Receipts that are there only once the session that they tell of has ended well."""

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock import receipts
from penstock.documents import DocumentResult
from penstock.errors import DocumentsError

__all__ = ["StagedReceipts"]


class StagedReceipts:
    """Keeps receipts out of sight until `publish`; what was not published when the ``with`` block ends is discarded.

    A receipt of a session that was not closed with 0 could not be verified, and it would stand in the place of an
    earlier one that can.
    """

    def __init__(self, folder: Path | None) -> None:
        """Write into ``folder``, which is made if need be; without one, nothing is written.

        Raises :class:`penstock.DocumentsError` of kind "io" if the folder cannot be written: nothing was sent yet.
        """
        self._folder = folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # On the same file system as the folder, so that a receipt appears there in one step.
            self._staging = Path(tempfile.mkdtemp(prefix=".receipts-", dir=folder))
        except OSError as error:
            raise DocumentsError(f"receipts cannot be written into {folder}: {error.strerror}", "io") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._folder is not None:
            shutil.rmtree(self._staging, ignore_errors=True)

    def add(self, result: DocumentResult) -> Path | None:
        """Write a document's receipt; give the path at which it will be seen."""
        if self._folder is None:
            return None
        return self._folder / receipts.write(result, self._staging).name

    def publish(self) -> None:
        """Show the receipts, once the session is closed; earlier ones of the same documents are replaced."""
        if self._folder is not None:
            for receipt in self._staging.iterdir():
                receipt.replace(self._folder / receipt.name)
