"""The parts of a service definition: protocols, streams and stream states."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, get_args, get_origin, get_type_hints

import pyarrow as pa

from penstock.vgi._annotations import is_optional, unwrap, wire_type
from penstock.vgi._docstrings import parameter_docs
from penstock.vgi.rpc._batches import AnnotatedBatch, OutputCollector
from penstock.vgi.rpc._common import CallContext, MethodType
from penstock.vgi.utils import ArrowSerializableDataclass

if TYPE_CHECKING:
    from typing_extensions import TypeVar
else:
    from typing import TypeVar as _TypeVar

    def TypeVar(name: str, *, default: object = None, **kwargs: object) -> _TypeVar:  # noqa: ARG001, N802
        """Make a type variable without its default, which ``typing.TypeVar`` only accepts from Python 3.13 on."""
        return _TypeVar(name, **kwargs)


__all__ = [
    "ExchangeState",
    "ProducerState",
    "RpcMethodInfo",
    "Stream",
    "StreamState",
    "describe_rpc",
    "rpc_methods",
]

_EMPTY = pa.schema([])


class StreamState(ArrowSerializableDataclass, ABC):
    """The state of a stream between its steps: a mutable dataclass.

    Over HTTP it travels in a signed token, so each field must have an Arrow type or be Transient. Derive from
    ProducerState or ExchangeState; or derive from this class and override ``process``.
    """

    @abstractmethod
    def process(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002
        """Run one step of the stream.

        Args:
            input: The caller's batch; for a producer, a batch without rows.
            out: Collects the batch and the log messages of this step.
            ctx: The context of the call.
        """

    def rehydrate(self, implementation: object) -> None:
        """Restore the Transient fields, with the service's implementation, after the state was read from a token."""

    def on_cancel(self, ctx: CallContext) -> None:
        """Clean up after the caller cancelled the stream. By default this does nothing."""


class ProducerState(StreamState, ABC):
    """The state of a stream that only produces output.

    ```python
    >>> from dataclasses import dataclass
    >>> from typing import Protocol
    >>> import pyarrow as pa
    >>> from penstock.vgi import CallContext, OutputCollector, ProducerState, Stream, serve_pipe
    >>> @dataclass
    ... class Countdown(ProducerState):
    ...     n: int
    ...     def produce(self, out: OutputCollector, ctx: CallContext) -> None:
    ...         if self.n == 0:
    ...             return out.finish()
    ...         out.emit_pydict({"n": [self.n]})
    ...         self.n -= 1
    >>> class Counter(Protocol):
    ...     def down(self, n: int) -> Stream[Countdown]: ...
    >>> class CounterImpl:
    ...     def down(self, n: int) -> Stream[Countdown]:
    ...         return Stream(output_schema=pa.schema([("n", pa.int64())]), state=Countdown(n))
    >>> with serve_pipe(Counter, CounterImpl()) as counter:
    ...     [each.batch["n"][0].as_py() for each in counter.down(n=3)]
    [3, 2, 1]

    ```
    """

    @abstractmethod
    def produce(self, out: OutputCollector, ctx: CallContext) -> None:
        """Emit one batch, or end the stream with ``out.finish()``."""

    def process(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002, ARG002
        """Run one step by calling ``produce``."""
        self.produce(out, ctx)


class ExchangeState(StreamState, ABC):
    """The state of a stream that answers each input batch with one output batch.

    ```python
    >>> from dataclasses import dataclass
    >>> from typing import Protocol
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> from penstock.vgi import AnnotatedBatch, CallContext, ExchangeState, OutputCollector, Stream, serve_pipe
    >>> VALUES = pa.schema([("value", pa.float64())])
    >>> @dataclass
    ... class Scale(ExchangeState):
    ...     factor: float
    ...     def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:
    ...         out.emit_arrays([pc.multiply(input.batch["value"], self.factor)])
    >>> class Scaler(Protocol):
    ...     def scale(self, factor: float) -> Stream[Scale]: ...
    >>> class ScalerImpl:
    ...     def scale(self, factor: float) -> Stream[Scale]:
    ...         return Stream(output_schema=VALUES, state=Scale(factor), input_schema=VALUES)
    >>> with serve_pipe(Scaler, ScalerImpl()) as scaler, scaler.scale(factor=2.0) as stream:
    ...     stream.exchange(AnnotatedBatch.from_pydict({"value": [1.0, 2.5]})).batch.to_pydict()
    {'value': [2.0, 5.0]}

    ```
    """

    @abstractmethod
    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002
        """Answer the input batch by calling one of the ``out.emit`` methods exactly once."""

    def process(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:  # noqa: A002
        """Run one step by calling ``exchange``."""
        self.exchange(input, out, ctx)


S = TypeVar("S", bound=StreamState)
H = TypeVar("H", bound="ArrowSerializableDataclass | None", default=None)


@dataclass(frozen=True)
class Stream(Generic[S, H]):
    """The return value of a streaming method: ``-> Stream[State]``, or ``-> Stream[State, Header]``.

    The caller receives a StreamSession, which has the same methods. Calling them here, on the server's side, raises
    TypeError.
    """

    output_schema: pa.Schema
    """The schema of the output batches."""
    state: S
    """The state, whose ``process`` runs each step."""
    input_schema: pa.Schema = _EMPTY
    """The schema of the input batches; without columns, the default, the stream is a producer."""
    header: H | None = None
    """The header, sent once before all batches."""

    def __class_getitem__(cls, arguments: Any) -> Any:
        """Accept ``Stream[State]`` for a stream without a header."""
        if not isinstance(arguments, tuple):
            arguments = (arguments, None)
        return super().__class_getitem__(arguments)  # type: ignore[misc]

    def __enter__(self) -> Self:
        """Close the stream at the end of the block (caller's side only)."""
        self._not_here()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the stream (caller's side only)."""
        self._not_here()

    def __iter__(self) -> Iterator[AnnotatedBatch]:
        """Yield the batches of a producer (caller's side only)."""
        self._not_here()

    def tick(self) -> AnnotatedBatch:
        """Return the next batch of a producer; raise StopIteration after the last one (caller's side only)."""
        self._not_here()

    def exchange(self, input: AnnotatedBatch) -> AnnotatedBatch:  # noqa: A002, ARG002
        """Send a batch and return the answer (caller's side only)."""
        self._not_here()

    def cancel(self) -> None:
        """Cancel the stream, which calls ``on_cancel`` of its state (caller's side only)."""
        self._not_here()

    def close(self) -> None:
        """End the stream (caller's side only)."""
        self._not_here()

    def _not_here(self) -> NoReturn:
        raise TypeError("this is the method's end of the stream: only the caller's end can be read and written")


@dataclass(frozen=True)
class RpcMethodInfo:
    """A method of a service, and its Arrow schemas."""

    name: str
    params_schema: pa.Schema
    result_schema: pa.Schema
    """The column ``result``; no column for a stream, and for a method that returns nothing."""
    result_type: object
    method_type: MethodType
    has_return: bool
    doc: str | None
    param_defaults: dict[str, object] = field(default_factory=dict)
    param_types: dict[str, object] = field(default_factory=dict)
    param_docs: dict[str, str] = field(default_factory=dict)
    header_type: type[ArrowSerializableDataclass] | None = None
    is_exchange: bool | None = None
    """Whether a stream accepts input batches; None for a unary method, or if the state's class leaves it open."""


def rpc_methods(protocol: type) -> Mapping[str, RpcMethodInfo]:
    """Return the public methods of a service by name.

    Raises:
        TypeError: If a method cannot be called over the wire, for example because a parameter has no Arrow type.

    ```python
    >>> from typing import Protocol
    >>> from penstock.vgi import rpc_methods
    >>> class Calculator(Protocol):
    ...     def add(self, a: float, b: float = 0.0) -> float: ...
    >>> rpc_methods(Calculator)["add"].param_defaults
    {'b': 0.0}

    ```
    """
    functions: dict[str, Any] = {}
    for base in reversed(protocol.__mro__):
        if base in (object, Protocol, Generic):
            continue
        functions.update(
            (name, value)
            for name, value in vars(base).items()
            if not name.startswith("_") and inspect.isfunction(value)
        )
    return {name: _method_info(protocol, name, functions[name]) for name in sorted(functions)}


def _method_info(protocol: type, name: str, function: Callable[..., Any]) -> RpcMethodInfo:
    where = f"{protocol.__name__}.{name}()"
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    _check_kinds(where, parameters)
    types, fields, defaults = {}, [], {}
    for parameter in parameters:
        if parameter.name not in hints:
            if parameter.annotation is inspect.Parameter.empty and parameter.default is inspect.Parameter.empty:
                raise TypeError(f"{where}: parameter {parameter.name!r} has no annotation, so no Arrow type")
            continue
        types[parameter.name] = hints[parameter.name]
        fields.append(_field(where, parameter.name, hints[parameter.name]))
        if parameter.default is not inspect.Parameter.empty:
            defaults[parameter.name] = parameter.default
    returns = hints.get("return", type(None))
    stream = returns is Stream or get_origin(returns) is Stream
    doc = inspect.getdoc(function)
    result = pa.schema([] if stream or returns is type(None) else [_result_field(where, returns)])
    state, header = (*get_args(returns), None, None)[:2] if stream else (None, None)
    return RpcMethodInfo(
        name=name,
        params_schema=pa.schema(fields),
        result_schema=result,
        result_type=returns,
        method_type=MethodType.STREAM if stream else MethodType.UNARY,
        has_return=bool(len(result)),
        doc=doc,
        param_defaults=defaults,
        param_types=types,
        param_docs=parameter_docs(doc, set(types)),
        header_type=None if header is type(None) else header,
        is_exchange=_is_exchange(state),
    )


def _check_kinds(where: str, parameters: list[inspect.Parameter]) -> None:
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{where}: parameter {parameter} cannot be sent: parameters are passed by name only")


def _field(where: str, name: str, annotation: object) -> pa.Field:
    try:
        wire = wire_type(annotation, top=True)
    except TypeError as error:
        raise TypeError(f"{where}: {name}: {error}") from error
    return pa.field(name, wire.arrow, nullable=wire.nullable)


def _result_field(where: str, annotation: object) -> pa.Field:
    given = _field(where, "result", annotation)
    plain = unwrap(annotation)[0]
    # As a result, a dataclass is nullable even if it is not optional.
    nullable = hasattr(plain, "ARROW_SCHEMA") or is_optional(annotation)
    return given.with_nullable(given.nullable or (nullable and plain is annotation))


def _is_exchange(state: object) -> bool | None:
    if isinstance(state, type) and issubclass(state, ExchangeState):
        return True
    return False if isinstance(state, type) and issubclass(state, ProducerState) else None


def describe_rpc(protocol: type, *, methods: Mapping[str, RpcMethodInfo] | None = None) -> str:
    """Return a readable summary of a service's methods.

    Args:
        protocol: The service.
        methods: The methods to describe, as ``rpc_methods`` returns them; by default all methods of ``protocol``.
    """
    lines = [f"RPC Protocol: {protocol.__name__}", ""]
    for name, info in sorted((rpc_methods(protocol) if methods is None else methods).items()):
        lines.append(f"  {name}({info.method_type.value})")
        lines.append(f"    params: {_columns(info.params_schema)}")
        if info.method_type is MethodType.UNARY:
            lines.append(f"    result: {_columns(info.result_schema)}")
        if info.header_type is not None:
            lines.append(f"    header: {_columns(info.header_type.ARROW_SCHEMA)}")
        if info.doc:
            lines.append(f"    doc: {info.doc}")
        lines.append("")
    return "\n".join(lines)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name}: {each.type}{'' if each.nullable else ' not null'}" for each in schema)
