"""PipeStream's frames and messages as Python values: the vectors that Rust reads too, and what Python adds."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock import PipeStreamError
from penstock.pipestream import (
    Barrier,
    Capabilities,
    Checkpoint,
    ChunkInfo,
    ClaimCheck,
    CompletionMode,
    CompletionPolicy,
    EntityHeader,
    FailureAction,
    ScopeDigest,
    Status,
    StatusFrame,
    StoppingPointValidation,
    YieldExtension,
    YieldReason,
)
from penstock.pipestream._policy import policy_of

VECTORS = Path(__file__).parents[1] / "vectors" / "pipestream"
FRAMES = {
    "STATUS": StatusFrame,
    "SCOPE_DIGEST": ScopeDigest,
    "BARRIER": Barrier,
    "CAPABILITIES": Capabilities,
    "CHECKPOINT": Checkpoint,
}
EVERY_DECODER = [*FRAMES.values(), EntityHeader]


def vectors(name: str) -> list[dict[str, Any]]:
    return json.loads((VECTORS / name).read_text())


def extension_of(fields: dict[str, Any] | None) -> YieldExtension | ClaimCheck | None:
    if fields is None:
        return None
    if "token" in fields:
        return YieldExtension(YieldReason[fields["reason"]], bytes.fromhex(fields["token"]))
    return ClaimCheck(id=fields["claim_id"], expiry_timestamp=fields["expiry_micros"])


def frame_of(fields: dict[str, Any]) -> object:
    fields = dict(fields)
    made = FRAMES[fields.pop("type")]
    if made is StatusFrame:
        fields["status"] = Status[fields["status"]]
        fields["extension"] = extension_of(fields["extension"])
    if made is ScopeDigest:
        fields["merkle_root"] = bytes.fromhex(fields["merkle_root"])
    return made(**fields)


def header_of(fields: dict[str, Any]) -> EntityHeader:
    fields = dict(fields)
    fields["checksum"] = bytes.fromhex(fields["checksum"])
    if fields["chunk_info"] is not None:
        fields["chunk_info"] = ChunkInfo(**fields["chunk_info"])
    if (policy := fields["completion_policy"]) is not None:
        policy = dict(policy)
        for name, enum, prefix in (
            ("mode", CompletionMode, "COMPLETION_MODE_"),
            ("on_timeout", FailureAction, "FAILURE_ACTION_"),
            ("on_failure", FailureAction, "FAILURE_ACTION_"),
        ):
            if policy[name] is not None:
                policy[name] = enum[policy[name].removeprefix(prefix)]
        # What a header has not set stays so, which no argument of the class says.
        fields["completion_policy"] = policy_of(policy)
    return EntityHeader(**fields)


def test_every_golden_frame_is_read_and_written():
    seen = set()
    for vector in vectors("frames.json"):
        kind = vector["frame"]["type"]
        if kind not in FRAMES:
            continue
        data = bytes.fromhex(vector["hex"])
        expected = frame_of(vector["frame"])
        frame, used = FRAMES[kind].decode(data + b"\x50 and what follows")
        assert (frame, used) == (expected, len(data)), vector["name"]
        if not vector.get("decode_only"):
            assert expected.encode() == data, vector["name"]
        seen.add(kind)
    assert seen == set(FRAMES)


def test_every_golden_header_is_read_and_written():
    found = vectors("headers.json")
    for vector in found:
        data = bytes.fromhex(vector["hex"])
        header, used = EntityHeader.decode(data + b"payload")
        assert (header, used) == (header_of(vector["header"]), len(data)), vector["name"]
        if not vector.get("decode_only"):
            assert header.encode() == data, vector["name"]
    assert len(found) >= 5


@pytest.mark.parametrize(("file", "key"), [("frames.json", "frame"), ("headers.json", "header")])
def test_what_is_cut_short_says_so_wherever_it_is_cut(file, key):
    cuts = 0
    for vector in vectors(file):
        decoder = FRAMES.get(vector[key].get("type", "")) if key == "frame" else EntityHeader
        data = bytes.fromhex(vector["hex"])
        for length in range(len(data)) if decoder else ():
            with pytest.raises(PipeStreamError, match=f"cut short after {length} bytes") as caught:
                decoder.decode(data[:length])
            assert (caught.value.code, caught.value.kind) == (5, "malformed"), vector["name"]
            cuts += 1
    assert cuts > 100


@pytest.mark.parametrize("file", ["frames-invalid.json", "headers-invalid.json"])
def test_every_invalid_vector_has_its_code(file):
    for vector in vectors(file):
        if vector.get("entity_only"):
            continue
        data = bytes.fromhex(vector["hex"])
        decoders = [EntityHeader] if vector["kind"] == "header" else FRAMES.values()
        for decoder in decoders:
            with pytest.raises(PipeStreamError) as caught:
                decoder.decode(data)
            assert caught.value.name == f"PIPESTREAM_{vector['code']}", vector["name"]


@pytest.mark.parametrize("decoder", EVERY_DECODER)
def test_decoders_take_any_buffer(decoder):
    value = decoder() if decoder in (Capabilities, Checkpoint, EntityHeader) else None
    if value is None:
        value = {
            StatusFrame: StatusFrame(Status.PENDING, 1),
            ScopeDigest: ScopeDigest(2, 3, 1, 1, 1, bytes(range(32))),
            Barrier: Barrier(2, 9, released=True),
        }[decoder]
    encoded = value.encode()
    for data in (encoded, bytearray(encoded), memoryview(encoded), memoryview(b"xx" + encoded)[2:]):
        assert decoder.decode(data) == (value, len(data))
    with pytest.raises(TypeError):
        decoder.decode("text")


def test_a_frame_of_another_type_is_refused():
    with pytest.raises(PipeStreamError, match="a frame of type 0x55 is not a STATUS") as caught:
        StatusFrame.decode(Barrier(2, 7).encode())
    assert caught.value.code == 5


SAMPLES = [
    StatusFrame(Status.COMPLETE, 7, 2, depth=3, cursor=8),
    StatusFrame(Status.YIELDED, 1, extension=YieldExtension(YieldReason.RATE_LIMITED, b"state")),
    StatusFrame(Status.DEFERRED, 1, extension=ClaimCheck(id=2**64 - 1, expiry_timestamp=1)),
    ScopeDigest(2, 3, 1, 1, 1, bytes(range(32))),
    Barrier(2, 9, released=True),
    Capabilities(layer1=False, max_window_size=9),
    Checkpoint(checkpoint_id="c", sequence_number=2**40, flags=1),
    EntityHeader(
        entity_id=1,
        checksum=bytes(32),
        metadata={"a": "b"},
        chunk_info=ChunkInfo(total_chunks=2, chunk_index=1, chunk_offset=9),
        completion_policy=CompletionPolicy(mode=CompletionMode.STRICT, min_success_ratio=0.1),
    ),
    CompletionPolicy(on_failure=FailureAction.RETRY, timeout=0),
    ClaimCheck(id=1, validation=StoppingPointValidation(state_checksum=b"x", is_resumable=False)),
]


@pytest.mark.parametrize("value", SAMPLES, ids=lambda value: type(value).__name__)
def test_frames_are_values(value):
    decoded = type(value).decode(value.encode())
    again = decoded[0] if isinstance(decoded, tuple) else decoded
    assert again == value
    assert hash(again) == hash(value)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value  # noqa: S301 - made a line above
    assert copy.deepcopy(value) == value
    with pytest.raises(AttributeError):
        setattr(value, next(iter(value.__slots__)), None)


def test_fields_out_of_range_are_refused_when_the_frame_is_made():
    wrong = [
        lambda: StatusFrame(Status.PENDING, -1),
        lambda: StatusFrame(Status.PENDING, 1 << 32),
        lambda: StatusFrame(Status.PENDING, 1, 1 << 16),
        lambda: StatusFrame(Status.PENDING, 1, depth=8),
        lambda: StatusFrame(Status.PENDING, 1, cursor=1 << 32),
        lambda: StatusFrame(13, 1),
        lambda: ScopeDigest(0, 1 << 64, 0, 0, 0, bytes(32)),
        lambda: ScopeDigest(0, 0, 0, 0, 0, bytes(31)),
        lambda: Barrier(1 << 16, 0),
        lambda: Capabilities(max_window_size=-1),
        lambda: Checkpoint(timeout_ms=1 << 32),
        lambda: EntityHeader(payload_length=1 << 64),
        lambda: CompletionPolicy(max_retries=-1),
        lambda: ClaimCheck(id=1 << 64),
        lambda: StatusFrame(Status.DEFERRED, 1, extension=ClaimCheck(id=1)),
        lambda: StatusFrame(Status.DEFERRED, 1, extension=ClaimCheck(id=1, expiry_timestamp=1, entity=1)),
    ]
    for make in wrong:
        with pytest.raises(ValueError, match=r"must be from 0|must have 32 bytes|not a valid Status|carries only"):
            make()
    with pytest.raises(TypeError, match=r"StatusFrame\.entity_id must be an int, not str"):
        StatusFrame(Status.PENDING, "1")


def test_an_extension_that_is_not_the_statuss_own_is_misuse():
    for frame in (
        StatusFrame(Status.YIELDED, 1),
        StatusFrame(Status.COMPLETE, 1, extension=YieldExtension(YieldReason.RATE_LIMITED)),
        StatusFrame(Status.YIELDED, 1, extension=ClaimCheck(id=1, expiry_timestamp=2)),
    ):
        with pytest.raises(PipeStreamError) as caught:
            frame.encode()
        assert caught.value.kind == "misuse"


def test_enums_are_closed():
    with pytest.raises(PipeStreamError, match="unknown enum value 9") as caught:
        CompletionPolicy.decode(b"\x08\x09")
    assert caught.value.name == "PIPESTREAM_ENTITY_INVALID"
    with pytest.raises(PipeStreamError):
        ClaimCheck.decode(b"\xff")


def test_a_policys_text_is_read_again_whatever_it_says():
    ratios = [0.0, 0.1, 1 / 3, 0.6, 0.8, 1.0]
    policies = [
        CompletionPolicy(mode, on_failure=action) for mode in ("strict", "lenient") for action in ("skip", "fail")
    ]
    policies += [CompletionPolicy("quorum", min_success_ratio=ratio, retry_delay=0.001) for ratio in ratios]
    policies += [
        CompletionPolicy("best-effort", on_timeout="defer", timeout=0, max_retries=0, retry_delay=0),
        CompletionPolicy(CompletionMode.LENIENT, on_failure=FailureAction.RETRY, timeout=4_294_967.295),
    ]
    for policy in policies:
        assert CompletionPolicy.parse(str(policy)) == policy, str(policy)
        assert CompletionPolicy.decode(policy.encode()) == policy
    assert {str(policy) for policy in policies} >= {"strict", "lenient,on-failure=skip", "quorum:0.6,retry-delay=0.001"}
    assert str(CompletionPolicy.decode(b"")) == "strict"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a policy must be strict, lenient, best-effort or quorum:RATIO, not ''"),
        ("lenient:0.5", "not 'lenient:0.5'"),
        ("quorum", "a quorum requires the ratio"),
        ("quorum:many", "the ratio of a quorum must be a number, not 'many'"),
        ("quorum:1.5", "min_success_ratio must be from 0 to 1, not 1.5"),
        ("quorum:nan", "min_success_ratio must be from 0 to 1"),
        ("strict,retries=3", "unknown field 'retries=3' of a policy; valid fields: max-retries"),
        ("strict,timeout", "unknown field 'timeout'"),
        ("strict,timeout=1,timeout=2", "duplicate field in the policy: timeout"),
        ("strict,timeout=-1", "timeout must be from 0 to"),
        ("strict,timeout=inf", "timeout must be from 0 to"),
        ("strict,max-retries=4294967296", "max_retries must be from 0 to 4294967295"),
        ("strict,on-failure=hope", "on_failure must be fail, skip, retry, defer, not 'hope'"),
    ],
)
def test_a_text_that_is_no_policy_says_what_is_wrong(text, problem):
    with pytest.raises(ValueError, match=problem):
        CompletionPolicy.parse(text)


def test_capabilities_agree_on_the_minimum():
    ours = Capabilities(max_scope_depth=9, max_window_size=100, max_entities_per_scope=0)
    agreement = ours.negotiate(Capabilities(layer2=True, max_window_size=7))
    assert (agreement.layer, agreement.max_scope_depth, agreement.max_window_size) == (1, 7, 7)
    assert agreement.max_entities_per_scope == 4_294_967_294
    with pytest.raises(PipeStreamError) as caught:
        ours.negotiate(Capabilities(layer0=False))
    assert caught.value.name == "PIPESTREAM_LAYER_UNSUPPORTED"


def test_statuses_have_the_registrys_codes():
    assert [status.name for status in sorted(Status)] == [
        "UNSPECIFIED", "PENDING", "PROCESSING", "COMPLETE", "FAILED", "CHECKPOINT", "DEHYDRATING", "REHYDRATING",
        "YIELDED", "DEFERRED", "RETRYING", "SKIPPED", "ABANDONED",
    ]  # fmt: skip
    assert [int(status) for status in Status if status.is_terminal] == [3, 4, 9, 11, 12]
