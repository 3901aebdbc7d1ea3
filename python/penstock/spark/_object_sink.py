"""The server that a task runs itself if the sink is a URI."""

import tempfile
from collections.abc import Mapping

from penstock._places import Place
from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import CompletionPolicy, Limits, Server, Session

__all__ = ["ObjectSink"]


class ObjectSink:
    """A server in the task's process that listens on loopback and writes into the object store.

    A task thus uses a store like any other sink, with end-to-end checksums, statuses and digests.
    """

    def __init__(
        self,
        uri: str,
        storage: Mapping[str, str],
        policy: CompletionPolicy | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Start to listen; raise ``SparkError`` if the store does not answer. ``limits`` apply to both ends."""
        self._uri = uri
        self._storage = storage
        self._policy = policy
        self._limits = limits
        # The state is temporary, because no other process connects to this server or needs its certificate.
        self._state = tempfile.TemporaryDirectory(prefix="penstock-")
        try:
            self._server = Server(sink=uri, storage=storage, state_dir=self._state.name, limits=limits)
        except PipeStreamError as error:
            self._state.cleanup()
            raise SparkError(str(error), error.kind) from error

    def connect(self) -> Session:
        """Open a session with the server."""
        try:
            server = self._server
            session = Session.connect(
                server.address, fingerprint=server.fingerprint, policy=self._policy, limits=self._limits
            )
            # No other process can connect to this server, so its entities have no URI of this protocol.
            session._authority = None
        except PipeStreamError as error:
            self.stop()
            raise SparkError(f"no session with the sink {self._uri}: {error}", error.kind) from error
        return session

    def finish(self, session: str | None) -> None:
        """Wait until all data is in the store; raise ``SparkError`` if the list of ``session`` is incomplete there."""
        from pyarrow.fs import FileType

        self._server.close()
        if session is None:
            return
        try:
            found = (Place.open(self._uri, self._storage) / session / "entities.jsonl").info()
        except OSError as error:
            raise SparkError(f"the sink {self._uri} does not answer: {error}", "io") from error
        if found.type != FileType.File:
            why = "its list could not be closed; the log says why"
            raise SparkError(f"the session {session} in {self._uri}: {why}")

    def stop(self) -> None:
        """Stop listening immediately, unless `finish` has closed the server, and remove its state."""
        self._server.close(grace=0)
        self._state.cleanup()
