"""What annotations are in Arrow (section 4), and that values come back as they went."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, NewType, Protocol

import pyarrow as pa
import pytest

from penstock.vgi import (
    ArrowSerializableDataclass,
    ArrowType,
    IPCError,
    RpcError,
    Stream,
    StreamState,
    Transient,
    rpc_methods,
    serve_pipe,
)
from penstock.vgi.log import Level, Message


class Color(Enum):
    RED = "r"
    BLUE = "b"


UserId = NewType("UserId", int)


@dataclass(frozen=True)
class Point(ArrowSerializableDataclass):
    x: float
    y: int | None = None


@dataclass
class Everything(ArrowSerializableDataclass):
    point: Point
    points: list[Point]
    places: dict[str, Point]
    color: Color
    colors: dict[str, Color]
    numbers: frozenset[int]
    small: Annotated[int | None, ArrowType(pa.int32())]
    batch: pa.RecordBatch
    schema: pa.Schema
    user: UserId
    perhaps: list[int | None] = field(default_factory=list)
    here: Annotated[Any, Transient()] = "default"


STRUCT = pa.struct([pa.field("x", pa.float64(), nullable=False), pa.field("y", pa.int64())])
WORDS = pa.dictionary(pa.int16(), pa.utf8())


def test_a_dataclass_comes_back_as_it_went() -> None:
    value = Everything(
        point=Point(1.0),
        points=[Point(2.0, 3)],
        places={"a": Point(4.0)},
        color=Color.RED,
        colors={"b": Color.BLUE},
        numbers=frozenset({1, 2}),
        small=None,
        batch=pa.record_batch({"a": [1]}),
        schema=pa.schema([("a", pa.int8())]),
        user=UserId(7),
        perhaps=[1, None],
        here="changed",
    )
    again = Everything.deserialize_from_bytes(value.serialize_to_bytes())
    assert again.here == "default"
    again.here = "changed"
    assert again == value


def test_the_schema_of_a_dataclass_is_that_of_the_specification() -> None:
    schema = Everything.ARROW_SCHEMA
    assert schema.field("point") == pa.field("point", STRUCT, nullable=False)
    assert schema.field("points").type == pa.list_(STRUCT)
    assert schema.field("color") == pa.field("color", WORDS, nullable=False)
    assert schema.field("colors").type == pa.map_(pa.utf8(), WORDS)
    assert schema.field("small") == pa.field("small", pa.int32(), nullable=False)
    assert "here" not in schema.names


@pytest.mark.parametrize("data", [b"", b"no stream", Point(1.0).serialize_to_bytes()[:-40]])
def test_bytes_that_are_no_dataclass_are_an_ipc_error(data: bytes) -> None:
    with pytest.raises(IPCError):
        Point.deserialize_from_bytes(data)


def test_an_unknown_name_of_an_enum_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"Everything.color: 'GREEN' is not a member of Color: RED, BLUE"):
        Everything._from_row(dict.fromkeys(Everything.ARROW_SCHEMA.names) | {"color": "GREEN"})


class Service(Protocol):
    def unary(self, point: Point, perhaps: Point | None, ids: set[UserId], n: int = 3) -> Point:
        """Do it.

        Args:
            point: where
            n: how often,
                at most
        """
        ...

    def stream(self) -> Stream[StreamState, Point]: ...


def test_parameters_and_results_have_their_schemas() -> None:
    unary, stream = rpc_methods(Service)["unary"], rpc_methods(Service)["stream"]
    assert unary.params_schema == pa.schema(
        [
            pa.field("point", pa.binary(), nullable=False),
            pa.field("perhaps", pa.binary()),
            pa.field("ids", pa.list_(pa.int64()), nullable=False),
            pa.field("n", pa.int64(), nullable=False),
        ]
    )
    assert unary.result_schema == pa.schema([pa.field("result", pa.binary())])
    assert unary.param_docs == {"point": "where", "n": "how often, at most"}
    assert stream.header_type is Point
    assert stream.result_schema == pa.schema([])


@pytest.mark.parametrize("annotation", [tuple[int, int], object, dict, int | str, complex])
def test_what_has_no_arrow_type_is_a_type_error_that_says_where(annotation: object) -> None:
    class Wrong(Protocol):
        def method(self, value: Any) -> None: ...

    Wrong.method.__annotations__["value"] = annotation
    with pytest.raises(TypeError, match=r"Wrong.method\(\): value: .*Arrow"):
        rpc_methods(Wrong)


def test_an_error_says_all_that_section_8_has() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second" * 10_000) from error
    except ValueError as error:
        said = Message.from_exception(error)
    assert said.level is Level.EXCEPTION
    assert said.extra is not None
    assert said.extra["exception_type"] == "ValueError"
    assert "KeyError" in said.extra["cause"]
    assert said.extra["traceback"].endswith("\n… <traceback truncated>")
    frame = said.extra["frames"][-1]
    assert frame["function"] == "test_an_error_says_all_that_section_8_has"
    assert frame["code"].startswith("raise ValueError")


class Numbers(Protocol):
    def echo(self, numbers: list[int]) -> list[int]: ...
    def large(self) -> list[int]: ...
    def place(self, point: Point) -> None: ...


class NumbersImpl:
    def echo(self, numbers: list[int]) -> list[int]:
        return numbers

    def large(self) -> list[int]:
        return [2**70]

    def place(self, point: Point) -> None:
        pass


def test_an_int_that_is_too_large_for_its_type_is_a_type_error() -> None:
    with serve_pipe(Numbers, NumbersImpl()) as numbers:
        with pytest.raises(TypeError, match="'numbers' cannot be list"):
            numbers.echo(numbers=[2**70])
        with pytest.raises(TypeError, match="Point does not match"):
            numbers.place(point=Point(1.0, 2**70))
        with pytest.raises(RpcError, match="'result' cannot be list") as raised:
            numbers.large()
        assert numbers.echo(numbers=[1]) == [1]
    assert raised.value.error_type == "TypeError"
