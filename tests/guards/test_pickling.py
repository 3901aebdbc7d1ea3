"""What crosses to a Spark worker, or back, survives a pickle.

Every public class is either pickled here, or listed with the reason why it is not: a new class fails this guard until
somebody has decided.
"""

import copy
import dataclasses
import enum
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import penstock
from penstock import lumberjack as lj
from penstock import pimp, vgi
from penstock import pipestream as ps
from penstock import quicx as qx
from penstock.aio import pimp as aio_pimp
from penstock.aio import pipestream as aio_pipestream
from penstock.documents import Composite, Limits, Node, Part, Privacy
from penstock.documents import rehydrate as rehydrate_parts
from penstock.errors import (
    DocumentsError,
    Error,
    LumberjackError,
    PimpError,
    PipeStreamError,
    QuicxError,
    SparkError,
    VgiError,
)
from penstock.quicx._options import ReachOptions
from penstock.receipts import Change, Difference
from penstock.spark import (
    Dehydrate,
    DocumentsSource,
    LumberjackDataSource,
    PimpDataSource,
    PipeStreamDataSource,
    QueryProgress,
    QuicxDataSource,
    Rehydrate,
    VgiMap,
    Worker,
    dehydrate,
    rehydrate,
    vgi_map,
)
from penstock.spark._options import Options
from penstock.spark._peer import Peer
from penstock.spark.documents_source import DocumentsPartition, DocumentsReader
from penstock.spark.lumberjack import listen as lj_listen
from penstock.spark.lumberjack import reader as lj_reader
from penstock.spark.lumberjack import source as lj_source
from penstock.spark.lumberjack import stream_reader as lj_stream
from penstock.spark.lumberjack import writer as lj_writer
from penstock.spark.pimp import reach as pimp_reach
from penstock.spark.pimp import reader as pimp_reader
from penstock.spark.pimp import stream_writer as pimp_stream
from penstock.spark.pimp import writer as pimp_writer
from penstock.spark.pipestream.listen import Listen
from penstock.spark.pipestream.owner import Ownership
from penstock.spark.pipestream.reader import PipeStreamReader
from penstock.spark.pipestream.rows import RowSink, Written
from penstock.spark.pipestream.source import PipeStreamPartition, Source, Wanted
from penstock.spark.pipestream.stream_reader import PipeStreamStreamReader, Position
from penstock.spark.pipestream.stream_writer import PipeStreamStreamWriter
from penstock.spark.pipestream.writer import PipeStreamWriter
from penstock.spark.quicx import held as qx_held
from penstock.spark.quicx import source as qx_source
from penstock.spark.quicx import stream_reader as qx_stream
from penstock.spark.quicx import writer as qx_writer
from penstock.vgi.azure import AzureStorage
from penstock.vgi.external import ExternalLocationError
from penstock.vgi.file import FileStorage
from penstock.vgi.http import XfccElement

COMPOSITE = rehydrate_parts([Part(path=(), type="text/plain", sha256="ab" * 32, bytes=1, depth=0, text="x")])
SAMPLES: dict[type, Callable[[], object]] = {
    Error: lambda: Error("it failed", "io"),
    PipeStreamError: lambda: PipeStreamError("scope 3 is ours", "violation", 9, "PIPESTREAM_SCOPE_INVALID", 3, 7),
    DocumentsError: lambda: DocumentsError("no such document", "io"),
    SparkError: lambda: SparkError("no Java"),
    LumberjackError: lambda: LumberjackError("no event lies beyond the window", "violation"),
    lj.Event: lambda: lj.Event({"message": "hello"}, 3, "127.0.0.1:5044", tags=("_charsetfailure",)),
    lj.Limits: lambda: lj.Limits(window=9),
    lj.ReceiverCounters: lambda: lj.ReceiverCounters(
        connections=1,
        open=1,
        refused=0,
        handshakes_failed=0,
        events=3,
        bytes=9,
        wire_bytes=30,
        windows=1,
        acknowledged=3,
        held_bytes=0,
        errors={"limit": 0},
        foreign={"http": 1},
        peers={"127.0.0.1": (3, 9)},
    ),
    VgiError: lambda: VgiError("the peer closed the connection", "io"),
    Dehydrate: lambda: dehydrate("[::1]:4433", fingerprint="ab" * 32, receipts="/receipts", limits=Limits(max_depth=2)),
    Rehydrate: lambda: rehydrate(text=False, order_by="position"),
    DocumentsSource: lambda: DocumentsSource({"path": "/data", "minPartitions": "3"}),
    DocumentsReader: lambda: DocumentsReader(("/data",), target_bytes=1 << 20, min_partitions=3),
    PipeStreamDataSource: lambda: PipeStreamDataSource({"path": "sink:4433", "fingerprint": "ab" * 32}),
    Options: lambda: Options({"Address": "sink:4433"}, "sink"),
    Worker: lambda: Worker("node-1", "/env/bin/python", "3.11.7", None, "26.0.1", "penstock is not installed"),
    ps.EncryptionMetadata: lambda: ps.EncryptionMetadata(key_provider="vault", wrapped_key=bytes(40)),
    ps.FileStorageReference: lambda: ps.FileStorageReference.of_url("s3://bucket/key", size=3),
    ps.OwnershipContext: lambda: ps.OwnershipContext(owner_id="alice", scopes=["read"]),
    ps.PipeDoc: lambda: ps.PipeDoc(doc_id="d", entity_id=1, ownership=ps.OwnershipContext(group_id="g")),
    ps.PipeStreamURI: lambda: ps.PipeStreamURI(authority="h:1", session_id="s", scope_path=[0], entity_id=1),
    ps.References: lambda: ps.References(fetch_from=["s3://bucket"]),
    Peer: lambda: Peer("sink:4433", fingerprint="ab" * 32),
    Ownership: lambda: Ownership("ab" * 32, exclusive=True),
    RowSink: lambda: RowSink(Peer("sink:4433", system_ca=True), scopes=True),
    Written: lambda: Written("ab" * 16, "spark/1", 3, 70),
    PipeStreamWriter: lambda: PipeStreamWriter(RowSink(Peer("sink:4433", system_ca=True)), "spark/1"),
    PipeStreamStreamWriter: lambda: PipeStreamStreamWriter(RowSink(Peer("sink:4433", system_ca=True))),
    Composite: lambda: COMPOSITE,
    Change: lambda: Change("removed", "0" * 32, ("a", "b"), 0, {"path": ["a", "b"]}, None),
    Difference: lambda: Difference("parts[0].bytes", 3, 4, "parts[0].bytes: expected 3, found 4"),
    Privacy: lambda: Privacy(pad_children=8, pseudonym_key_file="/etc/key"),
    Limits: lambda: Limits(max_depth=2, part_seconds=0.5),
    Node: lambda: COMPOSITE.root,
    Part: lambda: Part(path=("a", "b"), type="text/plain", sha256="ab" * 32, bytes=1, depth=2, metadata={"a": "b"}),
    DocumentsPartition: lambda: DocumentsReader((__file__,), target_bytes=1, min_partitions=1).partitions()[0],
}
# Classes that hold something of this process, by name, with what they hold.
LIVE: dict[str, str] = {}
PIECE = ps.Piece("ab", 0, 10, 1, 5)
WANTED = Wanted(("content",), content=True, max_content=9, target_bytes=1 << 20, min_partitions=2)
READER, LISTEN = ps.SinkReader("/sink"), Listen("127.0.0.1:0", "/spool", advertise="worker:4433")
SAMPLES |= {
    Listen: lambda: LISTEN,
    PipeStreamPartition: lambda: PipeStreamPartition(READER, (PIECE,), WANTED),
    PipeStreamReader: lambda: PipeStreamReader(Source(READER, WANTED)),
    PipeStreamStreamReader: lambda: PipeStreamStreamReader(Source(READER, WANTED), LISTEN, max_rows=3),
    Position: lambda: Position("ab", 3, 14),
    Source: lambda: Source(READER, WANTED),
    Wanted: lambda: WANTED,
    ps.Limits: lambda: ps.Limits(max_header=2_000, max_claim_life=60.0),
    ps.ClosedSession: lambda: ps.ClosedSession("ab", 3, 14),
    ps.Piece: lambda: PIECE,
    ps.SinkReader: lambda: READER,
}
LJ_PIECE, LJ_READER = lj.SpoolPiece(1, 800, 800, 2000, 0, 9), lj.SpoolReader("/spool")
LJ_COLUMNS, LJ_SHARES = lj_source.Columns(("event",)), lj_source.Shares(1 << 20, 2)
LJ_LISTEN, LJ_SHIPPING = lj_listen.Listen("127.0.0.1:0", "/spool", ack="commit"), lj_writer.Shipping(("host:5044",))
SAMPLES |= {
    LumberjackDataSource: lambda: LumberjackDataSource({"path": "/spool"}),
    lj.Position: lambda: lj.Position(2, 7),
    lj.SpoolCounters: lambda: lj.SpoolCounters(1, 2, 3, 4, 5),
    lj.SpoolPiece: lambda: LJ_PIECE,
    lj.SpoolReader: lambda: LJ_READER,
    lj_listen.Listen: lambda: LJ_LISTEN,
    lj_reader.LumberjackReader: lambda: lj_reader.LumberjackReader(LJ_READER, LJ_COLUMNS, LJ_SHARES),
    lj_source.Columns: lambda: LJ_COLUMNS,
    lj_source.LumberjackPartition: lambda: lj_source.LumberjackPartition(LJ_READER, (LJ_PIECE,), LJ_COLUMNS),
    lj_source.Shares: lambda: LJ_SHARES,
    lj_stream.LumberjackStreamReader: lambda: lj_stream.LumberjackStreamReader(None, LJ_COLUMNS, LJ_SHARES, LJ_LISTEN),
    lj_stream.SpoolOffset: lambda: lj_stream.SpoolOffset("ab" * 16, lj.Position(2, 7), 1),
    lj_writer.LumberjackStreamWriter: lambda: lj_writer.LumberjackStreamWriter(LJ_SHIPPING),
    lj_writer.LumberjackWriter: lambda: lj_writer.LumberjackWriter(LJ_SHIPPING),
    lj_writer.Shipped: lambda: lj_writer.Shipped(3),
    lj_writer.Shipping: lambda: LJ_SHIPPING,
}
QX_REACH = ReachOptions(address="host:1", ca="ca.pem")
QX_TAKING, QX_SUBMITTING = qx_held.Taking(QX_REACH, ("ocr",)), qx_writer.Submitting(QX_REACH, "ocr")
SAMPLES |= {
    QuicxDataSource: lambda: QuicxDataSource({"path": "host:1"}),
    qx_held.Taking: lambda: QX_TAKING,
    qx_source.QuicxPartition: lambda: qx_source.QuicxPartition((qx.Task(1, "ocr", b"x"),), ("id", "payload")),
    qx_stream.QuicxStreamReader: lambda: qx_stream.QuicxStreamReader(QX_TAKING, ("payload",), 2),
    qx_stream.TaskOffset: lambda: qx_stream.TaskOffset("ab" * 16, 3, 1),
    qx_writer.QuicxStreamWriter: lambda: qx_writer.QuicxStreamWriter(QX_SUBMITTING),
    qx_writer.QuicxWriter: lambda: qx_writer.QuicxWriter(QX_SUBMITTING, "spark/1"),
    qx_writer.Submitted: lambda: qx_writer.Submitted(3),
    qx_writer.Submitting: lambda: QX_SUBMITTING,
}
COUNTED = ("connections", "submitted", "merged", "refused", "delivered", "done", "failed", "retried", "lost", "late")
SAMPLES |= {
    QuicxError: lambda: QuicxError("the pool has no free block of 16 bytes", "limit", 1, [1, 0]),
    qx.ClassStats: lambda: qx.ClassStats(16, 1, 1),
    qx.DaemonCounters: lambda: qx.DaemonCounters(**dict.fromkeys(COUNTED, 1), died=0, dead=2),
    qx.DeadTask: lambda: qx.DeadTask(7, "mail", 5, "no answer within 60 s"),
    qx.Outcome: lambda: qx.Outcome(7, b"why"),
    qx.Policy: lambda: qx.Policy(retry_failed=True, rate=2.5),
    qx.PoolStats: lambda: qx.PoolStats(16, 1 << 20, (qx.ClassStats(16, 1, 1),)),
    qx.Stats: lambda: qx.Stats(1, 2, 1, 16, 1 << 20),
    qx.Task: lambda: qx.Task(7, "mail", b"hello"),
    qx.TaskFailed: lambda: qx.TaskFailed("no such address"),
}
KEY, SCOPE, REASON = ps.EntityKey(0, 0, 7, 0), ps.ScopeKey(2), ps.Reason(5, "PIPESTREAM_ENTITY_INVALID", "broken")
DIGEST, CHUNK = ps.ScopeDigest(2, 3, 1, 1, 1, bytes(32)), ps.ChunkInfo(total_chunks=2, chunk_index=1, chunk_offset=9)
AGREED = ps.Capabilities().negotiate(ps.Capabilities())
COUNTS = ("connections_total", "connections_open", "refused", "entities", "completed", "failed", "bytes")
SAMPLES |= {
    ps.Agreement: lambda: AGREED,
    ps.AgreedEvent: lambda: ps.AgreedEvent(AGREED),
    ps.Barrier: lambda: ps.Barrier(2, 7, released=True),
    ps.BarrierEvent: lambda: ps.BarrierEvent(ps.Barrier(2, 7), by_peer=True),
    ps.Capabilities: lambda: ps.Capabilities(max_window_size=9),
    ps.Checkpoint: lambda: ps.Checkpoint(checkpoint_id="c", flags=1),
    ps.CheckpointEvent: lambda: ps.CheckpointEvent(ps.Checkpoint(flags=2), ours=True),
    ps.ChunkInfo: lambda: CHUNK,
    ps.ClaimCheck: lambda: ps.ClaimCheck(id=7, validation=ps.StoppingPointValidation(is_resumable=True)),
    ps.AttemptFailedEvent: lambda: ps.AttemptFailedEvent(KEY, 1, REASON, owned=True),
    ps.DeferredEvent: lambda: ps.DeferredEvent(KEY, ps.ClaimCheck(id=7, expiry_timestamp=1)),
    ps.OutcomeEvent: lambda: ps.OutcomeEvent(KEY, ps.ResolutionState.PARTIAL, owned=False),
    ps.ResumedEvent: lambda: ps.ResumedEvent(KEY),
    ps.SetAside: lambda: ps.SetAside(claim=ps.ClaimCheck(id=7), document="a.zip", path=("b",)),
    ps.YieldedEvent: lambda: ps.YieldedEvent(KEY, ps.YieldReason.RATE_LIMITED, b"token"),
    ps.ClosedEvent: lambda: ps.ClosedEvent(REASON, by_peer=False),
    ps.CompletionPolicy: lambda: ps.CompletionPolicy("quorum", min_success_ratio=0.1, on_failure="defer"),
    ps.DigestEvent: lambda: ps.DigestEvent(DIGEST, by_peer=True),
    ps.EntityHeader: lambda: ps.EntityHeader(entity_id=1, metadata={"a": "b"}, chunk_info=CHUNK),
    ps.EntityKey: lambda: KEY,
    ps.ErrorEvent: lambda: ps.ErrorEvent(REASON, 0, 7, by_peer=True),
    ps.GatheredEvent: lambda: ps.GatheredEvent(KEY, SCOPE, DIGEST, ps.Status.COMPLETE),
    ps.LostEvents: lambda: ps.LostEvents(3),
    ps.Reason: lambda: REASON,
    ps.ReleasedEvent: lambda: ps.ReleasedEvent(SCOPE, KEY, 1, DIGEST),
    ps.Resolution: lambda: ps.Resolution(
        scope_id=0, parent_id=7, state=ps.ResolutionState.FAILED, children=1, succeeded=0, failed=1, deferred=0
    ),
    ps.ResolvedEvent: lambda: ps.ResolvedEvent(KEY, 0, ps.Status.FAILED, REASON, owned=True),
    ps.ScopeDigest: lambda: DIGEST,
    ps.ScopeKey: lambda: SCOPE,
    ps.ServerCounters: lambda: ps.ServerCounters(
        **dict.fromkeys(COUNTS, 1), failures={5: 1}, events_lost=0, limits={"window": 1}
    ),
    ps.StatusEvent: lambda: ps.StatusEvent(KEY, ps.Status.COMPLETE, 0, 8, by_peer=True),
    ps.StatusFrame: lambda: ps.StatusFrame(ps.Status.COMPLETE, 7, cursor=8),
    ps.StoppingPointValidation: lambda: ps.StoppingPointValidation(state_checksum=b"x"),
    ps.YieldExtension: lambda: ps.YieldExtension(ps.YieldReason.RATE_LIMITED, b"state"),
}
SAMPLES[aio_pipestream.SinkReader] = lambda: aio_pipestream.SinkReader("/sink")
JOB_URL = "https://buffer.example/pimp/550e8400-e29b-41d4-a716-446655440000"
JOB = pimp.Job(JOB_URL, key="w", read_key="r")
TARGET = pimp_reach.Target(JOB, "query", "jsonl", 65_536, 8, qx_source.TASK_COLUMNS)
SAMPLES |= {
    PimpDataSource: lambda: PimpDataSource({"path": JOB_URL, "key": "w"}),
    pimp_reach.Target: lambda: TARGET,
    pimp_reader.PimpPartition: lambda: pimp_reader.PimpPartition(JOB),
    pimp_reader.PimpReader: lambda: pimp_reader.PimpReader(JOB, qx_source.TASK_COLUMNS),
    pimp_stream.PimpStreamWriter: lambda: pimp_stream.PimpStreamWriter(TARGET),
    pimp_writer.PimpWriter: lambda: pimp_writer.PimpWriter(TARGET),
    pimp_writer.Written: lambda: pimp_writer.Written(0, 3, 70, b"rows"),
    PimpError: lambda: PimpError("the job is not known", "violation", "NOT_FOUND"),
    pimp.Job: lambda: pimp.Job(JOB_URL, key="w", read_key="r", ca="ca.pem", allowed_hosts=["buffer.example"]),
    aio_pimp.Job: lambda: aio_pimp.Job(JOB_URL, key="w"),
    pimp.JobStatus: lambda: pimp.JobStatus(
        state="ACTIVE",
        chunks=1,
        bytes=70,
        next_index=1,
        created_at=1,
        expires_at=300_001,
        cancelled=False,
        sha256=None,
        etag='"1"',
    ),
    pimp.Limits: lambda: pimp.Limits(chunks=9),
    pimp.Metadata: lambda: pimp.Metadata(
        content_type="text/plain", content_encoding="identity", compression="none", content_length=3, meta={"a": 1}
    ),
}
SAMPLES[QueryProgress] = lambda: QueryProgress("q", None, 0, "2026-01-01T00:00:00Z", 0.1, 3, 30.0, ("from",), "to")
LIVE |= {
    "penstock.lumberjack._handler.LogHandler": "a thread",
    "penstock.lumberjack._receiver.Batch": "a connection",
    "penstock.lumberjack._receiver.Receiver": "a socket",
    "penstock.lumberjack._sender.Sender": "connections",
    "penstock.lumberjack._spool.Spool": "a lock on its folder",
    "penstock.aio.lumberjack.Receiver": "a socket",
    "penstock.aio.lumberjack.Sender": "connections",
    "penstock.aio.quicx.Daemon": "a socket",
    "penstock.aio.quicx.Producer": "a connection",
    "penstock.aio.quicx.Worker": "a connection",
    "penstock.aio.pimp.Buffer": "a socket",
    "penstock.aio.pimp.Consumer": "a connection",
    "penstock.aio.pimp.Sender": "a connection",
    "penstock.aio.pimp.Trigger": "tasks",
    "penstock.pimp._buffer.Buffer": "a socket",
    "penstock.pimp._consumer.Consumer": "a connection",
    "penstock.pimp._sender.Sender": "a connection",
    "penstock.pimp._trigger.Trigger": "threads",
    "penstock.pimp._trigger.TriggerServer": "a socket",
    "penstock.spark.pimp.watch.Watch": "a thread",
    "penstock.quicx._daemon.Daemon": "a socket",
    "penstock.quicx._pool.Block": "memory of this process",
    "penstock.quicx._pool.Pool": "memory of this process",
    "penstock.quicx._producer.Producer": "a connection",
    "penstock.quicx._worker.Worker": "a connection",
    "penstock.spark.quicx.held.Held": "a connection",
    "penstock.spark.watching.Progress": "a job that runs",
    "penstock.spark.watching.ProgressListener": "the streams that it writes to",
    "penstock._sending.DocumentResult": "temporary files",
    "penstock._sending.DocumentSender": "a session",
    "penstock._sending.SentDocument": "a session",
    "penstock.pipestream.EntityIdSpace": "the IDs of a scope that is in use",
    "penstock.pipestream._manifest.Manifest": "the clock of this process",
    "penstock.pipestream._entity.Entity": "a session",
    "penstock.pipestream._entity.ReceivedEntity": "a session",
    "penstock.pipestream._entity.SentEntity": "a session",
    "penstock.pipestream._scope.Scope": "a session",
    "penstock.pipestream._server.Server": "a socket",
    "penstock.pipestream._session.Session": "a connection",
    "penstock.aio.documents.DocumentSender": "a session",
    "penstock.aio.documents.SentDocument": "a session",
    "penstock.aio.pipestream._entity.Entity": "a session",
    "penstock.aio.pipestream._entity.ReceivedEntity": "a session",
    "penstock.aio.pipestream._entity.SentEntity": "a session",
    "penstock.aio.pipestream._scope.Scope": "a session",
    "penstock.aio.pipestream._server.Server": "a socket",
    "penstock.aio.pipestream._session.Session": "a connection",
}
POINTS = pa.schema([("x", pa.int64())])
SAMPLES |= {
    vgi.ClientExternalConfig: vgi.ClientExternalConfig,
    vgi.Compression: lambda: vgi.Compression(level=9),
    vgi.FetchConfig: lambda: vgi.FetchConfig(max_fetch_bytes=5),
    vgi.GCSStorage: lambda: vgi.GCSStorage("bucket"),
    vgi.S3Storage: lambda: vgi.S3Storage("bucket", storage={"session_token": "t"}),
    AzureStorage: lambda: AzureStorage("container", account="mine"),
    FileStorage: lambda: FileStorage("batches"),
    vgi.ServerExternalConfig: lambda: vgi.ServerExternalConfig(FileStorage("batches"), 5),
    vgi.UploadUrl: lambda: vgi.UploadUrl("https://a/put", "https://a/get", datetime(2027, 1, 1, tzinfo=UTC)),
    ExternalLocationError: lambda: ExternalLocationError("ExternalLocationError", "no", ""),
    vgi.AnnotatedBatch: lambda: vgi.AnnotatedBatch.from_pydict({"x": [1, 2]}),
    vgi.ArrowType: lambda: vgi.ArrowType(pa.int8()),
    vgi.AuthContext: lambda: vgi.AuthContext("jwt", True, "alice", {"role": "admin"}),
    vgi.CallStatistics: lambda: vgi.CallStatistics(input_rows=3),
    vgi.IPCError: lambda: vgi.IPCError("no batch"),
    vgi.Message: lambda: vgi.Message.info("half way", rows="500"),
    vgi.MethodDescription: lambda: vgi.MethodDescription("add", vgi.MethodType.UNARY, True, POINTS, POINTS),
    vgi.HttpRetryConfig: lambda: vgi.HttpRetryConfig(max_retries=1),
    vgi.HttpServerCapabilities: lambda: vgi.HttpServerCapabilities(max_request_bytes=5),
    vgi.HttpTransientError: lambda: vgi.HttpTransientError(503, "come again", 1.5),
    vgi.StateToken: lambda: vgi.StateToken(b"state", POINTS, POINTS, 1_000),
    vgi.PoolMetrics: lambda: vgi.PoolMetrics(*range(9)),
    vgi.RpcError: lambda: vgi.RpcError("ValueError", "ValueError: boom", "there", request_id="ab"),
    vgi.RpcMethodInfo: lambda: vgi.RpcMethodInfo("add", POINTS, POINTS, int, vgi.MethodType.UNARY, True, None),
    vgi.ServiceDescription: lambda: vgi.ServiceDescription("Calculator", "1", "2", "", "ab", {}),
    vgi.Transient: vgi.Transient,
    vgi.VersionError: lambda: vgi.VersionError("9"),
    vgi.OAuthResourceMetadata: lambda: vgi.OAuthResourceMetadata("https://api.example", ("https://login.example",)),
    vgi.OAuthResourceMetadataResponse: lambda: vgi.OAuthResourceMetadataResponse("https://a", ("https://login",)),
    XfccElement: lambda: XfccElement(subject="CN=alice"),
    vgi.OtelConfig: lambda: vgi.OtelConfig(custom_attributes={"a": "b"}),
    VgiMap: lambda: vgi_map(["worker"], "scale", arguments={"factor": 2.0}, on_failure="row", schema=POINTS),
}
LIVE |= {
    "penstock.aio.vgi._client.AsyncStreamSession": "a connection",
    "penstock.aio.vgi._client.WorkerPool": "processes",
    "penstock.aio.vgi._server.RpcServer": "an event loop",
    "penstock.vgi.external.ExternalStorage": "a protocol: it has no values of its own",
    "penstock.vgi.external.UploadUrlProvider": "a protocol: it has no values of its own",
    "penstock.vgi.http._auth.Request": "a request",
    "penstock.vgi.http._client.HttpStreamSession": "a connection",
    "penstock.vgi.http._options.HttpOptions": "a dict",
    "penstock.vgi.http._server.HttpServer": "a socket",
    "penstock.vgi.http._server.WsgiApp": "an implementation",
    "penstock.vgi.http._testing.SyncTestClient": "an implementation",
    "penstock.vgi.logging_utils.VgiJsonFormatter": "nothing, and loggers make their own",
    "penstock.vgi.pool.WorkerPool": "processes",
    "penstock.vgi.rpc._batches.OutputCollector": "the step of a call",
    "penstock.vgi.rpc._client.RpcConnection": "a connection",
    "penstock.vgi.rpc._client.StreamSession": "a connection",
    "penstock.vgi.rpc._common.CallContext": "a call",
    "penstock.vgi.rpc._common.DispatchHook": "a protocol: it has no values of its own",
    "penstock.vgi.rpc._server.RpcServer": "an implementation",
    "penstock.vgi.rpc._transport.PipeTransport": "files",
    "penstock.vgi.rpc._transport.ShmPipeTransport": "files",
    "penstock.vgi.shm.SharedMemorySegment": "a mapping",
    "penstock.vgi.shm.ShmAllocator": "a mapping",
    "penstock.vgi.rpc._transport.RpcTransport": "a protocol: it has no values of its own",
    "penstock.vgi.rpc._transport.SubprocessTransport": "a process",
    "penstock.vgi.rpc._transport.UnixTransport": "a socket",
    "penstock.vgi.rpc._types.ExchangeState": "abstract: states of users are their own",
    "penstock.vgi.rpc._types.ProducerState": "abstract: states of users are their own",
    "penstock.vgi.rpc._types.Stream": "the state of a user",
    "penstock.vgi.rpc._types.StreamState": "abstract: states of users are their own",
    "penstock.vgi.utils.ArrowSerializableDataclass": "abstract: dataclasses of users are their own",
    "penstock.vgi.utils.ValidatedReader": "a file",
}
# Command line and tests only.
NOT_SENT = ("penstock.cli",)


def _public_classes() -> list[type]:
    found = {}
    for info in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if info.name.startswith(NOT_SENT) or any(part.startswith("_") for part in info.name.split(".")):
            continue
        module = importlib.import_module(info.name)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return [found[name] for name in sorted(found)]


def _state(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, BaseException):
        # PySpark's own part of an error has a reader of its error classes, which equals no other.
        return (value.args, {name: held for name, held in vars(value).items() if name != "_error_reader"}, str(value))
    return value


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values_survive_a_pickle(protocol, saw):
    values: list[object] = [make() for make in SAMPLES.values()]
    values += [member for found in _public_classes() if issubclass(found, enum.Enum) for member in found]
    for value in values:
        for again in (pickle.loads(pickle.dumps(value, protocol)), copy.copy(value)):  # noqa: S301 - made a line above
            assert type(again) is type(value)
            assert _state(again) == _state(value)
    saw(len(values), f"values pickled with protocol {protocol}", at_least=4)


def test_every_public_class_is_pickled_or_says_why_not(saw):
    classes = _public_classes()
    for found in classes:
        name = f"{found.__module__}.{found.__qualname__}"
        known = found in SAMPLES or name in LIVE or issubclass(found, enum.Enum)
        assert known, f"{name}: add it to SAMPLES, or to LIVE with what it holds"
        assert not (found in SAMPLES and name in LIVE), f"{name} is in SAMPLES and in LIVE"
    stale = set(LIVE) - {f"{found.__module__}.{found.__qualname__}" for found in classes}
    assert not stale, f"LIVE names what is not there: {stale}"
    saw(len(classes), "public classes", at_least=4)
