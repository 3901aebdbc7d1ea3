"""What the tests of PIMP share: buffers in this process, and those of the command line, which may be killed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from penstock.pimp import Buffer, Job

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance" / "pimp"))

from pimp_http import Served, run_buffer


@pytest.fixture
def buffer() -> Iterator[Buffer]:
    """Give a buffer in memory, in plain text."""
    with Buffer(behind_proxy=True) as buffer:
        yield buffer


@pytest.fixture
def job(buffer: Buffer) -> Job:
    """Give a fresh job of it, which is read with a key."""
    return Job.create(buffer.url, read_key="reader", retry=5.0)


@pytest.fixture
def serve() -> Callable[..., AbstractContextManager[Served]]:
    """Give what runs ``penstock pimp serve``; it is killed at the end."""
    return run_buffer
