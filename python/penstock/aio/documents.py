"""Documents taken apart and sent into sessions of `penstock.aio.pipestream`.

`DocumentSender` and `SentDocument` are of this module; results, limits and parts are those of `penstock.documents`.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock import _sending
from penstock.documents import DocumentResult, Limits, Source
from penstock.pipestream import CompletionPolicy, OwnershipContext

if TYPE_CHECKING:
    from penstock.aio.pipestream import Session

__all__ = ["DocumentResult", "DocumentSender", "Limits", "SentDocument"]


class DocumentSender:
    """Takes documents apart and sends their parts into a session. A document is read and taken apart in a thread.

    >>> import asyncio
    >>> from tempfile import TemporaryDirectory
    >>> from penstock import receipts
    >>> from penstock.aio.pipestream import Server, Session
    >>> async def main(folder):
    ...     async with Server(sink=folder + "/sink", state_dir=folder) as server:
    ...         async with Session.connect(server.address, fingerprint=server.fingerprint) as session:
    ...             sent = await DocumentSender(session).send("note.txt", b"A line of text.")
    ...             result = await sent.wait()
    ...     return result.status, receipts.verify(receipts.write(result, folder + "/receipts"), folder + "/sink")
    >>> with TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    ('COMPLETE', [])
    """

    def __init__(
        self,
        session: "Session",
        *,
        dehydrate: bool = True,
        limits: Limits | None = None,
        in_flight: int = 8,
        text: bool = True,
        max_content: int = 0,
        policy: CompletionPolicy | None = None,
        owner: OwnershipContext | None = None,
    ) -> None:
        """Send into ``session``; the arguments, and the error, are those of `penstock.documents.DocumentSender`."""
        self._sender = _sending.DocumentSender(
            session,
            dehydrate=dehydrate,
            limits=limits,
            in_flight=in_flight,
            text=text,
            max_content=max_content,
            policy=policy,
            owner=owner,
        )

    async def send(
        self,
        name: str,
        source: Source,
        *,
        previous: Mapping[str, Any] | None = None,
        doc_id: str | None = None,
        owner: OwnershipContext | None = None,
    ) -> "SentDocument":
        """Take one document apart and send it; return when its last part was announced and handed over.

        Arguments and errors are those of `penstock.documents.DocumentSender.send`. A file of Python's is read in the
        thread. Cancelled while it waits, the document is sent all the same: `stop` ends that.
        """
        named: dict[str, Any] = {"doc_id": doc_id, "owner": owner}
        return SentDocument(await asyncio.to_thread(self._sender.send, name, source, previous=previous, **named))

    def stop(self) -> None:
        """End what is being sent: those calls of `send` raise, and no other begins."""
        self._sender.stop()


class SentDocument:
    """A document whose parts are on their way, or there: what :meth:`DocumentSender.send` gives."""

    def __init__(self, sent: _sending.SentDocument) -> None:
        """Made by :meth:`DocumentSender.send`."""
        self._sent = sent

    def done(self) -> bool:
        """Whether every part has ended, so that :meth:`wait` would return at once."""
        return self._sent.done()

    async def wait(self, timeout: float | None = None) -> DocumentResult:
        """Wait until every part has ended, at most ``timeout`` seconds.

        Raises :class:`penstock.DocumentsError` of kind "deadline" when the time is over; wait again if you like, also
        after it was cancelled.
        """
        return await asyncio.to_thread(self._sent.wait, timeout)
