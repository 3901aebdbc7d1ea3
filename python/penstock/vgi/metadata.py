"""The keys of the metadata of batches (section 3), and what puts metadata together."""

from typing import Final

import pyarrow as pa

__all__ = [
    "CANCEL_KEY",
    "DESCRIBE_VERSION_KEY",
    "LOCATION_FETCH_MS_KEY",
    "LOCATION_KEY",
    "LOCATION_SHA256_KEY",
    "LOCATION_SOURCE_KEY",
    "LOG_EXTRA_KEY",
    "LOG_LEVEL_KEY",
    "LOG_MESSAGE_KEY",
    "PROTOCOL_HASH_KEY",
    "PROTOCOL_NAME_KEY",
    "REQUEST_ID_KEY",
    "REQUEST_VERSION",
    "REQUEST_VERSION_KEY",
    "RPC_METHOD_KEY",
    "SERVER_ID_KEY",
    "SHM_LENGTH_KEY",
    "SHM_OFFSET_KEY",
    "SHM_SEGMENT_NAME_KEY",
    "SHM_SEGMENT_SIZE_KEY",
    "SHM_SOURCE_KEY",
    "STATE_KEY",
    "TRACEPARENT_KEY",
    "TRACESTATE_KEY",
    "encode_metadata",
    "merge_metadata",
    "strip_keys",
]

CANCEL_KEY: Final = b"vgi_rpc.cancel"
DESCRIBE_VERSION_KEY: Final = b"vgi_rpc.describe_version"
LOCATION_FETCH_MS_KEY: Final = b"vgi_rpc.location.fetch_ms"
LOCATION_KEY: Final = b"vgi_rpc.location"
LOCATION_SHA256_KEY: Final = b"vgi_rpc.location.sha256"
LOCATION_SOURCE_KEY: Final = b"vgi_rpc.location.source"
LOG_EXTRA_KEY: Final = b"vgi_rpc.log_extra"
LOG_LEVEL_KEY: Final = b"vgi_rpc.log_level"
LOG_MESSAGE_KEY: Final = b"vgi_rpc.log_message"
PROTOCOL_HASH_KEY: Final = b"vgi_rpc.protocol_hash"
PROTOCOL_NAME_KEY: Final = b"vgi_rpc.protocol_name"
REQUEST_ID_KEY: Final = b"vgi_rpc.request_id"
REQUEST_VERSION: Final = b"1"
"""The version of the wire protocol."""
REQUEST_VERSION_KEY: Final = b"vgi_rpc.request_version"
RPC_METHOD_KEY: Final = b"vgi_rpc.method"
SERVER_ID_KEY: Final = b"vgi_rpc.server_id"
SHM_LENGTH_KEY: Final = b"vgi_rpc.shm_length"
SHM_OFFSET_KEY: Final = b"vgi_rpc.shm_offset"
SHM_SEGMENT_NAME_KEY: Final = b"vgi_rpc.shm_segment_name"
SHM_SEGMENT_SIZE_KEY: Final = b"vgi_rpc.shm_segment_size"
SHM_SOURCE_KEY: Final = b"vgi_rpc.shm_source"
STATE_KEY: Final = b"vgi_rpc.stream_state#b64"
"""The key of the dialect "0.10"; that of the specification is ``vgi_rpc.stream_state``."""
TRACEPARENT_KEY: Final = b"traceparent"
TRACESTATE_KEY: Final = b"tracestate"


def encode_metadata(metadata: dict[str, str]) -> pa.KeyValueMetadata:
    """Give metadata as Arrow has it.

    ```python
    >>> from penstock.vgi.metadata import encode_metadata
    >>> encode_metadata({"vgi_rpc.method": "add"})[b"vgi_rpc.method"]
    b'add'

    ```
    """
    return pa.KeyValueMetadata({key.encode(): value.encode() for key, value in metadata.items()})


def merge_metadata(
    *metadata_dicts: pa.KeyValueMetadata | dict[bytes, bytes] | dict[str, str] | None,
) -> pa.KeyValueMetadata | None:
    """Put metadata together; a later value of a key replaces an earlier one. None where nothing is left."""
    merged: dict[bytes, bytes] = {}
    for metadata in metadata_dicts:
        if metadata is not None:
            merged.update((_bytes(key), _bytes(value)) for key, value in metadata.items())
    return pa.KeyValueMetadata(merged) if merged else None


def strip_keys(metadata: pa.KeyValueMetadata | None, *keys: bytes) -> pa.KeyValueMetadata | None:
    """Give metadata without those keys. None where nothing is left."""
    if metadata is None:
        return None
    left = {key: value for key, value in metadata.items() if key not in keys}
    return pa.KeyValueMetadata(left) if left else None


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
