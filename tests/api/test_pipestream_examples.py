"""The examples in the documentation of penstock.pipestream say the truth."""

import doctest
import importlib
import pkgutil

from penstock import _core, pipestream


def test_every_example_gives_what_it_says():
    names = [f"{pipestream.__name__}.{module.name}" for module in pkgutil.iter_modules(pipestream.__path__)]
    tried = 0
    for name in names:
        results = doctest.testmod(importlib.import_module(name))
        assert results.failed == 0, name
        tried += results.attempted
    assert tried >= 25


def test_what_comes_from_the_core_is_documented():
    undocumented = [
        name for name, member in vars(_core.EntityIdSpace).items() if not name.startswith("_") and not member.__doc__
    ]
    assert undocumented == []
