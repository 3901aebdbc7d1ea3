"""Split documents and send their parts into sessions of `penstock.aio.pipestream`.

`DocumentSender` and `SentDocument` are defined here; results, limits and parts are those of `penstock.documents`.
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
    """Splits documents and sends their parts into a session. Each document is read and split in a thread.

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
        """Make a sender for ``session``.

        Arguments and errors are those of `penstock.documents.DocumentSender`, without ``privacy`` and ``by_reference``.
        """
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
        """Split one document and send it; return once its last part has been announced and handed over.

        Arguments and errors are those of `penstock.documents.DocumentSender.send`. A Python file object is read in
        another thread. If the call is cancelled, the document is still sent; use `stop` to prevent that.
        """
        named: dict[str, Any] = {"doc_id": doc_id, "owner": owner}
        return SentDocument(await asyncio.to_thread(self._sender.send, name, source, previous=previous, **named))

    def stop(self) -> None:
        """Stop sending: calls of `send` that are running raise, and no new one starts."""
        self._sender.stop()


class SentDocument:
    """A document whose parts are being sent or have arrived. :meth:`DocumentSender.send` returns it."""

    def __init__(self, sent: _sending.SentDocument) -> None:
        """Not made directly: :meth:`DocumentSender.send` returns one."""
        self._sent = sent

    def done(self) -> bool:
        """Return whether every part is terminal, so that :meth:`wait` would return immediately."""
        return self._sent.done()

    async def wait(self, timeout: float | None = None) -> DocumentResult:
        """Wait until every part is terminal, and return the result.

        The wait can be repeated after a timeout or a cancellation.

        Args:
            timeout: Seconds to wait; by default indefinitely.

        Raises:
            DocumentsError: Of kind "deadline" after the timeout.
        """
        return await asyncio.to_thread(self._sent.wait, timeout)
