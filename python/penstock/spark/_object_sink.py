"""A task's own server, for a sink that is a URI."""

import tempfile
from collections.abc import Mapping

from penstock._places import Place
from penstock.errors import PipeStreamError, SparkError
from penstock.pipestream import CompletionPolicy, Limits, Server, Session

__all__ = ["ObjectSink"]


class ObjectSink:
    """Listens on loopback, in the task's process, and writes into the store.

    So the task speaks to a store as to any other sink: with checksums, statuses and digests from end to end.
    """

    def __init__(
        self,
        uri: str,
        storage: Mapping[str, str],
        policy: CompletionPolicy | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Begin to listen; ``SparkError`` where the store does not answer. Both ends have the ``limits``."""
        self._uri = uri
        self._storage = storage
        self._policy = policy
        self._limits = limits
        # Nobody else ever meets its certificate.
        self._state = tempfile.TemporaryDirectory(prefix="penstock-")
        try:
            self._server = Server(sink=uri, storage=storage, state_dir=self._state.name, limits=limits)
        except PipeStreamError as error:
            self._state.cleanup()
            raise SparkError(str(error), "io") from error

    def connect(self) -> Session:
        """Open a session with it."""
        try:
            server = self._server
            session = Session.connect(
                server.address, fingerprint=server.fingerprint, policy=self._policy, limits=self._limits
            )
            # Nobody reaches this server by its name: what it has written has no URI of this protocol.
            session._authority = None
        except PipeStreamError as error:
            self.stop()
            raise SparkError(f"no session with the sink {self._uri}: {error}", "io") from error
        return session

    def finish(self, session: str | None) -> None:
        """Wait until all is in the store; ``SparkError`` if the list of ``session`` does not become whole there."""
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
        """Stop listening at once; after `finish` there is nothing to be stopped."""
        self._server.close(grace=0)
        self._state.cleanup()
