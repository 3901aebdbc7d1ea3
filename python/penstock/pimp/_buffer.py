"""Buffers: what keeps jobs between those who write and those who read them."""

from penstock import _core
from penstock._listening import Listening
from penstock.pimp._options import Limits, PathLike, serve_options

__all__ = ["Buffer"]


class Buffer(Listening):
    """A buffer in this process, which listens as soon as it is made. As a context manager it closes at the end.

    Args:
        listen: ``HOST:PORT``; port 0 picks a free one.
        store: Where jobs are kept: a folder, ``memory:``, or ``redis://HOST:PORT/DB``. What was answered with 201 is on
            disk there, unless it is memory.
        behind_proxy: Speak plain HTTP, on loopback only: something in front of it speaks TLS. By default it is HTTPS.
        cert: The certificate (PEM), with ``key``; without, one for localhost is made once and kept.
        key: Its private key (PEM).
        client_ca: A PEM file: clients show a certificate that it has signed.
        jwt_secret: Keys may be JWTs (HS256) signed with it; they make their job with its first write (decision 1).
        allow_origin: The origin whose pages may ask, or ``*``. By default none.
        limits: How large jobs may be, and how long they live.
        max_connections: Connections at once; others wait in the system. Where the system has fewer descriptors the
            buffer takes fewer, and says so in the log.
        max_connections_per_address: Connections of one address beyond these are closed at once, an IPv6 address
            standing for its /64; by default seven eighths of ``max_connections``, or 64 where that is more.
        metrics: ``HOST:PORT`` of ``/metrics`` for Prometheus and ``/healthz``, over HTTP. By default nowhere.
        state_dir: For development certificates; by default the state folder of the command line.

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
        """Open the store and begin to listen; the class says what the arguments are.

        Raises:
            PimpError: Of kind "io" for an address or a file, "misuse" for options that do not fit.
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
        """``https://HOST:PORT``: what `Job.create` takes."""
        return f"{self._scheme}://{self.address}"

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of its certificate, ``sha256:HEX``; None without TLS."""
        return self._fingerprint
