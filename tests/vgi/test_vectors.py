"""The worked examples of the specification, read by our core and by pyarrow: tests/vectors/vgi."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import _core
from penstock.errors import VgiError
from penstock.vgi import AuthContext, StateToken
from penstock.vgi.shm import ShmAllocator

_FOLDER = Path(__file__).resolve().parents[1] / "vectors" / "vgi"
STREAMS = json.loads((_FOLDER / "streams.json").read_text())
(BYTES,) = json.loads((_FOLDER / "bytes.json").read_text())


@pytest.mark.parametrize("vector", STREAMS, ids=[each["name"] for each in STREAMS])
def test_streams_say_what_the_specification_says(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    schema, batches = _core.vgi_decode(data)
    assert [[each.name, str(each.type), each.nullable] for each in schema] == vector["fields"]
    read = [
        {
            "rows": batch.num_rows,
            "columns": batch.to_pydict(),
            "metadata": {key.decode(): value.decode() for key, value in (metadata or {}).items()},
        }
        for batch, metadata in batches
    ]
    assert read == vector["batches"]
    # What we write says the same to pyarrow.
    written = pa.ipc.open_stream(_core.vgi_encode(schema, batches))
    assert written.schema == schema
    for batch, metadata in batches:
        again, with_it = written.read_next_batch_with_custom_metadata()
        assert again.equals(batch)
        assert dict(with_it or {}) == (metadata or {})


def test_the_empty_schema_is_that_of_appendix_c() -> None:
    assert pa.schema([]).serialize().to_pybytes().hex() == BYTES["empty_schema"]["hex"]


def test_the_header_of_a_segment_is_read() -> None:
    header = BYTES["segment_header"]
    memory = bytearray(header["size"])
    data = bytes.fromhex(header["hex"])
    memory[: len(data)] = data
    allocator = ShmAllocator(memoryview(memory), header["size"])
    assert allocator.num_allocs == len(header["regions"])
    for offset, _ in header["regions"]:
        allocator.free(offset)
    assert allocator.num_allocs == 0


@pytest.mark.parametrize("vector", BYTES["tokens"], ids=[each["name"] for each in BYTES["tokens"]])
def test_tokens_are_opened_and_sealed(vector: dict[str, Any]) -> None:
    key, data, dialect = bytes.fromhex(vector["key"]), bytes.fromhex(vector["hex"]), vector["dialect"]
    auth = None if vector["identity"] is None else AuthContext(vector["identity"][0], True, vector["identity"][1])
    token = StateToken.open(data, key, dialect=dialect, auth=auth)
    assert (token.state, token.created_at) == (bytes.fromhex(vector["state"]), vector["created_at"])
    assert token.output_schema == pa.schema([pa.field("result", pa.float64(), nullable=False)])
    assert StateToken.open(token.seal(key, dialect=dialect, auth=auth), key, dialect=dialect, auth=auth) == token
    with pytest.raises(VgiError, match="verification failed"):
        StateToken.open(data[:-1] + bytes([data[-1] ^ 1]), key, dialect=dialect, auth=auth)
