"""Receipts against real sinks: what is right verifies, and whatever is changed is found and named."""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import samples

from penstock import receipts
from penstock._staged_receipts import StagedReceipts
from penstock.documents import DocumentSender
from penstock.pipestream import Server, Session

HTML = b'<!doctype html><title>t</title><p>x<img src="data:image/png;base64,iVBORw0KGgo=">'


def _document() -> bytes:
    mail = samples.mail("s", "b", {"a.pdf": samples.pdf(["one", "two"]), "page.html": HTML, "empty": b""})
    bomb = samples.zip_file({"bomb.zip": samples.zip_bomb(8 << 20), "beside": b"x"})
    return samples.zip_file({"m.eml": mail, "b.zip": bomb, "../odd": b"odd", "none.zip": samples.zip_file({})})


class Sent:
    """A sink with two sessions, and the receipt of a nested document in one of them."""

    def __init__(self, folder: Path, layers: int) -> None:
        self.sink = folder / "sink"
        with Server("127.0.0.1:0", sink=self.sink) as server:
            for number in range(2):
                with Session.connect(server.address, fingerprint=server.fingerprint, layers=layers) as session:
                    sender = DocumentSender(session)
                    sent = [sender.send(f"in/{n}.zip", _document()) for n in range(2)]
                    sent += [sender.send("note.txt", b"A note.")]
                    results = [each.wait(30) for each in sent]
                for result in results:
                    path = receipts.write(result, folder / f"receipts{number}")
                    if result is results[0]:
                        self.path = path
        self.receipt: dict[str, Any] = json.loads(self.path.read_bytes())
        self.folder = folder

    def differences(self, receipt: dict[str, Any] | None = None, sink: Path | None = None) -> list[receipts.Difference]:
        if receipt is None:
            return receipts.verify(self.path, sink or self.sink)
        tampered = self.folder / "tampered" / self.path.name
        tampered.parent.mkdir(exist_ok=True)
        tampered.write_text(json.dumps(receipt))
        return receipts.verify(tampered, sink or self.sink)


@pytest.fixture(scope="module", params=[1, 0], ids=["layer 1", "layer 0"])
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sent:
    return Sent(tmp_path_factory.mktemp("sent"), request.param)


@pytest.fixture
def copied(sent: Sent, tmp_path: Path) -> Path:
    """A copy of the sink, to be damaged."""
    return Path(shutil.copytree(sent.sink, tmp_path / "sink"))


def test_what_was_sent_verifies(sent: Sent) -> None:
    count = 0
    for number in range(2):
        for path, differences in receipts.verify_all(sent.folder / f"receipts{number}", sent.sink):
            assert [difference.text for difference in differences] == [], path
            count += 1
    assert count == 6


def test_the_receipt_has_the_form_that_is_published(sent: Sent) -> None:
    assert list(sent.receipt) == [
        "version", "document", "sha256", "bytes", "status", "reason", "content_root", "session", "root", "file",
        "doc_id", "uri", "scopes", "parts",
    ]  # fmt: skip
    paths = [part["path"] for part in sent.receipt["parts"]]
    assert paths[0] == ["m.eml"]
    assert ["../odd"] in paths
    if sent.receipt["scopes"]:
        assert ["m.eml", "a.pdf", "page 2"] in paths
        assert ["m.eml", "page.html", "part 1"] in paths
        failed = [part for part in sent.receipt["parts"] if part["status"] != "COMPLETE"]
        assert [part["path"] for part in failed] == [
            ["b.zip"],
            ["b.zip", "bomb.zip"],
            ["b.zip", "bomb.zip", "zeros.bin"],
        ]
        assert failed[0]["reason"] == "1 of 2 parts are not COMPLETE"
        assert sent.receipt["status"] == "FAILED"


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value that is no list and no object."""
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*way, key))
    elif isinstance(value, list) and value:
        for index in range(len(value)):
            yield from _places(value[index], (*way, index))
    else:
        yield way


def _other(value: Any) -> list[Any]:
    """Values that are not this one, of its own type and of others."""
    match value:
        case None:
            return ["x", 1]
        case bool():
            return [not value]
        case int():
            return [value + 1, value - 1, str(value), None, True, 2**70]
        case str() if len(value) in (32, 64) and set(value) <= set("0123456789abcdef"):
            flipped = f"{int(value[0], 16) ^ 1:x}" + value[1:]
            return [flipped, value.upper() + "g", None, 7, ""]
        case str():
            return [value + "x", "\ud800", None, 7]
        case _:
            return [None, 7, {"a": 1}]


# Nothing in a sink says what was never there: bytes and type of a part that was announced as FAILED. The number of
# attempts is the sender's own.
def _is_unknown(receipt: dict[str, Any], way: tuple[Any, ...], value: Any) -> bool:
    if way[0] != "parts":
        return False
    part, field = receipt["parts"][way[1]], way[2]
    if field == "attempts":
        return type(value) is int and 1 <= value < 2**31
    never_sent = part["status"] == "FAILED" and not any(
        scope["parent"] == [part["scope"], part["entity"]] for scope in receipt["scopes"]
    )
    return never_sent and ((field == "type" and isinstance(value, str)) or (field == "bytes" and type(value) is int))


def test_every_change_to_a_field_is_found_and_named(sent: Sent) -> None:
    changes = oriented = 0
    for way in list(_places(sent.receipt)):
        for other in _other(_at(sent.receipt, way)):
            if _is_unknown(sent.receipt, way, other):
                continue
            receipt = copy.deepcopy(sent.receipt)
            _at(receipt, way[:-1])[way[-1]] = other
            differences = sent.differences(receipt)
            assert differences, (way, other)
            assert all(difference.text and "\n" not in difference.text for difference in differences)
            assert any(_names(difference, way) for difference in differences), (way, other, differences)
            assert all(difference.text.startswith("in/0.zip: ") or way == ("document",) for difference in differences)
            said = [_said(difference) for difference in differences if _is_about(difference, way)]
            assert said == [other] * len(said), (way, other, differences)
            oriented += len(said)
            changes += 1
    assert changes > (500 if sent.receipt["scopes"] else 150)
    assert oriented > changes / 2


def _at(value: Any, way: tuple[Any, ...]) -> Any:
    for step in way:
        value = value[step]
    return value


def _names(difference: receipts.Difference, way: tuple[Any, ...]) -> bool:
    """Whether a difference is about the changed field, its object, or the digest over it."""
    if len(way) == 1 or way[0] == "root":
        return way[0] in difference.field or "entities" in difference.field
    return f"{way[0]}[{way[1]}]" in difference.field or "root" in difference.field or "entities" in difference.field


def _is_about(difference: receipts.Difference, way: tuple[Any, ...]) -> bool:
    """Whether a difference is about the value of the changed field itself, and about no other."""
    if len(way) == 1:
        return difference.field == way[0]
    # Of an entity it is said whose child it is.
    return (
        len(way) == 3
        and way[2] != "entity"
        and bool(difference.field.startswith(f"{way[0]}[{way[1]}]") and difference.field.endswith(f".{way[2]}"))
    )


def _said(difference: receipts.Difference) -> Any:
    """What the receipt says, according to a difference."""
    in_sink, in_receipt = "the receipt says" in difference.text, "must be" in difference.text
    assert in_sink or in_receipt, difference.text
    return difference.found if in_receipt else difference.expected


def test_it_says_what_the_receipt_says_and_what_the_sink_has(sent: Sent, copied: Path) -> None:
    index, part = next((at, part) for at, part in enumerate(sent.receipt["parts"]) if part["bytes"] and part["file"])
    with (copied / part["file"]).open("ab") as file:
        file.write(b"x")
    found = {difference.field.rpartition(".")[2]: difference for difference in sent.differences(sink=copied)}
    assert list(found) == ["bytes", "sha256"]
    length = found["bytes"]
    assert (length.expected, length.found) == (part["bytes"], part["bytes"] + 1)
    name = f"in/0.zip: parts[{index}] {' / '.join(part['path'])}.bytes"
    says = f"the receipt says {part['bytes']}, the sink has {part['bytes'] + 1} (counted in {part['file']})"
    assert length.text == f"{name}: {says}"
    assert found["sha256"].expected == part["sha256"]
    root = sent.receipt["content_root"]
    (difference,) = sent.differences({**sent.receipt, "content_root": "0" * 64})
    assert (difference.expected, difference.found) == (root, "0" * 64)
    says = f"must be {root}, but the receipt says {'0' * 64} (computed from the parts)"
    assert difference.text == f"in/0.zip: content_root: {says}"


def test_missing_unknown_and_repeated_fields_are_named(sent: Sent) -> None:
    objects = [(), ("parts", 0), *([("scopes", 0)] if sent.receipt["scopes"] else [])]
    for way in objects:
        # Without a URI the server of the sink has no name that a sender could say.
        for field in _at(sent.receipt, way).keys() - {"uri"}:
            receipt = copy.deepcopy(sent.receipt)
            del _at(receipt, way)[field]
            assert any(difference.field.endswith(field) for difference in sent.differences(receipt)), (way, field)
        receipt = copy.deepcopy(sent.receipt)
        _at(receipt, way)["extra"] = 1
        assert any(difference.field.endswith("extra") for difference in sent.differences(receipt))
    text = json.dumps(sent.receipt).replace('"version": 1', '"version": 1, "version": 1')
    path = sent.folder / "tampered" / "twice.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert "duplicated" in receipts.verify(path, sent.sink)[0].text


def test_parts_and_scopes_cannot_be_left_out_added_or_moved(sent: Sent) -> None:
    for name in ("parts", "scopes"):
        for index in range(len(sent.receipt[name])):
            for change in (_remove, _repeat, _swap):
                receipt = copy.deepcopy(sent.receipt)
                if change(receipt[name], index):
                    assert sent.differences(receipt), (name, index, change.__name__)


def _remove(entries: list[Any], index: int) -> bool:
    del entries[index]
    return True


def _repeat(entries: list[Any], index: int) -> bool:
    entries.insert(index, copy.deepcopy(entries[index]))
    return True


def _swap(entries: list[Any], index: int) -> bool:
    if index + 1 >= len(entries) or "merkle_root" in entries[0]:
        # The order of scopes says nothing.
        return False
    entries[index], entries[index + 1] = entries[index + 1], entries[index]
    return True


def test_every_changed_byte_of_a_payload_is_found(sent: Sent, copied: Path) -> None:
    files = [part["file"] for part in sent.receipt["parts"] if part["file"]]
    assert len(files) > 3
    for file in files:
        path = copied / file
        data = path.read_bytes()
        for position in range(0, len(data), max(1, len(data) // 16)):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            assert any(file in difference.text for difference in sent.differences(sink=copied)), (file, position)
        for changed in (data + b"x", data[:-1] if data else b"y"):
            path.write_bytes(changed)
            assert any(file in difference.text for difference in sent.differences(sink=copied)), file
        path.write_bytes(data)
    assert sent.differences(sink=copied) == []


def test_missing_and_extra_files_are_found(sent: Sent, copied: Path) -> None:
    session = copied / sent.receipt["session"]
    for part in sent.receipt["parts"]:
        if part["file"] is None:
            continue
        path = copied / part["file"]
        data = path.read_bytes()
        path.unlink()
        assert any(part["file"] in difference.text for difference in sent.differences(sink=copied))
        path.symlink_to(sent.sink / part["file"])
        assert any(part["file"] in difference.text for difference in sent.differences(sink=copied)), "a link"
        path.unlink()
        path.mkdir()
        assert sent.differences(sink=copied), "a folder"
        path.rmdir()
        path.write_bytes(data)
    scopes = [sent.receipt["root"][0], *(scope["scope"] for scope in sent.receipt["scopes"])]
    for scope in scopes:
        for name in ("999", ".tmp", "1.7", "x"):
            extra = session / str(scope) / name
            extra.parent.mkdir(exist_ok=True)
            extra.write_bytes(b"x")
            found = [difference.field for difference in sent.differences(sink=copied)]
            assert f"{session.name}/{scope}/{name}" in found
            extra.unlink()
    (session / ".partial").write_bytes(b"")
    assert any(".partial" in difference.field for difference in sent.differences(sink=copied))


def _edit_log(sink: Path, session: str, edit: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    path = sink / session / "entities.jsonl"
    lines = [edit(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line is not None))


def test_a_folder_that_cannot_be_listed_is_a_difference(
    sent: Sent, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterdir, refused = Path.iterdir, copied

    def refuse(path: Path) -> Iterator[Path]:
        if path == refused:
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    for refused in (copied, copied / sent.receipt["session"], copied / sent.receipt["session"] / "0"):
        verified = 0
        for path, differences in receipts.verify_all(sent.path.parent, copied):
            found = [difference.text for difference in differences if difference.field == "sink"]
            assert len(found) == 1, (path, refused)
            assert "the sink cannot be read: [Errno 13] Permission denied" in found[0]
            verified += 1
        assert verified == 3


def test_the_log_must_agree(sent: Sent, copied: Path) -> None:
    session = sent.receipt["session"]
    log = copied / session / "entities.jsonl"
    original = log.read_bytes()
    part = next(part for part in sent.receipt["parts"] if part["file"])

    def is_ours(line: dict[str, Any]) -> bool:
        return (line.get("scope"), line.get("entity")) == (part["scope"], part["entity"])

    for field, value in {
        "status": "FAILED", "file": None, "sha256": "0" * 64, "bytes": 1 << 40, "content_type": "x/y", "parent": 77,
        "metadata": {}, "entity": 12345,
    }.items():  # fmt: skip
        _edit_log(copied, session, lambda line, f=field, v=value: {**line, f: v} if is_ours(line) else line)  # type: ignore[misc]
        assert sent.differences(sink=copied), field
        log.write_bytes(original)
    _edit_log(copied, session, lambda line: None if is_ours(line) else line)
    assert any("entities.jsonl" in difference.field for difference in sent.differences(sink=copied))
    log.write_bytes(original.replace(b'{"closed":0}', b'{"closed":5}'))
    assert any("did not end cleanly" in difference.text for difference in sent.differences(sink=copied))
    for damage in (
        original[:-3],
        original + b"\xff\n",
        original + b"[" * 100_000 + b"\n",
        original.replace(b"{", b"", 1),
    ):
        log.write_bytes(damage)
        assert any("entities.jsonl" in difference.field for difference in sent.differences(sink=copied))
    log.unlink()
    assert any("entities.jsonl" in difference.field for difference in sent.differences(sink=copied))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"null", b"[]", b"{", b"\xff\xfe", b"{}", b'{"version": NaN}', b"[" * 200_000,
        b'{"parts": ' + b"[" * 200_000,
        b'{"version": 1' + b"0" * 10_000 + b"}", b'{"parts": [1, null, []], "scopes": {}}',
    ],
)  # fmt: skip
def test_a_hostile_receipt_is_a_difference_and_no_traceback(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(data)
    differences = receipts.verify(path, tmp_path)
    assert differences
    assert all(len(difference.text) < 1000 for difference in differences)


def test_a_file_outside_of_the_sink_is_never_opened(sent: Sent) -> None:
    for file in ("../../etc/passwd", "/etc/passwd", f"{sent.receipt['session']}/../../x", "a" * 32 + "/0/../1"):
        receipt = copy.deepcopy(sent.receipt)
        receipt["parts"][0]["file"] = file
        assert [difference.field for difference in sent.differences(receipt)] == ["parts[0].file"]


def test_an_open_session_is_waited_for_but_not_for_ever(sent: Sent, copied: Path) -> None:
    log = copied / sent.receipt["session"] / "entities.jsonl"
    log.write_bytes(log.read_bytes().replace(b'{"closed":0}\n', b""))
    assert any("did not end cleanly" in difference.text for difference in sent.differences(sink=copied))


def test_receipts_are_written_whole(sent: Sent, tmp_path: Path) -> None:
    assert sent.path.stem == sent.path.name.removesuffix(".json")
    assert sorted(os.listdir(sent.path.parent)) == sorted(  # noqa: PTH208
        path.name for path in sent.path.parent.glob("*.json")
    )
    assert receipts.load(sent.path) == sent.receipt
    renamed = tmp_path / f"{'0' * 32}.json"
    shutil.copy(sent.path, renamed)
    assert [difference.field for difference in receipts.verify(renamed, sent.sink)] == ["document"]


def test_the_command_names_every_difference(
    sent: Sent, copied: Path, penstock: Callable[..., Any], usage: Callable[..., Any]
) -> None:
    run = penstock("verify", sent.path, sent.sink)
    assert (run.returncode, run.stderr) == (0, "")
    folder = penstock("verify", sent.path.parent, sent.sink)
    assert "3 receipts verified" in folder.stdout
    part = next(part for part in sent.receipt["parts"] if part["bytes"] and part["file"])
    (copied / part["file"]).write_bytes(b"other")
    run = penstock("verify", sent.path.parent, copied, "--json")
    assert run.returncode == 1
    fields = [json.loads(line)["field"] for line in run.stdout.splitlines()]
    assert any(field.endswith(".sha256") for field in fields)
    assert run.stderr.count("\n") == 1
    assert usage("verify", sent.path, copied / "none").returncode == 2
    assert penstock("verify", copied, copied).returncode == 1


def test_what_a_killed_process_staged_is_removed_by_the_next_and_what_a_running_one_stages_is_not(tmp_path):
    program = (
        "import sys, pathlib; from penstock._staged_receipts import StagedReceipts\n"
        "with StagedReceipts(pathlib.Path(sys.argv[1])) as staged:\n"
        "    (staged._staging / 'half.json').write_text('{')\n"
        "    print('staged', flush=True); sys.stdin.read()\n"
    )

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"staged\n"
        return process

    killed, running = start(), start()
    staged = {path.name for path in tmp_path.glob(".receipts-*")}
    assert len(staged) == 2
    killed.kill()
    killed.communicate()
    (tmp_path / ".receipts-of-another-machine").mkdir()
    with StagedReceipts(tmp_path):
        left = {path.name for path in tmp_path.glob(".receipts-*")}
        assert len(left & staged) == 1, "that of the killed process is gone, that of the running one is not"
        assert ".receipts-of-another-machine" in left
    running.communicate(b"")
    assert [path.name for path in tmp_path.glob(".receipts-*")] == [".receipts-of-another-machine"]
