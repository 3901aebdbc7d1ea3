"""The buffer that is met: that of PENSTOCK_PIMP=URL, or one of ours in a process of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pimp_http import Patient, serve


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("buffer")) as url:
        yield url


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60, transport=Patient()) as client:
        yield client
