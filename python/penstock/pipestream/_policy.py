"""Completion policies: what happens to parts that fail, and to the document that contains them (section 8.3)."""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from penstock import _core
from penstock.pipestream._codes import CompletionMode, FailureAction, ResolutionState
from penstock.pipestream._fields import ReadableBuffer, as_bytes

__all__ = ["Action", "CompletionPolicy", "Mode", "policy_of"]

Mode: TypeAlias = CompletionMode | Literal["strict", "lenient", "best-effort", "quorum"]
"""When a parent is complete: a `CompletionMode` or its name."""
Action: TypeAlias = FailureAction | Literal["fail", "skip", "retry", "defer"]
"""What happens to a child: a `FailureAction` or its name."""

_LARGEST = (1 << 32) - 1
_RETRIES, _DELAY, _TIMEOUT = 3, 1.0, 300.0


@dataclass(frozen=True, slots=True, init=False)
class CompletionPolicy:
    """What happens to a parent when children fail, and to these children (PipeStream, section 8.3). Layer 2.

    In a policy that a peer has sent, None stands for a field that the peer did not set; its default applies.

    Args:
        mode: When the parent is COMPLETE: if all children are (``strict``), if one is (``lenient``), in any case
            (``best-effort``), or if ``min_success_ratio`` of them are (``quorum``).
        min_success_ratio: 0 to 1; required for a quorum. Kept in single precision, as the wire carries it.
        max_retries: How often a child is sent again if an action is ``retry``, 0 to 4,294,967,295; by default 3.
        retry_delay: Seconds before each retry, rounded to milliseconds; by default 1.
        timeout: Seconds that a child may take; by default 300. 0 means no timeout.
        on_failure: What happens to a child that fails: ``fail`` (FAILED), ``skip`` (SKIPPED), ``retry`` (sent again)
            or ``defer`` (DEFERRED under a claim check).
        on_timeout: The same for a child that takes too long; ``fail`` makes it ABANDONED.

    >>> policy = CompletionPolicy("quorum", min_success_ratio=0.75, on_failure="retry", max_retries=5)
    >>> str(policy), CompletionPolicy.parse("quorum:0.75,on-failure=retry,max-retries=5") == policy
    ('quorum:0.75,max-retries=5,on-failure=retry', True)
    >>> CompletionPolicy.decode(policy.encode()) == policy
    True
    """

    mode: CompletionMode | None
    """When the parent is complete."""
    min_success_ratio: float | None
    """The ratio of children that must be COMPLETE for QUORUM, 0 to 1."""
    max_retries: int | None
    """How often a child is sent again."""
    retry_delay: float | None
    """Seconds before a child is sent again."""
    timeout: float | None
    """Seconds that a child may take; 0 means no timeout."""
    on_failure: FailureAction | None
    """What happens to a child that fails."""
    on_timeout: FailureAction | None
    """What happens to a child that takes too long."""

    def __init__(
        self,
        mode: Mode = CompletionMode.STRICT,
        *,
        min_success_ratio: float | None = None,
        max_retries: int = _RETRIES,
        retry_delay: float = _DELAY,
        timeout: float = _TIMEOUT,
        on_failure: Action = FailureAction.FAIL,
        on_timeout: Action = FailureAction.FAIL,
    ) -> None:
        """Make a policy; the class describes the arguments.

        Raises:
            TypeError: If ``max_retries`` is not an int.
            ValueError: If an argument is invalid, or a quorum has no ratio.
        """
        mode = _member(CompletionMode, "mode", mode)
        if min_success_ratio is not None and not 0.0 <= min_success_ratio <= 1.0:
            raise ValueError(f"CompletionPolicy.min_success_ratio must be from 0 to 1, not {min_success_ratio}")
        if mode is CompletionMode.QUORUM and min_success_ratio is None:
            raise ValueError("CompletionPolicy.min_success_ratio must be from 0 to 1: a quorum requires it")
        if not isinstance(max_retries, int):
            raise TypeError(f"CompletionPolicy.max_retries must be an int, not {type(max_retries).__name__}")
        if not 0 <= max_retries <= _LARGEST:
            raise ValueError(f"CompletionPolicy.max_retries must be from 0 to {_LARGEST}, not {max_retries}")
        self._set(
            mode=mode,
            min_success_ratio=None if min_success_ratio is None else _single(min_success_ratio),
            max_retries=max_retries,
            retry_delay=_seconds("retry_delay", retry_delay),
            timeout=_seconds("timeout", timeout),
            on_failure=_member(FailureAction, "on_failure", on_failure),
            on_timeout=_member(FailureAction, "on_timeout", on_timeout),
        )

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def retry_delay_ms(self) -> int | None:
        """`retry_delay` in milliseconds, 32 bits, as the wire carries it."""
        return None if self.retry_delay is None else round(self.retry_delay * 1000)

    @property
    def timeout_ms(self) -> int | None:
        """`timeout` in milliseconds, 32 bits, as the wire carries it."""
        return None if self.timeout is None else round(self.timeout * 1000)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form of options: ``MODE`` or ``quorum:RATIO``, then ``,NAME=VALUE`` for each other field.

        The names are ``max-retries``, ``retry-delay`` and ``timeout`` (in seconds), ``on-failure`` and ``on-timeout``.

        Raises:
            ValueError: If the text is not a policy; the message states what is wrong with it.

        >>> CompletionPolicy.parse("best-effort,timeout=60,on-timeout=skip").timeout
        60.0
        """
        head, *rest = (piece.strip() for piece in text.split(","))
        mode, colon, ratio = head.partition(":")
        if mode not in _MODES or (colon and mode != "quorum"):
            raise ValueError(f"a policy must be strict, lenient, best-effort or quorum:RATIO, not {head!r}")
        given: dict[str, Any] = {}
        if mode == "quorum":
            if not colon:
                raise ValueError("a quorum requires the ratio of children that must be COMPLETE: quorum:0.8")
            given["min_success_ratio"] = _number("the ratio of a quorum", float, ratio)
        for piece in rest:
            name, equals, value = piece.partition("=")
            if not equals or name not in _OPTIONS:
                raise ValueError(
                    f"unknown field {piece!r} of a policy; valid fields: {', '.join(_OPTIONS)} (NAME=VALUE)"
                )
            field = name.replace("-", "_")
            if field in given:
                raise ValueError(f"duplicate field in the policy: {name}")
            given[field] = _number(name, _OPTIONS[name], value)
        return cls(_MODES[mode], **given)

    @property
    def needs_layer_two(self) -> bool:
        """Whether it differs from what layer 1 does: ``strict`` with the default retries, timeout and actions.

        >>> CompletionPolicy().needs_layer_two, CompletionPolicy("strict", timeout=60).needs_layer_two
        (False, True)
        """
        return str(self) != _NAMES[CompletionMode.STRICT]

    def outcome(self, children: int, complete: int) -> ResolutionState:
        """Return the outcome of a parent.

        Args:
            children: The number of its children.
            complete: The number of children that are COMPLETE.

        Returns:
            RESOLVED if all children are COMPLETE, PARTIAL if the mode accepts fewer, else FAILED.

        >>> CompletionPolicy("quorum", min_success_ratio=0.6).outcome(10, 6).name
        'PARTIAL'
        """
        if children == complete:
            return ResolutionState.RESOLVED
        match self.mode:
            case CompletionMode.BEST_EFFORT:
                content = True
            case CompletionMode.LENIENT:
                content = complete > 0
            case CompletionMode.QUORUM:
                # In single precision like the ratio, so that 6 of 10 reach 0.6.
                content = _single(complete / children) >= (self.min_success_ratio or 0.0)
            case _:
                content = False
        return ResolutionState.PARTIAL if content else ResolutionState.FAILED

    def __str__(self) -> str:
        """Return the canonical text that `parse` reads, without fields that have their default."""
        mode = self.mode or CompletionMode.STRICT
        text = _NAMES[mode]
        if mode is CompletionMode.QUORUM:
            text += f":{_shortest(0.0 if self.min_success_ratio is None else self.min_success_ratio)}"
        for name, default in _DEFAULTS.items():
            value = getattr(self, name.replace("-", "_"))
            if value is None or value == default or value is FailureAction.UNSPECIFIED:
                continue
            text += f",{name}={value.name.lower() if isinstance(value, FailureAction) else f'{value:.15g}'}"
        return text

    def encode(self) -> bytes:
        """Return the protobuf message, without a length prefix."""
        return _core.encode_policy(self)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> "CompletionPolicy":
        """Decode a protobuf message, which must fill ``data``.

        Raises:
            PipeStreamError: ENTITY_INVALID if it does not parse or has an unknown enum value (enums are closed).
        """
        return policy_of(_core.decode_policy(as_bytes(data)))


_NAMES: Mapping[CompletionMode, str] = {
    CompletionMode.UNSPECIFIED: "strict",
    CompletionMode.STRICT: "strict",
    CompletionMode.LENIENT: "lenient",
    CompletionMode.BEST_EFFORT: "best-effort",
    CompletionMode.QUORUM: "quorum",
}
_MODES = {name: mode for mode, name in _NAMES.items()}
_ACTIONS = {action.name.lower(): action for action in FailureAction if action}
_DEFAULTS: Mapping[str, object] = {
    "max-retries": _RETRIES,
    "retry-delay": _DELAY,
    "timeout": _TIMEOUT,
    "on-failure": FailureAction.FAIL,
    "on-timeout": FailureAction.FAIL,
}
_OPTIONS: Mapping[str, Callable[[str], object]] = {
    "max-retries": int,
    "retry-delay": float,
    "timeout": float,
    "on-failure": str,
    "on-timeout": str,
}


def _member(enum: Any, field: str, value: object) -> Any:
    """Return the enum's member for a member or its lower-case name."""
    if isinstance(value, enum):
        return value
    names = _MODES if enum is CompletionMode else _ACTIONS
    if isinstance(value, str) and value in names:
        return names[value]
    raise ValueError(f"CompletionPolicy.{field} must be {', '.join(names)}, not {value!r}")


def _seconds(field: str, value: float) -> float:
    """Return the seconds rounded to milliseconds, as the wire carries them."""
    if not math.isfinite(value) or not 0 <= round(value * 1000) <= _LARGEST:
        raise ValueError(f"CompletionPolicy.{field} must be from 0 to {_LARGEST / 1000} seconds, not {value}")
    return round(value * 1000) / 1000


def _number(what: str, kind: Callable[[str], object], text: str) -> object:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{what} must be a number, not {text!r}") from None


def _single(value: float) -> float:
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    return float(single)


def _shortest(value: float) -> str:
    """Return the shortest decimal that is this number in single precision."""
    return next(text for digits in range(1, 10) if _single(float(text := f"{value:.{digits}g}")) == value)


def policy_of(fields: "_core._PolicyFields") -> CompletionPolicy:
    """Return the dataclass for a policy that the core decoded, unchecked: a peer may send any values."""
    mode, on_timeout, on_failure = fields["mode"], fields["on_timeout"], fields["on_failure"]
    delay, timeout = fields["retry_delay_ms"], fields["timeout_ms"]
    policy = CompletionPolicy()
    policy._set(
        mode=None if mode is None else CompletionMode(mode),
        min_success_ratio=fields["min_success_ratio"],
        max_retries=fields["max_retries"],
        retry_delay=None if delay is None else delay / 1000,
        timeout=None if timeout is None else timeout / 1000,
        on_failure=None if on_failure is None else FailureAction(on_failure),
        on_timeout=None if on_timeout is None else FailureAction(on_timeout),
    )
    return policy
