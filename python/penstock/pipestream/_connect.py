"""The options with which a client connects: the destination, the layer and the limits."""

import re
from dataclasses import dataclass, field
from typing import TypedDict

from penstock._pipestream_limits import SERVER_LIMITS, Limits
from penstock.pipestream._fields import PathLike
from penstock.pipestream._keys import misuse
from penstock.pipestream._policy import CompletionPolicy
from penstock.pipestream._uri import PipeStreamURI

__all__ = ["ConnectOptions"]

_SESSION = re.compile(r"[0-9a-f]{32}")
# The default of `survive` for a session with a state folder, in seconds.
_SURVIVE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options that `Session.connect` passes to the core."""

    fingerprint: str | None
    ca: PathLike | None
    system_ca: bool
    cert: PathLike | None
    key: PathLike | None
    server_name: str | None
    layers: int
    window: int | None
    mtu: int | None
    timeout: float | None
    policy: CompletionPolicy | None
    survive: float | None
    state: PathLike | None
    limits: Limits
    header_key: str | None = field(repr=False)
    session_id: str | None
    status_interval: float | None


def survival(survive: float | None, state: PathLike | None) -> float | None:
    """Return for how many seconds a session survives without its connection; with a state folder there is a default."""
    return _SURVIVE if survive is None and state is not None else survive


def client_limits(limits: Limits | None) -> Limits:
    """Return the limits of a client.

    Raises:
        PipeStreamError: Of kind "misuse" if a limit is set that only servers have.
    """
    given = limits or Limits()
    for name in sorted(SERVER_LIMITS):
        if getattr(given, name) != getattr(Limits(), name):
            raise misuse(f"{name} is a limit of servers only")
    return given


def destination(address: str) -> tuple[str, str | None]:
    """Return the address of a server, and the session's ID if a URI names one.

    Raises:
        PipeStreamError: Of kind "misuse" for a URI without a port, with a session ID that is not 32 lower-case hex
            digits, or with a scope or an entity.
    """
    if not address.lower().startswith("pipestream://"):
        return address, None
    uri = PipeStreamURI.parse(address)
    if uri.address is None:
        raise misuse(f"{address} has no port, and there is no default port: pipestream://HOST:PORT/SESSION")
    if uri.scope_path or uri.entity_id is not None:
        raise misuse(f"{address} names a scope or an entity; to open a session, use pipestream://HOST:PORT/SESSION")
    if _SESSION.fullmatch(uri.session_id) is None:
        raise misuse(f"{address}: a session ID must be 32 digits of lower-case hex")
    return uri.address, uri.session_id


def highest_layer(
    layers: int | None, policy: CompletionPolicy | None, survive: float | None, session_id: str | None = None
) -> int:
    """Return the highest layer that a client offers: ``layers``, or by default 2 if an option needs it, else 1.

    Raises:
        PipeStreamError: Of kind "misuse" if an option needs layer 2 and ``layers`` is lower.
    """
    needs = "a policy" if policy is not None and policy.needs_layer_two else "survive" if survive else None
    needs = needs or (None if session_id is None else "a session ID")
    if needs is not None and layers is not None and layers < 2:
        raise misuse(f"{needs} requires layer 2, but layers={layers} was given")
    if layers is None:
        return 1 if needs is None else 2
    return layers


def policy_at(layer: int, policy: CompletionPolicy | None) -> CompletionPolicy | None:
    """Return the policy that a session of this layer gets: None if it is ``strict`` below layer 2, which implies it."""
    return policy if policy is None or layer >= 2 or policy.needs_layer_two else None


class Lasting(TypedDict):
    """The options that may need layer 2, and the layer that follows from them."""

    layers: int
    policy: CompletionPolicy | None
    survive: float | None
    state: PathLike | None
    session_id: str | None


def lasting(
    layers: int | None,
    policy: CompletionPolicy | None,
    survive: float | None,
    state: PathLike | None,
    session_id: str | None,
) -> Lasting:
    """Return the options that may need layer 2, with the highest layer to offer; raise as `highest_layer` does."""
    survive = survival(survive, state)
    highest = highest_layer(layers, policy, survive, session_id)
    policy = policy_at(highest, policy)
    return Lasting(layers=highest, policy=policy, survive=survive, state=state, session_id=session_id)
