"""OpenTelemetry: a span and two metrics for each call. Needs the extra ``penstock[otel]``."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.vgi.rpc._common import AuthContext, CallStatistics, HookToken
from penstock.vgi.rpc._server import RpcServer
from penstock.vgi.rpc._types import RpcMethodInfo

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["OtelConfig", "instrument_server"]


@dataclass(frozen=True)
class OtelConfig:
    """What is told, and to whom.

    ```python
    >>> from penstock.vgi import OtelConfig
    >>> OtelConfig(custom_attributes={"deployment": "blue"}).enable_metrics
    True

    ```
    """

    tracer_provider: "TracerProvider | None" = None
    """Who gets spans; the global one unless given."""
    meter_provider: "MeterProvider | None" = None
    """Who gets metrics; the global one unless given."""
    enable_tracing: bool = True
    enable_metrics: bool = True
    record_exceptions: bool = True
    """Whether a span has the exception of its call."""
    custom_attributes: Mapping[str, str] = field(default_factory=dict)
    """What every span and metric says besides."""
    claim_attributes: Mapping[str, str] = field(default_factory=dict)
    """Which claims of the caller a span has: the claim, and the attribute's name."""


def instrument_server(server: RpcServer, config: OtelConfig | None = None) -> RpcServer:
    """Let every call of a server be a span, below that of its caller; gives the server back."""
    server.hooks.append(_Hook(server, config or OtelConfig()))
    return server


class _Hook:
    def __init__(self, server: RpcServer, config: OtelConfig) -> None:
        from opentelemetry import metrics, trace

        self._server, self._config = server, config
        self._tracer = trace.get_tracer("penstock.vgi", tracer_provider=config.tracer_provider)
        meter = metrics.get_meter("penstock.vgi", meter_provider=config.meter_provider)
        self._requests = meter.create_counter("rpc.server.requests", description="Calls")
        self._duration = meter.create_histogram("rpc.server.duration", unit="s", description="Time of calls")

    def on_dispatch_start(self, info: RpcMethodInfo, auth: AuthContext, metadata: Mapping[str, Any]) -> HookToken:
        from opentelemetry import context, propagate, trace

        attributes = self._attributes(info)
        if not self._config.enable_tracing:
            return HookToken((None, None, attributes, time.monotonic()))
        said = {claim: auth.claims[claim] for claim in self._config.claim_attributes if claim in auth.claims}
        carrier = {key: _text(metadata[key]) for key in ("traceparent", "tracestate") if key in metadata}
        span = self._tracer.start_span(
            f"vgi_rpc/{info.name}",
            context=propagate.extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes=attributes
            | {"rpc.vgi_rpc.server_id": self._server.server_id, "enduser.id": auth.principal or ""}
            | {self._config.claim_attributes[claim]: str(value) for claim, value in said.items()},
        )
        return HookToken((span, context.attach(trace.set_span_in_context(span)), attributes, time.monotonic()))

    def _attributes(self, info: RpcMethodInfo) -> dict[str, str]:
        return {
            "rpc.system": "vgi_rpc",
            "rpc.service": self._server.protocol_name,
            "rpc.method": info.name,
            "rpc.vgi_rpc.method_type": info.method_type.value,
            **self._config.custom_attributes,
        }

    def on_dispatch_end(
        self,
        token: HookToken,
        info: RpcMethodInfo,  # noqa: ARG002
        error: BaseException | None,
        stats: CallStatistics,
    ) -> None:
        from opentelemetry import context, trace

        given: Any = token
        span, attached, attributes, began = given
        if span is not None:
            span.set_attributes({f"rpc.vgi_rpc.{name}": value for name, value in vars(stats).items()})
            if error is not None:
                span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
                if self._config.record_exceptions:
                    span.record_exception(error)
            span.end()
            context.detach(attached)
        if self._config.enable_metrics:
            said = {**attributes, "status": "ok" if error is None else "error"}
            self._requests.add(1, said)
            self._duration.record(time.monotonic() - began, said)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
