"""Files that are followed over rotation of every kind, and the file of positions."""

import json
import threading
from pathlib import Path

import pytest

from penstock import LumberjackError, _following
from penstock._following import Followed
from penstock._lines import Lines
from penstock._positions import Place, Positions
from penstock._shipping import follow_files, send_files
from penstock.lumberjack import Sender

from ..ports import free_address


def drain(followed: Followed) -> list[str]:
    """Take what is there, and take it for acknowledged."""
    lines: list[str] = []
    while (found := followed.read()) is not None:
        lines += found.text.decode().splitlines()
        found.place.offset = found.end
    return lines


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def rotate(log: Path, to: str, text: str) -> None:
    """Rename it, and begin a new one."""
    log.rename(log.with_name(f"{log.name}{to}"))
    log.write_text(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_text("one\n")
    return path


def test_what_is_written_into_a_file_after_it_was_renamed_is_read_too(log, monkeypatch):
    followed = Followed(log, [])
    assert drain(followed) == ["one"]
    with log.open("a", buffering=1) as old:
        rotate(log, ".1", "new\n")
        assert drain(followed) == ["new"]
        old.write("late\nopen")
        assert drain(followed) == ["late"], "a writer learns of its new name later"
        add(log, "newer\n")
        assert drain(followed) == ["newer"]
    monkeypatch.setattr(_following, "GRACE", 0.0)
    assert drain(followed) == ["open"], "no line ends there, and nothing more comes"
    followed.close()


def test_files_that_had_the_name_unseen_are_read_in_order(log):
    followed = Followed(log, [])
    assert drain(followed) == ["one"]
    add(log, "two\n")
    for number in range(3):
        rotate(log, f".{number}", f"generation {number}\n")
    assert drain(followed) == ["two", "generation 0", "generation 1", "generation 2"]
    assert drain(followed) == []
    followed.close()


def test_the_next_run_reads_what_was_rotated_meanwhile_and_nothing_twice(log, tmp_path):
    (tmp_path / "app.log.0").write_text("before anybody followed\n")
    followed = Followed(log, [])
    assert drain(followed) == ["one"]
    followed.close()
    positions = Positions(tmp_path / "positions.json")
    positions.keep({"log": followed.places()})
    add(log, "two\n")
    rotate(log, "-20261121", "three\n")
    rotate(log, "-20261122", "four\n")
    (tmp_path / "app.log-20261120.gz").write_bytes(b"compressed")
    (tmp_path / "app.log.err").write_text("of another program\n")
    (tmp_path / "app.log.err.1").write_text("of another program\n")
    again = Followed(log, Positions(tmp_path / "positions.json")["log"])
    assert drain(again) == ["two", "three", "four"]
    again.close()
    last = Followed(log, again.places())
    assert drain(last) == []
    last.close()


def test_a_file_that_was_truncated_and_has_grown_again_is_read_from_its_beginning(log):
    followed = Followed(log, [])
    assert drain(followed) == ["one"]
    log.write_text("another line, longer than what was there\n")
    assert drain(followed) == ["another line, longer than what was there"]
    log.write_text("short\n")
    assert drain(followed) == ["short"]
    followed.close()


def test_the_rest_of_a_file_that_was_copied_and_truncated_is_read_from_the_copy(log, tmp_path):
    followed = Followed(log, [])
    assert drain(followed) == ["one"]
    add(log, "two\nthr")
    assert drain(followed) == ["two"]
    add(log, "ee\n")
    (tmp_path / "app.log.1").write_text(log.read_text())
    log.write_text("a new beginning, which is longer\n")
    assert drain(followed) == ["three", "a new beginning, which is longer"]
    add(log, "more\n")
    followed.close()
    again = Followed(log, followed.places())
    assert drain(again) == ["more"]
    again.close()


def test_a_copy_of_a_file_that_goes_on_is_not_sent_again(log, tmp_path):
    log.write_text(lines := "".join(f"line {number}\n" for number in range(500)))
    followed = Followed(log, [])
    assert drain(followed) == lines.splitlines()
    (tmp_path / "app.log-20261122").write_text(lines + "more\n")
    add(log, "more\n")
    rotate(log, ".1", "new\n")
    assert drain(followed) == ["more", "new"]
    followed.close()


def test_an_inode_that_is_used_again_is_another_file(log):
    status = log.stat()
    place = Place(status.st_dev, status.st_ino, 4)
    place.learn(b"old\n")
    followed = Followed(log, [place])
    assert drain(followed) == ["one"]
    followed.close()


def test_followers_with_one_file_of_positions_keep_the_places_of_each_other(tmp_path):
    path = tmp_path / "positions.json"

    def keep(name: str, kept: Positions) -> None:
        for at in range(1, 51):
            kept.keep({name: [Place(1, 1, at)]})

    keepers = [threading.Thread(target=keep, args=(name, Positions(path))) for name in ("a", "b")]
    for each in keepers:
        each.start()
    for each in keepers:
        each.join()
    kept = Positions(path)
    assert (kept["a"][0].offset, kept["b"][0].offset) == (50, 50)


@pytest.mark.parametrize("damaged", ["{", '{"files":{"x":{"device":1}}}', "[]", '{"files":{"x":null}}', "\0"])
def test_a_damaged_file_of_positions_is_one_line_and_exit_1(penstock, log, tmp_path, damaged):
    (tmp_path / "positions").write_text(damaged)
    with pytest.raises(LumberjackError, match="not a file of positions"):
        Positions(tmp_path / "positions")
    if damaged == "{":
        options = ("--file", str(log), "--follow", "--positions", str(tmp_path / "positions"))
        ended = penstock("lumberjack", "send", "127.0.0.1:9", *options)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
        assert "remove it" in ended.stderr


def test_nothing_is_lost_while_nobody_takes_events_and_files_are_rotated(tmp_path, log, taking):
    address = free_address()
    told = threading.Event()
    sender = Sender(address, window=50)
    files = ([log], Positions(tmp_path / "positions.json"), told.wait)
    thread = threading.Thread(target=follow_files, args=(sender, *files))
    thread.start()
    expected = ["one"]
    try:
        while not (tmp_path / "positions.json").exists():
            assert not told.wait(0.01)
        for number in range(4):
            lines = [f"{number} {line}" for line in range(500)]
            add(log, "".join(f"{line}\n" for line in lines))
            expected += lines
            rotate(log, f".{number}", "")
        add(log, "end\n")
        receiver = taking(listen=address)
        events = receiver.wait(len(expected) + 1)
    finally:
        told.set()
        thread.join()
    assert [event["message"] for event in events] == [*expected, "end"]


# Lines that are too long.


def pieces(data: bytes, size: int = 1 << 20) -> list[bytes]:
    noted: list[int] = []
    lines = Lines(0, noted.append)
    found = [piece for at in range(0, len(data), size) for piece in lines.push(data[at : at + size])]
    found += lines.rest()
    assert [offset for _, offset in found] == [sum(len(text) for text, _ in found[:at]) for at in range(len(found))]
    assert b"".join(text for text, _ in found) == data
    assert bool(noted) == any(not text.endswith(b"\n") for text, _ in found[:-1])
    return [text for text, _ in found]


@pytest.mark.parametrize(
    "line",
    [
        b"\0" * (3 << 20),
        b"\1" * (20 << 20),
        "\u00e9\r".encode() * (7 << 20),
        b"\xff" * (4 << 20),
        b'{"a":"%s"}' % bytes(17 << 20),
    ],
    ids=["a hole", "control characters", "characters", "no characters", "JSON beyond the limit"],
)
def test_a_line_that_no_receiver_would_take_is_cut(line):
    found = pieces(b"before\n" + line + b"\nbehind\n")
    assert len(found) > 3
    for text in found:
        as_json = json.dumps(text.decode("utf-8", "backslashreplace"), ensure_ascii=False)
        assert len(as_json.encode()) < 15 << 20
    if line.startswith(b"\xc3"):
        assert all(text.decode() and not text.endswith(b"\r") for text in found)


@pytest.mark.parametrize("line", [b"x" * (9 << 20), b'{"a":"%s"}' % (b'\\"' * (7 << 20))], ids=["text", "JSON"])
def test_a_long_line_that_fits_is_one_event(line):
    assert line + b"\n" in b"".join(pieces(b"before\n" + line + b"\n")).splitlines(keepends=True)
    assert max(map(len, pieces(line + b"\n"))) == len(line) + 1


def test_a_hole_in_a_file_stops_nothing_behind_it(taking, tmp_path, caplog):
    (tmp_path / "log").write_bytes(b"a\n" + bytes(3 << 20) + b"\nz\n")

    class Never:
        is_set = False

    receiver = taking()
    assert send_files(Sender(receiver.address, compress=0), [tmp_path / "log"], Never()) == 4
    messages = [event["message"] for event in receiver.wait(4)]
    assert (messages[0], messages[3], "".join(messages[1:3])) == ("a", "z", "\0" * (3 << 20))
    assert "too long for one event" in caplog.text
