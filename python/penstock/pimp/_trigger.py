"""Triggers, which start a sender when a consumer requests a job (section 6)."""

import hmac
import http
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

from penstock import _core
from penstock._listening import Listening
from penstock.errors import PimpError
from penstock.pimp._job import Job
from penstock.pimp._options import PathLike, TriggerOptions, trigger_options
from penstock.pimp._sender import Sender, check_sender

__all__ = ["Answer", "Gate", "Requested", "Trigger", "TriggerServer", "accepted", "answer_by_asgi", "asked_by_asgi"]

_log = logging.getLogger("penstock.pimp")

_REMEMBERED = 10_000
"""The number of started jobs that are remembered, so that a repeated request does not start a job again."""


_UNREACHED = frozenset({"NOT_FOUND", "STALLED", "UNEXPECTED_STATUS", "IO"})
"""The codes of failures that the consumer could not be told of: the job may be requested again."""


@dataclass(frozen=True, slots=True)
class Requested:
    """The job that a consumer has requested, and the payload of its request."""

    job: Job
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The HTTP response to a request."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


def _answer(status: int, fields: Mapping[str, object], *headers: tuple[str, str]) -> Answer:
    return Answer(status, json.dumps(fields).encode(), (("Content-Type", "application/json"), *headers))


class Gate:
    """A check of requests: the token, the size, the host of the writeUrl, and the number of jobs."""

    def __init__(
        self,
        kind: type[Job],
        *,
        allowed_hosts: Sequence[str],
        token: str | None,
        max_body: int,
        queue: int,
        reach: Mapping[str, Any],
    ) -> None:
        """Make a gate with the limits of a trigger; ``kind`` is the class of its jobs."""
        if isinstance(allowed_hosts, str):
            raise PimpError("allowed_hosts must be a list of hosts", "misuse", "MISUSE")
        self.max_body = max_body
        self._kind = kind
        self._hosts = list(allowed_hosts)
        self._token = token
        self._queue = queue
        self._reach = dict(reach)
        self._lock = threading.Lock()
        self._waiting = 0
        self._begun: OrderedDict[str, None] = OrderedDict()

    def check(self, method: str, content_type: str, authorization: str, body: bytes) -> Requested | Answer:
        """Return what is requested, or the response that rejects it; call `ended` later for a returned request."""
        if method != "POST":
            return _answer(405, {"error": "method not allowed", "code": "METHOD_NOT_ALLOWED"}, ("Allow", "POST"))
        if self._token is not None and not _is_bearer(authorization, self._token):
            refusal = {"error": "missing or invalid token", "code": "UNAUTHORIZED"}
            return _answer(401, refusal, ("WWW-Authenticate", "Bearer"))
        if len(body) > self.max_body:
            return self.too_large()
        essence = content_type.partition(";")[0].strip().lower()
        if essence not in {"", "application/json"}:
            return _answer(415, {"error": "Content-Type is not JSON", "code": "UNSUPPORTED_MEDIA_TYPE"})
        try:
            requested = self.read(body)
        except PimpError as error:
            # A writeUrl that is not allowed is a misuse, which here is the requester's fault: 403.
            status = 403 if error.kind == "misuse" else 400
            return _answer(status, {"error": str(error), "code": "FORBIDDEN" if status == 403 else error.code})
        return self._admit(requested)

    def too_large(self) -> Answer:
        """Return the response to a body that is too large."""
        return _answer(413, {"error": f"the body has more than {self.max_body} bytes", "code": "TOO_LARGE"})

    def read(self, body: bytes) -> Requested:
        """Parse a request, and check that its writeUrl is allowed.

        Raises:
            PimpError: Of kind "misuse" if the writeUrl is not allowed, "malformed" if the request is invalid.
        """
        job_id, write_url, write_key, payload = _core.pimp_trigger(body, self._hosts)
        job = self._kind(write_url, key=write_key, allowed_hosts=self._hosts, **self._reach)
        if job.id != job_id:
            raise PimpError("writeUrl and jobId are of different jobs", "malformed", "MALFORMED")
        try:
            return Requested(job, json.loads(payload))
        except (ValueError, RecursionError) as error:
            # Python parses neither integers of thousands of digits nor a thousand levels of nesting.
            raise PimpError(f"payload cannot be read: {error}", "malformed", "MALFORMED") from None

    def _admit(self, requested: Requested) -> Requested | Answer:
        job = requested.job.id
        with self._lock:
            if job in self._begun:
                return accepted(job)
            if self._waiting >= self._queue:
                refusal = {"error": "too many jobs are waiting", "code": "UNAVAILABLE"}
                return _answer(503, refusal, ("Retry-After", "1"))
            self._waiting += 1
            self._begun[job] = None
            while len(self._begun) > _REMEMBERED:
                self._begun.popitem(last=False)
        return requested

    def ended(self, job_id: str, error: BaseException | None = None) -> None:
        """Record that a job has ended, to make room for another; one that never reached its buffer may be repeated."""
        with self._lock:
            self._waiting -= 1
            if isinstance(error, PimpError) and error.code in _UNREACHED:
                self._begun.pop(job_id, None)


def _is_bearer(authorization: str, token: str) -> bool:
    scheme, _, given = authorization.strip().partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def accepted(job_id: str) -> Answer:
    """Return the response that accepts a job."""
    return _answer(202, {"jobId": job_id})


class Trigger:
    """An endpoint for trigger requests, which answers 202 at once and then runs a function that writes the job.

    It is a WSGI application; the method `asgi` is an ASGI application. The function gets a `Sender` and the payload of
    the request. The job is finished when the function returns, and fails with the exception that the function raises.
    If the consumer cancels the job, the function's next ``send`` raises.

    Args:
        run: The function, which runs in a thread of a pool.
        allowed_hosts: The hosts to which chunks may be sent, ``HOST`` or ``HOST:PORT``, because the writeUrl comes from
            the requester.
        token: The bearer token that requests must have. By default they need none.
        workers: The most jobs that run at once.
        queue: The most jobs that run or wait; further requests are answered with 503.
        max_body: The most bytes of a request; by default 1 MiB.
        sender: Options of `Sender`, such as ``content_type``.
        reach: The buffers to trust, as for `Job`.

    >>> from penstock.pimp import Buffer, Job
    >>> def run(sender, payload):
    ...     sender.send(f"page {payload['page']}")
    >>> with Buffer(behind_proxy=True) as buffer, Trigger(run, allowed_hosts=["127.0.0.1"]) as trigger:
    ...     job = Job.create(buffer.url)
    ...     answer = trigger.handle("POST", job.request({"page": 7}))
    ...     print(answer.status, job.consumer().read())
    202 b'page 7'
    """

    __slots__ = ("_gate", "_lock", "_pool", "_run", "_sender", "_workers")

    def __init__(
        self,
        run: Callable[[Sender, Any], object],
        *,
        allowed_hosts: Sequence[str],
        token: str | None = None,
        workers: int = 8,
        queue: int = 64,
        max_body: int = 1 << 20,
        sender: Mapping[str, Any] | None = None,
        **reach: Any,
    ) -> None:
        """Make a trigger; the class describes the arguments. The first job starts the threads.

        Raises:
            PimpError: Of kind "misuse" for invalid options.
            TypeError: For an unknown option in ``sender`` or ``reach``.
        """
        self._run = run
        self._sender = dict(sender or {})
        # Check the options here, because an error in a worker thread reaches no caller.
        check_sender(self._sender)
        Job("https://buffer.example/", **reach)
        self._workers = workers
        self._gate = Gate(Job, allowed_hosts=allowed_hosts, token=token, max_body=max_body, queue=queue, reach=reach)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def handle(
        self, method: str, body: bytes, content_type: str = "application/json", authorization: str = ""
    ) -> Answer:
        """Return the response to a request of any HTTP server; the job runs in a thread."""
        found = self._gate.check(method, content_type, authorization, body)
        if isinstance(found, Answer):
            return found
        # Servers may call this from several threads, and all jobs share the one pool that `workers` limits.
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="penstock-trigger")
            self._pool.submit(self._work, found)
        return accepted(found.job.id)

    def run(self, request: bytes | Mapping[str, object]) -> None:
        """Run a job in this thread and return when it has ended, for cloud functions whose event is the request.

        Args:
            request: The body of a trigger request, as bytes or as the parsed object.

        Raises:
            PimpError: If the request is malformed or its writeUrl is not allowed; or the error that ended the job, such
                as CANCELLED.
        """
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        self._make(self._gate.read(body))

    def _make(self, requested: Requested) -> None:
        with requested.job.sender(**self._sender) as sender:
            self._run(sender, requested.payload)

    def _work(self, requested: Requested) -> None:
        job, failure = requested.job.id, None
        try:
            self._make(requested)
        except PimpError as error:
            failure = error
            _log.warning("job %s: %s: %s", job, error.code, error)
        except Exception:  # noqa: BLE001 - the function's own: the consumer was told
            _log.exception("job %s failed", job)
        finally:
            self._gate.ended(job, failure)

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a WSGI request."""
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
        except ValueError:
            length = 0
        if length < 0:
            answer = _answer(400, {"error": "Content-Length is below 0", "code": "MALFORMED"})
        elif length > self._gate.max_body:
            answer = self._gate.too_large()
        else:
            answer = self.handle(
                environ["REQUEST_METHOD"],
                environ["wsgi.input"].read(length),
                content_type=environ.get("CONTENT_TYPE") or "",
                authorization=environ.get("HTTP_AUTHORIZATION") or "",
            )
        status = f"{answer.status} {http.HTTPStatus(answer.status).phrase}"
        start_response(status, [*answer.headers, ("Content-Length", str(len(answer.body)))])
        return [answer.body]

    async def asgi(self, scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Answer an ASGI request."""
        if (asked := await asked_by_asgi(self._gate, scope, receive, send)) is not None:
            await answer_by_asgi(send, asked if isinstance(asked, Answer) else self.handle(*asked))

    def serve(
        self,
        listen: str = "127.0.0.1:0",
        *,
        behind_proxy: bool = False,
        cert: PathLike | None = None,
        key: PathLike | None = None,
        client_ca: PathLike | None = None,
        state_dir: PathLike | None = None,
    ) -> "TriggerServer":
        """Start a server that answers requests; the arguments are those of `penstock.pimp.Buffer`.

        Raises:
            PimpError: Of kind "io" if an address or a file fails, "misuse" for invalid options.
        """
        options = trigger_options(
            listen,
            behind_proxy=behind_proxy,
            cert=cert,
            key=key,
            client_ca=client_ca,
            state_folder=state_dir,
            max_body=self._gate.max_body,
        )
        return TriggerServer(self, listen, options)

    def close(self) -> None:
        """Wait until the running and waiting jobs have ended."""
        while True:
            with self._lock:
                pool, self._pool = self._pool, None
            if pool is None:
                return
            pool.shutdown()

    def __enter__(self) -> Self:
        """Return the trigger itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait until the running and waiting jobs have ended."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """Not picklable: it has threads."""
        raise TypeError("a Trigger has threads and cannot be pickled")


class TriggerServer(Listening):
    """A server of trigger requests, made by `Trigger.serve`. As a context manager it closes at the end.

    >>> from penstock.pimp import Buffer, Job
    >>> def run(sender, payload):
    ...     sender.send("hello")
    >>> with Buffer(behind_proxy=True) as buffer, Trigger(run, allowed_hosts=["127.0.0.1"]) as trigger:
    ...     with trigger.serve(behind_proxy=True) as server:
    ...         job = Job.create(buffer.url)
    ...         job.trigger(server.url, {})
    ...         job.consumer().read()
    b'hello'
    """

    __slots__ = ("_fingerprint", "_native", "_scheme", "_thread")

    _native: "_core.PimpTriggerServer"

    def __init__(self, trigger: Trigger, listen: str, options: TriggerOptions) -> None:
        """Start to listen."""
        self._native = _core.PimpTriggerServer(listen, options)
        self._listens()
        self._fingerprint = self._native.fingerprint()
        self._scheme = "https" if options.tls else "http"
        self._thread = threading.Thread(
            target=_answer_all, args=(self._native, trigger), name="penstock-trigger-server", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL to which consumers send requests."""
        return f"{self._scheme}://{self.address}/"

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the server's certificate, ``sha256:HEX``; None without TLS."""
        return self._fingerprint

    def close(self, grace: float = 10.0) -> None:
        """Accept no more requests, and wait up to ``grace`` seconds for those that are being answered.

        Jobs continue; `Trigger.close` waits for them.
        """
        self._native.close(grace)
        self._thread.join()


def _answer_all(native: "_core.PimpTriggerServer", trigger: Trigger) -> None:
    while (asked := native.next_request()) is not None:
        try:
            answer = trigger.handle(*asked.request())
        except Exception:  # noqa: BLE001 - one request must not end the others
            _log.exception("a request could not be handled")
            answer = _answer(500, {"error": "the trigger has failed", "code": "FAILED"})
        asked.answer(answer.status, list(answer.headers), answer.body)


_Asked = tuple[str, bytes, str, str]


async def asked_by_asgi(
    gate: Gate, scope: Mapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]
) -> "_Asked | Answer | None":
    """Return method, body, type and authorization of an ASGI request, or its rejection; None without a request."""
    if scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return None
    if scope["type"] != "http":
        raise PimpError(f"a trigger speaks HTTP, not {scope['type']}", "misuse", "MISUSE")
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > gate.max_body:
            return gate.too_large()
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return scope["method"], bytes(body), headers.get(b"content-type", ""), headers.get(b"authorization", "")


async def answer_by_asgi(send: Callable[..., Any], answer: Answer) -> None:
    """Send the response to an ASGI request."""
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
