"""What is in a folder: all of it is listed, and what cannot be read becomes a FAILED document."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock._folders import list_documents
from penstock.documents import dehydrate
from penstock.pipestream import Server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of every kind there is."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_bytes(b"x")
    (folder / "sub-file").write_bytes(b"y")
    os.mkfifo(folder / "fifo")
    (folder / "broken").symlink_to("nowhere")
    (folder / "circle").symlink_to("circle")
    (folder / "up").symlink_to(folder)
    (folder / "link").symlink_to("sub/file")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
    return folder


def _names(folder: Path) -> list[str]:
    return [name for name, _ in list_documents(str(folder))]


def test_everything_is_listed_but_links_to_folders(folder: Path) -> None:
    assert _names(folder) == ["broken", "circle", "fifo", "link", "socket", "sub-file", "sub/file"]
    assert _names(folder / "sub" / "file") == ["file"]
    assert _names(folder / "broken") == ["broken"]


def test_a_folder_that_cannot_be_listed_is_a_document(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path == str(folder / "sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert _names(folder)[-2:] == ["sub-file", "sub"]
    assert _names(folder / "sub") == ["sub"]
    (part,) = dehydrate("sub", folder / "sub")
    assert (part.status, bool(part.reason)) == ("FAILED", True)


def test_what_cannot_be_read_is_sent_as_failed(folder: Path, tmp_path: Path, penstock: Callable[..., Any]) -> None:
    with Server("127.0.0.1:0", sink=tmp_path / "sink", state_dir=tmp_path) as server:
        ended = penstock("pipestream", "send", server.address, folder, "--fingerprint", server.fingerprint, "--json")
    sent = {line["document"]: line for line in map(json.loads, ended.stdout.splitlines())}
    assert list(sent) == _names(folder)
    complete = {name for name, line in sent.items() if line["status"] == "COMPLETE"}
    assert complete == {"link", "sub-file", "sub/file"}
    assert all(line["reason"] for name, line in sent.items() if name not in complete)
    assert ended.returncode == 1
    assert "4 of 7 documents are not COMPLETE" in ended.stderr
