"""Tests that have a long form, which runs where PENSTOCK_LONG_TESTS is set."""

import os
from typing import Any

import pytest

LONG = bool(os.environ.get("PENSTOCK_LONG_TESTS"))


def seeds(short: int, long: int) -> list[Any]:
    """Give the seeds of a random test. The summary says in one line which of them only the long form has."""
    if LONG:
        return list(range(long))
    reason = f"LONG FORM: {long - short} more seeds run with PENSTOCK_LONG_TESTS=1"
    return [*range(short), pytest.param(short, marks=pytest.mark.skip(reason=reason), id=f"{short} to {long - 1}")]
