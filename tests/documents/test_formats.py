"""Every format, nested in the others; bombs, cycles, damage and odd names. The files are made by Python's libraries."""

import hashlib
import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import samples

from penstock.documents import Limits, Part, dehydrate, rehydrate

Tree = Callable[..., dict[tuple[str, ...], Part]]

LEAVES = {
    "note.txt": (b"A line.\n", "text/plain"),
    "page.md": (b"# A title\n\nSome *text*.\n", "text/markdown"),
    "table.csv": (samples.csv_file([["a", "b"], [1, 2], [3, 4]]), "text/csv"),
    "data.json": (samples.json_file({"a": [1, 2]}), "application/json"),
    "page.html": (b"<!doctype html><html><title>T</title><body><p>Text</p></body></html>", "text/html"),
    "blob.bin": (bytes(range(256)), "application/octet-stream"),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_leaf_is_told_by_its_content(name: str) -> None:
    data, media_type = LEAVES[name]
    (part,) = dehydrate(name, data)
    assert (part.type, part.status, part.reason) == (media_type, "COMPLETE", None)
    assert part.sha256 == hashlib.sha256(data).hexdigest()
    assert (part.bytes, part.content, part.path, part.depth) == (len(data), data, (), 0)


WRAPPERS: dict[str, tuple[Callable[[bytes], bytes], str, tuple[str, ...]]] = {
    "zip": (lambda data: samples.zip_file({"in": data}), "application/zip", ("in",)),
    "tar": (lambda data: samples.tar_file({"in": data}), "application/x-tar", ("in",)),
    "gz": (samples.gzip_file, "application/gzip", ("document",)),
    "bz2": (samples.bz2_file, "application/x-bzip2", ("document",)),
    "xz": (samples.xz_file, "application/x-xz", ("document",)),
    "eml": (lambda data: samples.mail("s", "body", {"in": data}), "message/rfc822", ("in",)),
}


@pytest.mark.parametrize("outer", WRAPPERS)
@pytest.mark.parametrize("inner", WRAPPERS)
def test_every_container_lies_in_every_other(outer: str, inner: str) -> None:
    wrap_inner, inner_type, _ = WRAPPERS[inner]
    wrap_outer, outer_type, _ = WRAPPERS[outer]
    core = b"The innermost text, which must come out unchanged.\n"
    parts = list(dehydrate(f"document.{outer}", wrap_outer(wrap_inner(core))))
    assert parts[0].type == outer_type
    assert [part.status for part in parts] == ["COMPLETE"] * len(parts)
    inners = [part for part in parts if part.depth == 1 and part.type == inner_type]
    assert len(inners) == 1
    found = [part for part in parts if part.depth == 2 and part.sha256 == hashlib.sha256(core).hexdigest()]
    assert len(found) == 1, [(part.path, part.type) for part in parts]
    assert found[0].content == core
    assert found[0].text == core.decode()


def test_a_mailbox_of_mails_with_archives(tree: Tree) -> None:
    mails = [samples.mail(f"subject {n}", f"body {n}", {"a.zip": samples.zip_file({"x": b"x"})}) for n in range(3)]
    parts = tree("box", samples.mbox(mails))
    assert parts[()].type == "application/mbox"
    mails_found = [part for part in parts.values() if part.type == "message/rfc822"]
    assert [part.metadata["mail.subject"] for part in mails_found] == ["subject 0", "subject 1", "subject 2"]
    assert sum(part.path[-1:] == ("x",) for part in parts.values()) == 3


def test_a_tar_in_gzip_is_two_steps(tree: Tree) -> None:
    parts = tree("a.tar.gz", samples.gzip_file(samples.tar_file({"d/x.txt": b"x"})))
    assert list(parts) == [(), ("a.tar",), ("a.tar", "d/x.txt")]


def test_a_pdf_gives_a_part_for_each_page(tree: Tree) -> None:
    parts = tree("a.zip", samples.zip_file({"b.pdf": samples.pdf(["First (page)", "Second"], title="The title")}))
    assert parts[("b.pdf",)].metadata["pdf.title"] == "The title"
    page = parts[("b.pdf", "page 1")]
    assert (page.text, page.content, page.type) == ("First (page)", b"First (page)", "text/plain")
    assert parts[("b.pdf", "page 2")].text == "Second"


def test_odd_names_and_links_are_kept_as_names(tree: Tree) -> None:
    names = ["../../etc/passwd", "/absolute", "a//b", "", "ok", "ok", "C:\\x", "\N{SNOWMAN}", "new\nline"]
    data = samples.zip_file([(name, name.encode()) for name in names])
    parts = list(dehydrate("a.zip", data))
    found = [part.path[0] for part in parts[1:]]
    # A member without a name is named by its place.
    assert found == ["part 4" if name == "" else name for name in names]
    links = tree("a.tar", samples.tar_file({}, {"link": "/etc/passwd"}))
    assert links[("link",)].content != Path("/etc/passwd").read_bytes()


def test_names_that_are_not_utf8_are_written_in_hex() -> None:
    data = samples.tar_file({"caf\udce9": b"x"})
    assert [part.path for part in dehydrate("a.tar", data)] == [(), (r"caf\xe9",)]


@pytest.mark.parametrize(
    "wrap", [samples.zip_bomb, lambda n: samples.gzip_file(bytes(n)), lambda n: samples.xz_file(bytes(n))]
)
def test_a_bomb_fails_and_its_siblings_live(wrap: Callable[[int], bytes]) -> None:
    data = samples.zip_file({"bomb": wrap(64 << 20), "after": b"fine"})
    composite = rehydrate(dehydrate("a.zip", data))
    bomb = [node for node in composite.walk() if node.path[:1] == ("bomb",) and not node.children]
    assert [node.status for node in bomb] == ["FAILED"]
    assert "1000 times" in str(bomb[0].reason)
    after = composite.find(["after"])
    assert after is not None
    assert (after.status, after.text) == ("COMPLETE", "fine")
    assert composite.status == "FAILED"


def test_depth_is_limited(tree: Tree) -> None:
    data = b"core"
    for level in range(9):
        data = samples.zip_file({f"level {level}": data, "beside": b"x"})
    parts = tree("a.zip", data)
    assert max(part.depth for part in parts.values()) == 7
    deepest = [part for part in parts.values() if part.status != "COMPLETE"]
    assert [part.depth for part in deepest] == [7]
    assert "depth" in str(deepest[0].reason)
    assert deepest[0].sha256 is not None
    assert max(part.depth for part in dehydrate("a.zip", data, limits=Limits(max_depth=2))) == 2


def test_children_bytes_and_time_are_limited() -> None:
    many = samples.zip_file({f"{n}": b"x" for n in range(50)})
    failed = [part for part in dehydrate("a.zip", many, limits=Limits(max_children=10)) if part.status == "FAILED"]
    assert len(failed) == 1
    assert "children" in str(failed[0].reason)
    large = samples.zip_file({"a": random.Random(1).randbytes(10_000), "b": b"x"})
    parts = list(dehydrate("a.zip", large, limits=Limits(max_inflated=9_999)))
    assert [part.status for part in parts] == ["COMPLETE", "FAILED", "COMPLETE"]
    late = list(dehydrate("a.zip", large, limits=Limits(part_seconds=0)))
    assert {part.status for part in late[1:]} == {"FAILED"}
    assert all("took longer" in str(part.reason) for part in late[1:])


def test_an_encrypted_member_fails_alone() -> None:
    data = bytearray(samples.zip_file({"secret": b"s", "open": b"o"}))
    # The flag of encryption, in the member's own header and in the directory's.
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    statuses = {part.path: (part.status, part.reason) for part in dehydrate("a.zip", bytes(data))}
    assert statuses[("secret",)][0] == "FAILED"
    assert "encrypted" in str(statuses[("secret",)][1])
    assert statuses[("open",)] == ("COMPLETE", None)


def test_damage_fails_parts_and_never_raises() -> None:
    member = random.Random(2).randbytes(4_000)
    whole = samples.zip_file({"a": member, "b.eml": samples.mail("s", "b", {"c": member}), "d": b"d"})
    choose = random.Random(3)
    for _ in range(200):
        data = bytearray(whole)
        data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        parts = list(dehydrate("a.zip", bytes(data)))
        assert all(part.reason for part in parts if part.status != "COMPLETE")
    for length in range(0, len(whole), 97):
        parts = list(dehydrate("a.zip", whole[:length]))
        assert all(part.reason for part in parts if part.status != "COMPLETE")


def test_a_stored_member_with_a_wrong_checksum_is_found() -> None:
    data = bytearray(samples.zip_file({"a": b"content"}))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        crc = archive.getinfo("a").CRC.to_bytes(4, "little")
    start = data.rindex(crc)
    data[start] ^= 1
    first = data.index(crc)
    data[first] ^= 1
    (_, part) = dehydrate("a.zip", bytes(data))
    assert part.status == "FAILED"
