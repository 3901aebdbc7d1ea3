"""State tokens of streams over HTTP (section 10)."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from penstock import _core
from penstock.vgi.rpc._common import AuthContext
from penstock.vgi.rpc._server import Dialect

__all__ = ["StateToken"]


@dataclass(frozen=True)
class StateToken:
    """What a stream over HTTP goes on with: signed by the server, opaque to its callers.

    Servers make and read them by themselves; this is for looking at one, with the server's key.

    ```python
    >>> import pyarrow as pa
    >>> from penstock.vgi import StateToken
    >>> token = StateToken(b"state", pa.schema([("value", pa.float64())]), pa.schema([]), created_at=1_000)
    >>> sealed = token.seal(b"a key of 16 bytes")
    >>> StateToken.open(sealed, b"a key of 16 bytes", token_ttl=60, now=1_060) == token
    True

    ```
    """

    state: bytes
    """The stream's state, an IPC stream with one row."""
    output_schema: pa.Schema
    input_schema: pa.Schema
    created_at: int
    """Seconds since 1970."""
    stream_id: str = ""
    """What names the stream; the dialect "0.10" alone has it."""

    def seal(self, key: bytes, *, dialect: Dialect = "spec", auth: AuthContext | None = None) -> bytes:
        """Give its bytes: version 2, or version 3 of the dialect "0.10", which belongs to a caller."""
        fields = (self.created_at, self.state, self.output_schema, self.input_schema, self.stream_id)
        return _core.vgi_token_seal(key, dialect, fields, _identity(auth))

    @classmethod
    def open(
        cls,
        token: bytes,
        key: bytes,
        *,
        dialect: Dialect = "spec",
        auth: AuthContext | None = None,
        token_ttl: int = 0,
        now: int = 0,
    ) -> Self:
        """Read one. VgiError where the signature does not hold, or it is older at ``now`` than ``token_ttl`` seconds.

        The signature is compared in constant time, and before anything is read; 0 seconds are for ever.
        """
        created_at, state, output, given, stream_id = _core.vgi_token_open(
            token, key, dialect, _identity(auth), token_ttl, now
        )
        return cls(state, output, given, created_at, stream_id)


def _identity(auth: AuthContext | None) -> tuple[str, str] | None:
    if auth is None or not auth.authenticated:
        return None
    return auth.domain or "", auth.principal or ""
