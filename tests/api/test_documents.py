"""The surface of penstock.documents."""

import io
import json
import pickle
from dataclasses import asdict, replace

import pytest
import samples

from penstock import DocumentsError, _core
from penstock.documents import Limits, Part, dehydrate, document_name, rehydrate

ARCHIVE = samples.zip_file([("a.txt", b"one"), ("a.txt", b"two"), ("in.zip", samples.zip_file({"b": b"three"}))])


def test_the_limits_are_those_of_the_core() -> None:
    assert asdict(Limits()) == _core.default_limits()


def test_limits_are_checked_and_pickled() -> None:
    limits = Limits(max_depth=3, part_seconds=0.5)
    assert pickle.loads(pickle.dumps(limits)) == limits  # noqa: S301
    for wrong in ({"part_seconds": -1}, {"part_seconds": float("nan")}, {"max_depth": -1}, {"max_text": 1 << 64}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Limits(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [ARCHIVE, io.BytesIO(ARCHIVE)], ids=["bytes", "file"])
def test_bytes_come_by_reference(source: bytes | io.BytesIO) -> None:
    parts = list(dehydrate("a.zip", source))
    assert [part.content for part in parts] == [None, b"one", b"two", None, b"three"]
    with parts[1].open() as one, parts[1].open() as again:
        assert (one.read(1), again.read(), one.read()) == (b"o", b"one", b"ne")
        assert (one.seek(-2, io.SEEK_END), one.read(), one.seekable()) == (1, b"ne", True)
    with pytest.raises(DocumentsError, match="no bytes are available for in"):
        parts[3].open()


def test_a_pickled_part_has_left_its_bytes_behind() -> None:
    part = list(dehydrate("a.zip", ARCHIVE))[1]
    again = pickle.loads(pickle.dumps(part))  # noqa: S301
    assert (again, again.content, part.content) == (part, None, b"one")


def test_a_file_is_read_from_its_position() -> None:
    file = io.BytesIO(b"skipped" + ARCHIVE)
    file.seek(7)
    assert len(list(dehydrate("a.zip", file))) == 5


@pytest.mark.parametrize("source", [7, None, io.StringIO("x"), ["x"]])
def test_a_source_of_another_kind_is_refused(source: object) -> None:
    with pytest.raises(TypeError):
        next(dehydrate("a", source))  # type: ignore[arg-type]


def test_what_python_raises_comes_out() -> None:
    class Stopped(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(dehydrate("a", Stopped()))


def test_a_composite_is_a_tree() -> None:
    composite = rehydrate(dehydrate("a.zip", ARCHIVE))
    assert [node.path for node in composite.walk()] == [(), ("a.txt",), ("a.txt",), ("in.zip",), ("in.zip", "b")]
    assert composite.text == "one\n\ntwo\n\nthree"
    found = composite.find(["in.zip", "b"])
    assert found is not None
    assert (found.text, composite.find(["none"])) == ("three", None)
    tree = json.loads(composite.to_json())
    assert tree["content_root"] == composite.content_root
    assert [child["path"] for child in tree["children"]] == [["a.txt"], ["a.txt"], ["in.zip"]]
    assert tree["children"][2]["children"][0]["text"] == "three"


def test_the_content_root_is_that_of_the_receipt() -> None:
    composite = rehydrate(dehydrate("a.txt", b"no parts"))
    assert composite.content_root == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    parts = list(dehydrate("a.zip", ARCHIVE))
    root = rehydrate(parts).content_root
    for index in range(1, len(parts)):
        for change in ({"sha256": "00" * 32}, {"status": "SKIPPED", "reason": "why"}):
            changed = [*parts[:index], replace(parts[index], **change), *parts[index + 1 :]]  # type: ignore[arg-type]
            assert rehydrate(changed).content_root != root


def test_a_part_that_failed_fails_the_containers_around_it() -> None:
    parts = list(dehydrate("a.zip", ARCHIVE))
    parts[4] = replace(parts[4], status="FAILED", reason="lost")
    composite = rehydrate(parts)
    statuses = {node.path: (node.status, node.reason) for node in composite.walk()}
    assert statuses[("in.zip",)] == ("FAILED", "1 of 1 parts are not COMPLETE")
    assert statuses[()] == ("FAILED", "1 of 3 parts are not COMPLETE")
    assert statuses[("a.txt",)] == ("COMPLETE", None)


def _part(*path: str, status: str = "COMPLETE") -> Part:
    return Part(path=path, type="x/y", sha256=None, bytes=None, depth=len(path), status=status)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [_part("a")],
        [_part(), _part()],
        [_part(), _part("a", "b")],
        [_part(), _part("a"), _part("b", "c")],
        [_part(), replace(_part("a"), depth=2)],
        [_part(), _part("a", status="GONE")],
    ],
)
def test_parts_that_are_no_document_are_refused(parts: list[Part]) -> None:
    with pytest.raises(DocumentsError):
        rehydrate(parts)


def test_names_of_documents() -> None:
    assert document_name(b"/in/caf\xe9".decode("utf-8", "surrogateescape"), "/in") == r"caf\xe9"
    assert document_name("/in/a/../b.zip", "/in") == "b.zip"
