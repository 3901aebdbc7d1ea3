"""State tokens of streams over HTTP (vgi-rpc, section 10)."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from penstock import _core
from penstock.vgi.rpc._common import AuthContext
from penstock.vgi.rpc._server import Dialect

__all__ = ["StateToken"]


@dataclass(frozen=True)
class StateToken:
    """The token with which a stream over HTTP continues: signed by the server, opaque to its callers.

    Servers seal and open tokens by themselves; this class is for inspecting one with the server's key.

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
    """The time of creation in seconds since 1970."""
    stream_id: str = ""
    """The ID of the stream; only in the dialect "0.10"."""

    def seal(self, key: bytes, *, dialect: Dialect = "spec", auth: AuthContext | None = None) -> bytes:
        """Return the signed bytes of the token.

        Args:
            key: The signing key of the server.
            dialect: "spec" for a token of version 2, "0.10" for version 3.
            auth: The caller to which a token of version 3 is bound.
        """
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
        """Verify and parse a token.

        The signature is verified in constant time, before anything is parsed.

        Args:
            token: The bytes of the token.
            key: The signing key of the server.
            dialect: The dialect of the token.
            auth: The caller to which a token of version 3 is bound.
            token_ttl: Seconds for which a token is valid; 0, the default, means that it does not expire.
            now: The current time in seconds since 1970.

        Raises:
            VgiError: If the signature is invalid, or the token has expired.
        """
        created_at, state, output, given, stream_id = _core.vgi_token_open(
            token, key, dialect, _identity(auth), token_ttl, now
        )
        return cls(state, output, given, created_at, stream_id)


def _identity(auth: AuthContext | None) -> tuple[str, str] | None:
    if auth is None or not auth.authenticated:
        return None
    return auth.domain or "", auth.principal or ""
