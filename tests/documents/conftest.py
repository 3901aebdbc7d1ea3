"""What the tests of documents share."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.documents import Part, dehydrate


@pytest.fixture
def tree() -> Callable[..., dict[tuple[str, ...], Part]]:
    """Take a document apart and give its parts by path; the document itself is at ``()``."""

    def take(name: str, data: bytes, **options: Any) -> dict[tuple[str, ...], Part]:
        return {part.path: part for part in dehydrate(name, data, **options)}

    return take
