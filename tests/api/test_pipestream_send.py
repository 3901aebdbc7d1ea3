"""`penstock pipestream send`, in a process of its own."""

import pytest

PIN = "ab" * 32


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "note.txt"
    path.write_bytes(b"A line of text.")
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("localhost", "--fingerprint", PIN),
        ("localhost:0", "--fingerprint", PIN),
        ("localhost:65536", "--fingerprint", PIN),
        ("::1:4433", "--fingerprint", PIN),
        ("127.0.0.1:1", "--fingerprint", "abc"),
        ("127.0.0.1:1", "--fingerprint", PIN + "00"),
        ("127.0.0.1:1", "--ca", "none.pem"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--cert", "none.pem", "--key", "note.txt"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--cert", "note.txt", "--key", "none.pem"),
        ("127.0.0.1:1", "--fingerprint", PIN, "--cert", "note.txt"),
        ("127.0.0.1:1",),
        ("127.0.0.1:1", "none.txt", "--fingerprint", PIN),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_2(penstock, document, arguments):
    address, *options = arguments
    ended = penstock("pipestream", "send", address, document, *options, cwd=document.parent)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
