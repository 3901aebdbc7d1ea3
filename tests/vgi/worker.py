"""A worker for the tests: a service that does all that goes well and all that goes wrong."""

import os
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.vgi import (
    AnnotatedBatch,
    ArrowSerializableDataclass,
    ArrowType,
    CallContext,
    ExchangeState,
    Level,
    OutputCollector,
    ProducerState,
    Stream,
    run_server,
)

VALUES = pa.schema([("value", pa.float64())])


class Color(Enum):
    RED = "r"
    BLUE = "b"


@dataclass(frozen=True)
class Point(ArrowSerializableDataclass):
    x: float
    y: float | None = None


@dataclass(frozen=True)
class About(ArrowSerializableDataclass):
    rows: int


@dataclass
class Countdown(ProducerState):
    n: int

    def produce(self, out: OutputCollector, ctx: CallContext) -> None:
        if self.n == 0:
            out.finish()
            return
        out.client_log(Level.INFO, f"{self.n} left", left=str(self.n))
        out.emit_pydict({"value": [float(self.n)]}, {"step": str(self.n)})
        self.n -= 1


@dataclass
class Scale(ExchangeState):
    factor: float

    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:
        values = input.batch["value"]
        if len(values) and values[0].as_py() == 13.0:
            raise ValueError("13 is bad luck")
        if len(values) and values[0].as_py() == 666.0:
            os._exit(3)
        if len(values) and values[0].as_py() == 1_000.0:
            threading.Event().wait()
        out.client_log(Level.WARN, f"{len(values)} values")
        out.emit_arrays([pc.multiply(values, self.factor)])


@dataclass
class Silent(ExchangeState):
    def exchange(self, input: AnnotatedBatch, out: OutputCollector, ctx: CallContext) -> None:
        pass


class Service(Protocol):
    def add(self, a: float, b: float = 2.0) -> float:
        """Add two numbers."""
        ...

    def color(self, color: Color) -> Color: ...
    def point(self, point: Point) -> Point: ...
    def perhaps(self, point: Point | None) -> Point | None: ...
    def nothing(self) -> int: ...
    def wrong(self) -> int: ...
    def small(self, n: Annotated[int | None, ArrowType(pa.int8())] = None) -> int | None: ...
    def boom(self, text: str) -> None: ...
    def die(self) -> None: ...
    def pid(self) -> int: ...
    def count(self, n: int) -> Stream[Countdown]: ...
    def count_with(self, n: int) -> Stream[Countdown, About]: ...
    def headless(self) -> Stream[Countdown, About]: ...
    def scale(self, factor: float) -> Stream[Scale]: ...
    def silent(self) -> Stream[Silent]: ...
    def no_stream(self) -> Stream[Scale]: ...


class ServiceImpl:
    def add(self, a: float, b: float) -> float:
        return a + b

    def color(self, color: Color, ctx: CallContext) -> Color:
        ctx.client_log(Level.DEBUG, color.name)
        return color

    def point(self, point: Point) -> Point:
        return point

    def perhaps(self, point: Point | None) -> Point | None:
        return point

    def nothing(self) -> int:
        return None  # type: ignore[return-value]

    def wrong(self) -> int:
        return "text"  # type: ignore[return-value]

    def small(self, n: int | None) -> int | None:
        return n

    def boom(self, text: str) -> None:
        print("a print of a method is not the protocol's")
        raise ValueError(text)

    def die(self) -> None:
        os._exit(3)

    def pid(self) -> int:
        return os.getpid()

    def count(self, n: int) -> Stream[Countdown]:
        if n < 0:
            raise ValueError("n is negative")
        return Stream(output_schema=VALUES, state=Countdown(n))

    def count_with(self, n: int) -> Stream[Countdown, About]:
        if n < 0:
            raise ValueError("n is negative")
        return Stream(output_schema=VALUES, state=Countdown(n), header=About(n))

    def headless(self) -> Stream[Countdown, About]:
        return Stream(output_schema=VALUES, state=Countdown(1))

    def scale(self, factor: float) -> Stream[Scale]:
        return Stream(output_schema=VALUES, state=Scale(factor), input_schema=VALUES)

    def silent(self) -> Stream[Silent]:
        return Stream(output_schema=VALUES, state=Silent(), input_schema=VALUES)

    def no_stream(self) -> Stream[Scale]:
        return 3  # type: ignore[return-value]


if __name__ == "__main__":
    run_server(Service, ServiceImpl())
