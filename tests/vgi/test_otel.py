"""Calls as spans and metrics."""

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

from penstock.vgi import OtelConfig, RpcConnection, RpcError, RpcServer, instrument_server, make_pipe_pair


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
    points = named["rpc.server.requests"].data.data_points
    assert sorted(point.attributes["status"] for point in points) == ["error", "ok"]
