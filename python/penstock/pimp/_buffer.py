"""Buffers, which keep jobs between their senders and their consumers."""

from penstock import _core
from penstock._listening import Listening
from penstock.pimp._options import Limits, PathLike, serve_options

__all__ = ["Buffer"]


class Buffer(Listening):
    """A buffer in this process, which listens as soon as it is made. As a context manager it closes at the end.

    Args:
        listen: ``HOST:PORT`` to listen on; port 0 picks a free one.
        store: The place of jobs: a folder, ``memory:``, or ``redis://HOST:PORT/DB``. A write that was answered with 201
            is on disk in a folder, and in Redis as far as its ``appendfsync`` is ``always``.
        behind_proxy: Whether to serve HTTP without TLS, on loopback only, for a proxy that has TLS. By default the
            buffer serves HTTPS.
        cert: The certificate (PEM file), with ``key``; by default one for localhost is made once and kept.
        key: The certificate's private key (PEM file).
        client_ca: A CA (PEM file) that must have signed the certificates of clients. By default clients need none.
        jwt_secret: A secret with which keys may be signed as JWTs (HS256); the first write with such a key creates its
            job. By default keys cannot be JWTs.
        allow_origin: The origin whose pages may call the buffer, or ``*``. By default none may.
        limits: The limits on the size and the life of jobs.
        max_connections: The most connections; further ones wait in the system. If the system allows fewer file
            descriptors, the buffer accepts fewer connections and logs that.
        max_connections_per_address: The most connections from one address, where an IPv6 address stands for its /64;
            further ones are closed at once. By default seven eighths of ``max_connections``, or 64 if that is more.
        metrics: ``HOST:PORT`` on which ``/metrics`` for Prometheus and ``/healthz`` are served over HTTP. By default
            they are not served.
        state_dir: The folder of the development certificate; by default the state folder of the command line.

    >>> from penstock.pimp import Job
    >>> with Buffer(behind_proxy=True) as buffer:
    ...     job = Job.create(buffer.url)
    ...     with job.sender() as sender:
    ...         sender.send("hello")
    ...     job.consumer().read()
    b'hello'
    """

    __slots__ = ("_fingerprint", "_native", "_scheme")

    _native: "_core.PimpBuffer"

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        store: PathLike = "memory:",
        behind_proxy: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        jwt_secret: bytes | None = None,
        allow_origin: str | None = None,
        limits: Limits | None = None,
        max_connections: int = 16_384,
        max_connections_per_address: int | None = None,
        metrics: str | None = None,
        state_dir: PathLike | None = None,
    ) -> None:
        """Open the store and start to listen; the class describes the arguments.

        Raises:
            PimpError: Of kind "io" if an address or a file fails, "misuse" for invalid options.
        """
        options = serve_options(
            listen,
            store=store,
            behind_proxy=behind_proxy,
            cert=cert,
            key=key,
            client_ca=client_ca,
            jwt_secret=jwt_secret,
            allow_origin=allow_origin,
            limits=limits,
            max_connections=max_connections,
            max_connections_per_address=max_connections_per_address,
            metrics=metrics,
            state_folder=state_dir,
        )
        self._native = _core.PimpBuffer(listen, options)
        self._listens()
        self._scheme = "https" if options.tls else "http"
        self._fingerprint = self._native.fingerprint()

    @property
    def url(self) -> str:
        """The buffer's URL, ``https://HOST:PORT`` (``http:`` behind a proxy), for `Job.create`."""
        return f"{self._scheme}://{self.address}"

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the buffer's certificate, ``sha256:HEX``; None without TLS."""
        return self._fingerprint
