"""An authorization server for the tests, over HTTP on this machine: keys, discovery, and codes that become tokens."""

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey


class Issuer:
    """Makes tokens, and answers who asks for its keys."""

    def __init__(self) -> None:
        self.keys: list[RSAKey] = []
        self.rotate()
        self.asked: list[str] = []
        self.challenges: dict[str, str] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                self._say(200, issuer.documents().get(self.path, {}))

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                said = {name: values[0] for name, values in form.items()}
                digest = hashlib.sha256(said.get("code_verifier", "").encode()).digest()
                known = issuer.challenges.pop(said.get("code", ""), None)
                if known != base64.urlsafe_b64encode(digest).rstrip(b"=").decode():
                    self._say(400, {"error": "invalid_grant"})
                    return
                self._say(200, {"access_token": issuer.token(), "expires_in": 60})

            def _say(self, status: int, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def documents(self) -> dict[str, dict[str, Any]]:
        return {
            "/.well-known/openid-configuration": {
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/login",
                "token_endpoint": f"{self.url}/token",
            },
            "/keys": dict(KeySet(self.keys).as_dict(private=False)),
        }

    def rotate(self) -> None:
        """Sign with a new key from now on; the old one is gone."""
        key = RSAKey.generate_key(2048, parameters={"use": "sig"})
        key.ensure_kid()
        self.keys = [key]

    def token(self, **claims: Any) -> str:
        said = {"iss": self.url, "aud": "calculator", "sub": "alice", "exp": int(time.time()) + 60} | claims
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": self.keys[0].kid}, said, self.keys[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
