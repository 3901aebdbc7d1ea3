"""The examples in the docstrings run."""

import doctest
import importlib

import pytest

MODULES = ("pimp._buffer", "pimp._consumer", "pimp._job", "pimp._options", "pimp._sender", "pimp._trigger", "aio.pimp")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"penstock.{name}"))
    assert results.attempted
    assert not results.failed
