"""The test peer reads and writes what the project's vectors say; else its other tests would prove nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from . import entity, layer2, wire
from .wire import Code, Stat, WireError

VECTORS = Path(__file__).parents[2] / "vectors" / "pipestream"

Vector = dict[str, Any]


def load(name: str) -> list[Vector]:
    vectors: list[Vector] = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return vectors


def cases(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", load(name), ids=lambda vector: vector["name"])


YIELD_REASONS = ["", "EXTERNAL_CALL", "RATE_LIMITED", "AWAITING_SIBLING", "AWAITING_APPROVAL", "RESOURCE_BUSY"]


def extension(status: wire.Status) -> Vector | None:
    data = status.extension
    if data is None:
        return None
    if status.stat == Stat.YIELDED:
        return {"reason": YIELD_REASONS[data[0]], "token": data[4:].hex()}
    return {"claim_id": int.from_bytes(data[:8]), "expiry_micros": int.from_bytes(data[8:])}


def found(response: layer2.ClaimResponse) -> Vector | None:
    check = response.check
    if check is None:
        return None
    names = {"entity_id": check.entity, "scope_id": check.scope, "expiry_micros": check.expiry}
    validation = None
    if check.validation is not None:
        validation = dict(vars(layer2.decode_validation(check.validation)))
        validation["state_checksum"] = validation["state_checksum"].hex()
    file = {} if response.file is None else {"file": response.file}
    return {**names, "validation": validation, "status": Stat(response.status or 0).name, **file}


def policy_of(expected: Vector | None) -> layer2.Policy | None:
    """The policy that a vector says."""
    if expected is None:
        return None
    mode = expected["mode"] and layer2.Mode[expected["mode"].removeprefix("COMPLETION_MODE_")]
    names = [expected[name] and expected[name].removeprefix("FAILURE_ACTION_") for name in ("on_timeout", "on_failure")]
    actions = [name and layer2.Action[name] for name in names]
    numbers = [expected[name] for name in ("max_retries", "retry_delay_ms", "timeout_ms", "min_success_ratio")]
    return layer2.Policy(mode, *numbers, *actions)


def describe(frame: wire.Frame) -> Vector:
    """The frame in the words of the vectors."""
    match frame:
        case wire.Status():
            names = {"entity_id": frame.entity, "scope_id": frame.scope, "depth": frame.depth, "cursor": frame.cursor}
            return {"type": "STATUS", "status": Stat(frame.stat).name, **names, "extension": extension(frame)}
        case wire.Digest():
            counters = {name: getattr(frame, name) for name in ("processed", "succeeded", "failed", "deferred")}
            return {"type": "SCOPE_DIGEST", "scope_id": frame.scope, **counters, "merkle_root": frame.root.hex()}
        case wire.Barrier():
            names = {"barrier_id": frame.barrier, "parent_id": frame.parent}
            return {"type": "BARRIER", "released": frame.released, **names}
        case wire.Capabilities():
            return {"type": "CAPABILITIES", **vars(frame)}
        case wire.Checkpoint():
            names = {"sequence_number": frame.sequence, "checkpoint_entity_id": frame.entity, "scope_id": frame.scope}
            names |= {"flags": frame.flags, "timeout_ms": frame.timeout_ms}
            return {"type": "CHECKPOINT", "checkpoint_id": frame.checkpoint_id, **names}
        case wire.Error():
            names = {"code": frame.code, "scope_id": frame.scope, "entity_id": frame.entity}
            return {"type": "ERROR", **names, "message": frame.message}
        case layer2.ClaimQuery():
            return {"type": "CLAIM_QUERY", "claim_id": frame.claim}
        case layer2.ClaimResponse():
            return {"type": "CLAIM_RESPONSE", "claim_id": frame.claim, "found": found(frame)}
        case layer2.ClaimRedeem():
            return {"type": "CLAIM_REDEEM", "claim_id": frame.claim, "session": frame.session}
        case layer2.Resume():
            names = {"scope_id": frame.scope, "entity_id": frame.entity}
            return {"type": "RESUME", **names, "token": frame.token.hex()}
        case layer2.Session():
            counts = {"received": frame.received, "sent": frame.sent}
            said = {name: count for name, count in counts.items() if count is not None}
            return {"type": "SESSION", "session": frame.session, **said}
        case wire.Private():
            return {"type": "PRIVATE", "frame_type": frame.frame_type}


@cases("frames")
def test_frames_are_read_as_the_vectors_say(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    decoded = wire.decode_frame(data)
    assert decoded is not None
    frame, used = decoded
    assert (describe(frame), used) == (vector["frame"], len(data))
    for end in range(len(data)):
        assert wire.decode_frame(data[:end]) is None, f"a frame in {end} of {len(data)} bytes"
    again = wire.decode_frame(frame.encode())
    assert again is not None
    assert again[0] == frame
    if not vector.get("decode_only"):
        assert frame.encode() == data


@cases("frames-invalid")
def test_invalid_frames_are_refused_with_the_code_of_the_vectors(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    if vector.get("truncated"):
        assert wire.decode_frame(data) is None
        return
    with pytest.raises(WireError) as caught:
        wire.decode_frame(data)
    assert caught.value.code.name == vector["code"]


@cases("frames-layer2")
def test_frames_of_layer_2_are_read_as_the_vectors_say(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    decoded = wire.decode_frame(data, with_layer_2=True)
    assert decoded is not None
    frame, used = decoded
    assert (describe(frame), used) == (vector["frame"], len(data))
    for end in range(len(data)):
        assert wire.decode_frame(data[:end], with_layer_2=True) is None, f"a frame in {end} of {len(data)} bytes"
    assert wire.decode_frame(frame.encode(), with_layer_2=True) == (frame, len(frame.encode()))
    if not vector.get("decode_only"):
        assert frame.encode() == data


@cases("frames-layer2-invalid")
def test_invalid_frames_of_layer_2_are_refused_with_the_code_of_the_vectors(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    if vector.get("truncated"):
        assert wire.decode_frame(data, with_layer_2=True) is None
        return
    with pytest.raises(WireError) as caught:
        wire.decode_frame(data, with_layer_2=True)
    assert caught.value.code.name == vector["code"]


@cases("headers")
def test_headers_are_read_as_the_vectors_say(vector: Vector) -> None:
    data, expected = bytes.fromhex(vector["hex"]), vector["header"]
    decoded = entity.decode_header(data)
    assert decoded is not None
    header, used = decoded
    assert used == len(data)
    assert [header.entity, header.parent, header.scope, header.layer, header.content_type, header.payload_length] == [
        expected[name] for name in ("entity_id", "parent_id", "scope_id", "layer", "content_type", "payload_length")
    ]
    assert (header.checksum or b"").hex() == expected["checksum"]
    assert header.metadata == expected["metadata"]
    names = ("total_chunks", "chunk_index", "chunk_offset")
    chunk = header.chunk and dict(zip(names, vars(header.chunk).values(), strict=True))
    assert chunk == expected["chunk_info"]
    policy = None if header.policy is None else layer2.decode_policy(header.policy)
    assert policy == policy_of(expected["completion_policy"])
    if policy is not None:
        assert layer2.decode_policy(policy.message()) == policy
    assert entity.decode_header(header.encode()) == (header, len(header.encode()))


@cases("headers-invalid")
def test_invalid_headers_are_refused_with_the_code_of_the_vectors(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    if vector.get("truncated"):
        assert entity.decode_header(data) is None
    elif vector.get("entity_only"):
        # They parse; what is wrong with them concerns their entity alone, and tests of sessions look at it.
        assert entity.decode_header(data) is not None
    else:
        with pytest.raises(WireError) as caught:
            entity.decode_header(data)
        assert caught.value.code is Code[vector["code"]]


@cases("merkle")
def test_merkle_roots_are_those_of_the_vectors(vector: Vector) -> None:
    leaves = [(number, Stat[status]) for number, status in vector["leaves"]]
    assert entity.merkle_root(leaves).hex() == vector["root"]
