"""OpenTelemetry: a span and two metrics for each call. Requires the extra ``penstock[otel]``."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.vgi.rpc._common import AuthContext, CallStatistics, HookToken
from penstock.vgi.rpc._server import RpcServer
from penstock.vgi.rpc._types import RpcMethodInfo

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["OtelConfig", "count_refused", "instrument_server"]


@dataclass(frozen=True)
class OtelConfig:
    """The configuration of tracing and metrics.

    ```python
    >>> from penstock.vgi import OtelConfig
    >>> OtelConfig(custom_attributes={"deployment": "blue"}).enable_metrics
    True

    ```
    """

    tracer_provider: "TracerProvider | None" = None
    """The provider of the tracer; by default the global one."""
    meter_provider: "MeterProvider | None" = None
    """The provider of the meter; by default the global one."""
    enable_tracing: bool = True
    enable_metrics: bool = True
    record_exceptions: bool = True
    """Whether to record the exception of a failed call in its span."""
    custom_attributes: Mapping[str, str] = field(default_factory=dict)
    """Further attributes of every span and metric."""
    claim_attributes: Mapping[str, str] = field(default_factory=dict)
    """The claims of the caller to add to a span: from the claim to the name of the attribute."""


def instrument_server(server: RpcServer, config: OtelConfig | None = None) -> RpcServer:
    """Record a span, as a child of the caller's span, and metrics for every call of a server.

    Call this before the server starts to serve.

    Args:
        server: The server.
        config: The configuration; by default that of ``OtelConfig()``.

    Returns:
        The same server.

    Raises:
        ImportError: If OpenTelemetry is not installed; the extra ``penstock[otel]`` installs it.
    """
    server.hooks.append(_Hook(server, config or OtelConfig()))
    return server


def count_refused(server: RpcServer, config: OtelConfig) -> Callable[[str], None] | None:
    """Return the function that counts rejected callers over HTTP by error class; None without metrics.

    The counter is ``rpc.server.auth_failure``.
    """
    if not config.enable_metrics:
        return None
    counter = _meter(config).create_counter(
        "rpc.server.auth_failure", unit="{failure}", description="Number of authentication failures before RPC dispatch"
    )
    said = {"rpc.system": "vgi_rpc", "rpc.service": server.protocol_name, **config.custom_attributes}
    return lambda error_type: counter.add(1, {**said, "error.type": error_type})


def _meter(config: OtelConfig) -> Any:
    from opentelemetry import metrics

    return metrics.get_meter("vgi_rpc", meter_provider=config.meter_provider)


class _Hook:
    def __init__(self, server: RpcServer, config: OtelConfig) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise ImportError('tracing requires OpenTelemetry: pip install "penstock[otel]"') from error

        self._server, self._config = server, config
        self._tracer = trace.get_tracer("vgi_rpc", tracer_provider=config.tracer_provider)
        meter = _meter(config)
        self._requests = meter.create_counter(
            "rpc.server.requests", unit="{request}", description="Number of RPC requests handled"
        )
        self._duration = meter.create_histogram("rpc.server.duration", unit="s", description="Duration of RPC requests")

    def on_dispatch_start(self, info: RpcMethodInfo, auth: AuthContext, metadata: Mapping[str, Any]) -> HookToken:
        from opentelemetry import context, propagate, trace

        if not self._config.enable_tracing:
            return HookToken((None, None, auth.domain, time.monotonic()))
        # The trace context comes from the batch, else from the HTTP request. An empty context, because the current
        # span of this thread is not the parent.
        carrier = {key: _text(metadata[key]) for key in ("traceparent", "tracestate") if key in metadata}
        span = self._tracer.start_span(
            f"vgi_rpc/{info.name}",
            context=propagate.extract(carrier, context=context.Context()),
            kind=trace.SpanKind.SERVER,
            attributes=self._span_attributes(info, auth, metadata),
        )
        return HookToken((span, context.attach(trace.set_span_in_context(span)), auth.domain, time.monotonic()))

    def _attributes(self, info: RpcMethodInfo) -> dict[str, str]:
        return {
            "rpc.system": "vgi_rpc",
            "rpc.service": self._server.protocol_name,
            "rpc.method": info.name,
            "rpc.vgi_rpc.method_type": info.method_type.value,
        }

    def _span_attributes(self, info: RpcMethodInfo, auth: AuthContext, metadata: Mapping[str, Any]) -> dict[str, str]:
        said = {
            **self._attributes(info),
            "rpc.vgi_rpc.server_id": self._server.server_id,
            "rpc.vgi_rpc.auth.principal": auth.principal,
            "rpc.vgi_rpc.auth.domain": auth.domain,
            "rpc.vgi_rpc.auth.authenticated": str(auth.authenticated).lower(),
            "client.address": metadata.get("remote_addr"),
            "user_agent.original": metadata.get("user_agent"),
            # Claims are on spans only: callers' values would make the number of metric series unbounded.
            **{name: _claim(auth.claims.get(claim)) for claim, name in self._config.claim_attributes.items()},
            **self._config.custom_attributes,
        }
        return {key: value for key, value in said.items() if value}

    def on_dispatch_end(
        self, token: HookToken, info: RpcMethodInfo, error: BaseException | None, stats: CallStatistics
    ) -> None:
        from opentelemetry import context, trace

        given: Any = token
        span, attached, domain, began = given
        if span is not None:
            span.set_attributes({f"rpc.vgi_rpc.{name}": value for name, value in vars(stats).items()})
            if error is None:
                span.set_status(trace.StatusCode.OK)
            else:
                span.set_status(trace.StatusCode.ERROR, str(error))
                span.set_attribute("rpc.vgi_rpc.error_type", type(error).__name__)
                if self._config.record_exceptions:
                    span.record_exception(error)
            span.end()
            context.detach(attached)
        if self._config.enable_metrics:
            said = {**self._attributes(info), **self._config.custom_attributes}
            said["status"] = "ok" if error is None else "error"
            if domain:
                said["rpc.vgi_rpc.auth.domain"] = domain
            self._requests.add(1, said)
            self._duration.record(time.monotonic() - began, said)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _claim(value: Any) -> str | None:
    """Return a scalar claim as an attribute, and None for any other claim."""
    return str(value) if isinstance(value, str | int | float) else None
