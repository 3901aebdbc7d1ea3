"""Counters that only a client moves which says what keeps it waiting."""

from pathlib import Path

from ..conformance.pipestream.fixtures import Program
from ..conformance.pipestream.programs import Serve
from ..conformance.pipestream.reactor import Reactor
from .metrics import metric

STREAMS = 'penstock_pipestream_client_blocked_total{window="streams"}'


def test_a_client_that_waits_for_a_stream_is_counted(reactor: Reactor, tmp_path: Path) -> None:
    program = Program(Serve(tmp_path / "serve", "--metrics", "127.0.0.1:0"), reactor)
    try:
        client = program.connect()
        assert metric(program.serve, STREAMS) == 0
        # None of them says whose it is, so none ends; 256 may be open.
        for _ in range(300):
            client.stream(b"\x00", end=False)
        reactor.run(lambda: metric(program.serve, STREAMS) > 0, 30)
        assert metric(program.serve, STREAMS) > 0
        assert metric(program.serve, 'penstock_pipestream_limit_exceeded_total{limit="entity_streams"}') == 1
    finally:
        program.forget()
        program.bystander.vanish()
        program.serve.stop()
