"""The execution of calls over HTTP: authentication, methods, and stream states in tokens."""

import io
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock import _core
from penstock.vgi.http._auth import Request
from penstock.vgi.http._gate import Gate
from penstock.vgi.log import Message
from penstock.vgi.metadata import encode_metadata
from penstock.vgi.rpc._batches import AnnotatedBatch, OutputCollector
from penstock.vgi.rpc._calls import Invocation, annotated, as_bytes, fail, step
from penstock.vgi.rpc._common import AuthContext, MethodType
from penstock.vgi.rpc._server import RpcServer, result_states
from penstock.vgi.rpc._types import ExchangeState, StreamState
from penstock.vgi.utils import deserialize_record_batch, empty_batch, serialize_record_batch

if TYPE_CHECKING:
    from penstock.vgi.external import UploadUrlProvider

__all__ = ["HttpCalls"]

_log = logging.getLogger("vgi_rpc.http")

_METHOD = "penstock.method"
"""The metadata key of a token's method; the token is valid for no other method."""
_CLASS = "penstock.state"
"""The metadata key of the state's class; a method may have several."""


def _microseconds(when: datetime) -> int:
    """Return a time in microseconds since 1970, for the core; a time without a zone is UTC."""
    known = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    return round(known.timestamp() * 1_000_000)


def _request(call: "_core.VgiHttpCall") -> Request:
    return Request(call.http_method, call.path, call.query, call.headers, call.remote)


class HttpCalls:
    """The handler of calls over HTTP. Any number of threads may use it."""

    def __init__(
        self,
        server: RpcServer,
        gate: Gate,
        response_seconds: float | None,
        uploads: "UploadUrlProvider | None" = None,
    ) -> None:
        self._server = server
        self._gate = gate
        self._uploads = uploads
        self._seconds = response_seconds
        self._states: Mapping[str, tuple[type[StreamState], ...]] = {
            name: result_states(getattr(server.implementation, name))
            for name, info in server.methods.items()
            if info.method_type is MethodType.STREAM
        }

    def handle(self, call: "_core.VgiHttpCall") -> None:
        """Answer a request of the core's server, or authenticate its caller; it then returns with its body."""
        auth: AuthContext | None = call.auth
        if auth is None:
            auth = self.admit(call)
            if auth is None or call.admit(auth):
                return
        self.answer(call, auth)

    def admit(self, call: "_core.VgiHttpCall") -> AuthContext | None:
        """Return the caller, from the head of the request alone; None if the request has been answered."""
        return None if call.done else self._gate.let_in(call, _request(call))

    def answer(self, call: "_core.VgiHttpCall", auth: AuthContext) -> None:
        """Answer a request whose body has been received; the call holds the answer."""
        if call.done:
            return
        call.authenticated((auth.domain or "", auth.principal or "") if auth.authenticated else None)
        if call.done:
            return
        if call.kind == "upload_url":
            self._upload_urls(call)
        else:
            self._dispatch(call, _request(call), auth)

    def _upload_urls(self, call: "_core.VgiHttpCall") -> None:
        """Answer with URLs to which the caller may upload requests that are too large."""
        assert self._uploads is not None  # noqa: S101 -- otherwise the core knows no such method
        try:
            made = [self._uploads.generate_upload_url(pa.schema([])) for _ in range(call.urls)]
            call.reply_urls([(each.upload_url, each.download_url, _microseconds(each.expires_at)) for each in made])
        except Exception as error:  # noqa: BLE001 -- every exception of the user's provider goes to the caller
            _log.exception("no upload URLs could be created")
            if not call.done:
                fail(call, "method", error)

    def _dispatch(self, call: "_core.VgiHttpCall", request: Request, auth: AuthContext) -> None:
        transport = {"remote_addr": request.remote_addr, "user_agent": request.user_agent or ""}
        # The trace context of a proxy or another client; the one in the batch itself takes precedence.
        traced = {name: request.get_header(name) for name in ("traceparent", "tracestate")}
        transport |= {name: value for name, value in traced.items() if value}
        invocation = Invocation(self._server, call, auth, transport)
        if invocation.ctx is not None:
            invocation.ctx._cookies = request.cookies
        try:
            if call.kind == "unary":
                self._unary(call, invocation)
            elif call.kind == "init":
                self._init(call, invocation)
            else:
                self._exchange(call, invocation)
        except Exception as error:  # noqa: BLE001 -- an internal error must be answered too
            _log.exception("a call could not be answered: %s", call.path)
            if not call.done:
                invocation.failed("method", error)
        finally:
            invocation.done()

    @staticmethod
    def _unary(call: "_core.VgiHttpCall", invocation: Invocation) -> None:
        cookies: list[str] = []
        if invocation.ctx is not None:
            invocation.ctx.set_cookie_headers = cookies

        def add_cookies() -> None:
            # They precede the answer, and are known only after the method has run.
            while cookies:
                call.add_header("Set-Cookie", cookies.pop(0))

        invocation.before_answer = add_cookies
        invocation.unary()

    def _init(self, call: "_core.VgiHttpCall", invocation: Invocation) -> None:
        stream = invocation.open()
        if stream is None:
            return
        output, given = stream.output_schema, stream.input_schema
        producer = self._is_producer(call.method, invocation, given)
        try:
            state = None if producer else self._pack(call.method, stream.state)
        except Exception as error:  # noqa: BLE001 -- a state that does not fit into a token is an error of the method
            invocation.failed("method", error)
            return
        call.open(output, given, invocation.header(stream), producer)
        if producer:
            self._produce(call, invocation, stream.state, output, AnnotatedBatch(empty_batch(given)))
        else:
            call.finish(state)

    def _exchange(self, call: "_core.VgiHttpCall", invocation: Invocation) -> None:
        method = call.method
        try:
            state = self._unpack(method, call.state)
            state.rehydrate(self._server.implementation)
        except Exception as error:  # noqa: BLE001 -- a token of another method, or of another version of the service
            invocation.failed("params", error)
            return
        output, given = call.output_schema, call.input_schema
        producer = self._is_producer(method, invocation, given)
        if call.cancelled:
            self._cancel(invocation, state)
            call.open(output, given, None, producer)
            call.finish()
            return
        item = annotated(*call.input())
        call.open(output, given, None, producer)
        if producer:
            self._produce(call, invocation, state, output, item)
            return
        out = OutputCollector(output, producer_mode=False)
        try:
            self._step(call, invocation, state, item, out)
            left = self._pack(method, state)
        except Exception as error:  # noqa: BLE001 -- every exception of a method goes to its caller
            invocation.failed("method", error)
            return
        call.finish(left)

    def _produce(
        self,
        call: "_core.VgiHttpCall",
        invocation: Invocation,
        state: StreamState,
        output: pa.Schema,
        item: AnnotatedBatch,
    ) -> None:
        """Run a producer until the answer is full; the state in the token continues with the rest."""
        end = None if self._seconds is None else time.monotonic() + self._seconds
        total, left = 0, None
        try:
            while True:
                out = OutputCollector(output, prior_data_bytes=total)
                self._step(call, invocation, state, item, out)
                if out.finished:
                    break
                total = out.total_data_bytes
                if not call.room() or (end is not None and time.monotonic() >= end):
                    left = self._pack(call.method, state)
                    break
        except Exception as error:  # noqa: BLE001 -- every exception of a method goes to its caller
            invocation.failed("method", error)
            return
        call.finish(left)

    @staticmethod
    def _step(
        call: "_core.VgiHttpCall",
        invocation: Invocation,
        state: StreamState,
        item: AnnotatedBatch,
        out: OutputCollector,
    ) -> None:
        assert invocation.ctx is not None  # noqa: S101 -- every stream has one
        failed = True
        try:
            step(state, item, out, invocation.ctx)
            failed = False
        finally:
            for entry in out.entries:
                if isinstance(entry, Message):
                    call.log(entry.level.value, entry.message, entry.extra_json())
                elif not failed:
                    call.emit(entry.batch, as_bytes(entry.custom_metadata))
        if invocation.watch is not None:
            invocation.watch.stepped(item, out)

    @staticmethod
    def _cancel(invocation: Invocation, state: StreamState) -> None:
        assert invocation.ctx is not None  # noqa: S101 -- every stream has one
        invocation.ctx.emit_client_log = lambda _message: None
        try:
            state.on_cancel(invocation.ctx)
        except Exception as error:  # noqa: BLE001 -- the caller has gone
            invocation.ctx.logger.warning("on_cancel failed: %s", error)

    def _is_producer(self, method: str, invocation: Invocation, given: pa.Schema) -> bool:
        if len(given) or invocation.values.info.is_exchange:
            return False
        return not any(issubclass(each, ExchangeState) for each in self._states[method])

    def _pack(self, method: str, state: StreamState) -> bytes:
        """Serialize a state for a token; raise TypeError unless the method's annotation names its class."""
        classes = self._states[method]
        if type(state) not in classes:
            named = ", ".join(each.__name__ for each in classes) or "none"
            raise TypeError(
                f"{method}() has a state of class {type(state).__name__}, and its return annotation names {named}: "
                "over HTTP the implementation's annotation must name the class, as in -> Stream[Class]"
            )
        sink = io.BytesIO()
        serialize_record_batch(
            sink, state._to_batch(), encode_metadata({_METHOD: method, _CLASS: type(state).__name__})
        )
        return sink.getvalue()

    def _unpack(self, method: str, data: bytes) -> StreamState:
        """Parse the state of a token, whose signature has been verified."""
        batch, metadata = deserialize_record_batch(data)
        said = dict(metadata or {})
        if said.get(_METHOD.encode()) == method.encode():
            for each in self._states[method]:
                if each.__name__.encode() == said.get(_CLASS.encode()):
                    return each.deserialize_from_batch(batch)
        raise RuntimeError(f"the state token is not one of {method}()")
