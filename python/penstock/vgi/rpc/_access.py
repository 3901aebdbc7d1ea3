"""Observation of calls: the access log ``vgi_rpc.access``, hooks such as tracing, and the statistics for both."""

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.vgi.rpc._common import AuthContext, CallStatistics, DispatchHook, HookToken

if TYPE_CHECKING:
    from penstock.vgi.rpc._batches import AnnotatedBatch, OutputCollector
    from penstock.vgi.rpc._server import RpcServer
    from penstock.vgi.rpc._types import RpcMethodInfo

__all__ = ["Watch", "watching"]

_access = logging.getLogger("vgi_rpc.access")
_log = logging.getLogger("vgi_rpc.rpc")


def watching(
    server: "RpcServer",
    info: "RpcMethodInfo",
    call: Any,
    auth: AuthContext,
    transport: Mapping[str, Any] | None,
) -> "Watch | None":
    """Return the observer of a call; None without hooks and access log, which costs nothing."""
    if not server.hooks and not _access.isEnabledFor(logging.INFO):
        return None
    return Watch(server, info, call, auth, transport or {})


class Watch:
    """The observer of one call, which reports its statistics to the hooks and the access log at its end."""

    def __init__(
        self, server: "RpcServer", info: "RpcMethodInfo", call: Any, auth: AuthContext, transport: Mapping[str, Any]
    ) -> None:
        self.stats = CallStatistics(input_batches=1, input_rows=1, input_bytes=call.bytes_in)
        self.error: BaseException | None = None
        self._server, self._info, self._auth, self._transport = server, info, auth, transport
        self._request_id: str = call.request_id
        self._began = time.monotonic()
        self._tokens: list[tuple[DispatchHook, HookToken]] = []
        came = {key.decode("utf-8", "replace"): value for key, value in (call.metadata or {}).items()}
        for hook in server.hooks:
            try:
                self._tokens.append((hook, hook.on_dispatch_start(info, auth, {**transport, **came})))
            except Exception:  # noqa: BLE001 -- a failed hook must not fail the call
                _log.exception("a hook failed at the start of %s", info.name)

    def failed(self, error: BaseException) -> None:
        """Record that the call failed."""
        self.error = error
        self.stats.output_batches += 1

    def answered(self, value: Any) -> None:
        """Record the result of a unary method."""
        self.stats.output_batches += 1
        if self._info.has_return:
            self.stats.output_rows += 1
            self.stats.output_bytes += _size(value)

    def stepped(self, item: "AnnotatedBatch", out: "OutputCollector") -> None:
        """Record one step of a stream."""
        self.stats.record_input(item.batch)
        for each in out.batches:
            self.stats.record_output(each.batch)

    def done(self) -> None:
        """Report the call to the hooks and the access log."""
        for hook, token in self._tokens:
            try:
                hook.on_dispatch_end(token, self._info, self.error, self.stats)
            except Exception:  # noqa: BLE001 -- a failed hook must not fail the call
                _log.exception("a hook failed at the end of %s", self._info.name)
        if not _access.isEnabledFor(logging.INFO):
            return
        status = "ok" if self.error is None else "error"
        _access.info("%s.%s %s", self._server.protocol_name, self._info.name, status, extra=self._fields(status))

    def _fields(self, status: str) -> dict[str, Any]:
        return {
            "server_id": self._server.server_id,
            "protocol": self._server.protocol_name,
            "method": self._info.name,
            "method_type": self._info.method_type.value,
            "request_id": self._request_id,
            "principal": self._auth.principal or "",
            "auth_domain": self._auth.domain or "",
            "remote_addr": self._transport.get("remote_addr", ""),
            "duration_ms": round((time.monotonic() - self._began) * 1_000, 3),
            "status": status,
            "error_type": "" if self.error is None else type(self.error).__name__,
            **vars(self.stats),
        }


def _size(value: Any) -> int:
    if isinstance(value, pa.Array):
        return int(value.get_total_buffer_size())
    return len(value) if isinstance(value, str | bytes) else 8
