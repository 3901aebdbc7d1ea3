"""Calls as spans and metrics."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from worker import Service, ServiceImpl

from penstock.vgi import (
    AuthContext,
    OtelConfig,
    RpcConnection,
    RpcError,
    RpcServer,
    http_connect,
    instrument_server,
    make_pipe_pair,
    make_sync_client,
)
from penstock.vgi.http import bearer_authenticate_static

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def metrics() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def tracers(spans: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture
def served(tracers: TracerProvider, metrics: InMemoryMetricReader) -> Callable[[], AbstractContextManager[Service]]:
    """A server whose spans have all ended when the block has."""

    @contextmanager
    def serve() -> Iterator[Service]:
        config = OtelConfig(
            tracer_provider=tracers, meter_provider=MeterProvider([metrics]), custom_attributes={"deployment": "blue"}
        )
        server = instrument_server(RpcServer(Service, ServiceImpl()), config)
        ours, theirs = make_pipe_pair()
        thread = threading.Thread(target=server.serve, args=(theirs,))
        thread.start()
        with RpcConnection(Service, ours) as proxy:
            yield proxy
        ours.close()
        thread.join()

    return serve


def test_a_call_is_a_span_below_that_of_its_caller(
    served: Callable[[], AbstractContextManager[Service]], spans: InMemorySpanExporter, tracers: TracerProvider
) -> None:
    with served() as service, trace.get_tracer("test", tracer_provider=tracers).start_as_current_span("me") as caller:
        service.add(a=1.0)
    span = next(each for each in spans.get_finished_spans() if each.name == "vgi_rpc/add")
    assert span.parent is not None
    assert span.parent.span_id == caller.get_span_context().span_id
    assert span.attributes is not None
    assert span.attributes["rpc.service"] == "Service"
    assert span.attributes["deployment"] == "blue"
    assert span.attributes["rpc.vgi_rpc.output_batches"] == 1


def test_an_error_is_on_its_span_and_in_the_metrics(
    served: Callable[[], AbstractContextManager[Service]], spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    with served() as service:
        with pytest.raises(RpcError):
            service.boom(text="boom")
        list(service.count(n=1))
    found = {each.name: each for each in spans.get_finished_spans()}
    assert not found["vgi_rpc/boom"].status.is_ok
    assert found["vgi_rpc/boom"].events[0].name == "exception"
    data = metrics.get_metrics_data()
    assert data is not None
    named = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    assert set(named) == {"rpc.server.requests", "rpc.server.duration"}
    assert (named["rpc.server.requests"].unit, named["rpc.server.duration"].unit) == ("{request}", "s")
    points = named["rpc.server.requests"].data.data_points
    assert sorted(point.attributes["status"] for point in points) == ["error", "ok"]
    assert found["vgi_rpc/count"].status.status_code is trace.StatusCode.OK
    about = found["vgi_rpc/boom"].attributes
    assert about is not None
    assert about["rpc.vgi_rpc.error_type"] == "ValueError"
    assert about["rpc.vgi_rpc.auth.authenticated"] == "false"


def test_over_http_a_span_has_its_caller_and_the_trace_of_the_request(
    tracers: TracerProvider, spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    claims = {"tenant": "blue", "admin": True, "roles": ["a"]}
    tokens = {"s3cret": AuthContext("key", True, "alice", claims)}
    config = OtelConfig(
        tracer_provider=tracers,
        meter_provider=MeterProvider([metrics]),
        claim_attributes={"tenant": "app.tenant", "admin": "app.admin", "roles": "app.roles", "other": "app.other"},
    )
    client = make_sync_client(
        RpcServer(Service, ServiceImpl()),
        authenticate=bearer_authenticate_static(tokens=tokens),
        otel_config=config,
        default_headers={
            "Authorization": "Bearer s3cret",
            "User-Agent": "test/1",
            "traceparent": f"00-{'1' * 32}-{'2' * 16}-01",
        },
    )
    with http_connect(Service, client=client) as service:
        service.add(a=1.0)
        # What comes with the batch counts more than the fields of the request.
        with trace.get_tracer("test", tracer_provider=tracers).start_as_current_span("me") as caller:
            service.add(a=1.0)
    first, second = (each for each in spans.get_finished_spans() if each.name == "vgi_rpc/add")
    assert first.parent is not None
    assert second.parent is not None
    assert (f"{first.parent.trace_id:x}", f"{first.parent.span_id:x}") == ("1" * 32, "2" * 16)
    assert second.parent.span_id == caller.get_span_context().span_id
    wanted = {
        "rpc.vgi_rpc.auth.principal": "alice",
        "rpc.vgi_rpc.auth.domain": "key",
        "rpc.vgi_rpc.auth.authenticated": "true",
        "client.address": "127.0.0.1",
        "user_agent.original": "test/1",
        "app.tenant": "blue",
        "app.admin": "True",
    }
    said = dict(first.attributes or {})
    assert {name: said.get(name) for name in wanted} == wanted
    assert not {"app.roles", "app.other"} & set(said)
    assert client.post("/vgi/add", headers={**ARROW, "Authorization": "Bearer guess"}).status_code == 401
    data = metrics.get_metrics_data()
    assert data is not None
    named = {each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = named["rpc.server.auth_failure"].data.data_points
    assert (point.value, point.attributes["error.type"]) == (1, "ValueError")
    (point,) = named["rpc.server.requests"].data.data_points
    assert (point.value, point.attributes["rpc.vgi_rpc.auth.domain"]) == (2, "key")
    assert "s3cret" not in str(said) + str(data)


def test_tracing_and_metrics_can_be_left_out(
    tracers: TracerProvider, spans: InMemorySpanExporter, metrics: InMemoryMetricReader
) -> None:
    for tracing, measuring in ((False, True), (True, False)):
        given = OtelConfig(
            tracers, MeterProvider([InMemoryMetricReader()]), tracing, measuring, record_exceptions=False
        )
        server = instrument_server(RpcServer(Service, ServiceImpl()), given)
        with http_connect(Service, client=make_sync_client(server)) as service, pytest.raises(RpcError):
            service.boom(text="boom")
    (span,) = spans.get_finished_spans()
    assert not span.events
    assert metrics.get_metrics_data() is None


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r'pip install "penstock\[otel\]"'):
        instrument_server(RpcServer(Service, ServiceImpl()))
