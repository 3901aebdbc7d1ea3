"""A disk that can be filled: a small file system of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "disk"]


class SmallDisk:
    """A file system of its own for a sink."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self.ballast = mount / ".ballast"

    def fill(self, leave: int = 0) -> None:
        """Takes all space but about `leave` bytes."""
        with self.ballast.open("wb", buffering=0) as file:
            for size in (4096, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))
            file.truncate(max(0, file.tell() - leave))

    def free(self) -> None:
        self.ballast.unlink()

    def take_names(self) -> None:
        """No file or folder can be made any more."""
        with suppress(OSError):
            for number in range(1000):
                (self.mount / f".name-{number}").touch()

    def free_names(self) -> None:
        for path in self.mount.glob(".name-*"):
            path.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("NOT TESTED: a full disk; to mount a small one takes Linux and root")
    mount = tmp_path / "disk"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=200", "none", str(mount)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: a full disk; a mount takes CAP_SYS_ADMIN: {mounted.stderr.strip()}")
    yield SmallDisk(mount)
    # Lazily: a server of a test that failed may still hold files.
    subprocess.run(["umount", "--lazy", str(mount)], check=True)
