"""The metadata keys of batches (vgi-rpc, section 3), and functions to combine metadata."""

from typing import Final

import pyarrow as pa

from penstock import _core

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

_KEYS: Final = _core.vgi_keys()

CANCEL_KEY: Final = _KEYS["CANCEL"]
DESCRIBE_VERSION_KEY: Final = _KEYS["DESCRIBE_VERSION"]
LOCATION_FETCH_MS_KEY: Final = _KEYS["LOCATION_FETCH_MS"]
LOCATION_KEY: Final = _KEYS["LOCATION"]
LOCATION_SHA256_KEY: Final = _KEYS["LOCATION_SHA256"]
LOCATION_SOURCE_KEY: Final = _KEYS["LOCATION_SOURCE"]
LOG_EXTRA_KEY: Final = _KEYS["LOG_EXTRA"]
LOG_LEVEL_KEY: Final = _KEYS["LOG_LEVEL"]
LOG_MESSAGE_KEY: Final = _KEYS["LOG_MESSAGE"]
PROTOCOL_HASH_KEY: Final = _KEYS["PROTOCOL_HASH"]
PROTOCOL_NAME_KEY: Final = _KEYS["PROTOCOL_NAME"]
REQUEST_ID_KEY: Final = _KEYS["REQUEST_ID"]
REQUEST_VERSION: Final = _core.VgiProtocol.REQUEST_VERSION
"""The version of the wire protocol, as bytes."""
REQUEST_VERSION_KEY: Final = _KEYS["REQUEST_VERSION"]
RPC_METHOD_KEY: Final = _KEYS["METHOD"]
SERVER_ID_KEY: Final = _KEYS["SERVER_ID"]
SHM_LENGTH_KEY: Final = _KEYS["SHM_LENGTH"]
SHM_OFFSET_KEY: Final = _KEYS["SHM_OFFSET"]
SHM_SEGMENT_NAME_KEY: Final = _KEYS["SHM_SEGMENT_NAME"]
SHM_SEGMENT_SIZE_KEY: Final = _KEYS["SHM_SEGMENT_SIZE"]
SHM_SOURCE_KEY: Final = _KEYS["SHM_SOURCE"]
STATE_KEY: Final = _KEYS["STREAM_STATE_B64"]
"""The key in the dialect "0.10"; in the dialect "spec" it is ``vgi_rpc.stream_state``."""
TRACEPARENT_KEY: Final = _KEYS["TRACEPARENT"]
TRACESTATE_KEY: Final = _KEYS["TRACESTATE"]


def encode_metadata(metadata: dict[str, str]) -> pa.KeyValueMetadata:
    """Convert a dict of strings to Arrow metadata, encoded as UTF-8.

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
    """Combine metadata; a later value of a key replaces an earlier one. Return None if the result is empty."""
    merged: dict[bytes, bytes] = {}
    for metadata in metadata_dicts:
        if metadata is not None:
            merged.update((_bytes(key), _bytes(value)) for key, value in metadata.items())
    return pa.KeyValueMetadata(merged) if merged else None


def strip_keys(metadata: pa.KeyValueMetadata | None, *keys: bytes) -> pa.KeyValueMetadata | None:
    """Return the metadata without these keys, or None if the result is empty."""
    if metadata is None:
        return None
    left = {key: value for key, value in metadata.items() if key not in keys}
    return pa.KeyValueMetadata(left) if left else None


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
