"""The public surface: every module says what it exports, and has the names that users are promised."""

import ast
import importlib
import inspect
import pkgutil
import types

import penstock

# Names that others build against; a module is held to them from the day it is there.
PROMISED = {
    "penstock.pipestream": {
        "Barrier", "Capabilities", "Checkpoint", "CompletionPolicy", "Entity", "EntityHeader", "EntityIdSpace",
        "Manifest", "Scope", "ScopeDigest", "Server", "Session", "Status", "StatusFrame", "merkle_root",
    },
    "penstock.lumberjack": {"Batch", "Event", "Receiver", "Sender"},
    "penstock.quicx": {"Daemon", "Pool", "Producer", "Stats", "Worker"},
    "penstock.pimp": {"Buffer", "Consumer", "Job", "Sender"},
    "penstock.documents": {"Composite", "Part", "dehydrate", "rehydrate"},
    "penstock.spark": {"COMPOSITE_SCHEMA", "PART_SCHEMA", "dehydrate", "register", "rehydrate"},
}  # fmt: skip


def _modules() -> list[types.ModuleType]:
    names = [module.name for module in pkgutil.walk_packages(penstock.__path__, "penstock.")]
    public = [name for name in names if not any(part.startswith("_") for part in name.split("."))]
    return [penstock, *(importlib.import_module(name) for name in public)]


def _is_public_here(name: str, value: object, module: types.ModuleType) -> bool:
    """Whether a module defines a class or function under a public name, rather than importing it."""
    if name.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)):
        return False
    return value.__module__ == module.__name__


def test_every_module_exports_what_it_defines(saw):
    modules, names = _modules(), 0
    for module in modules:
        exported = getattr(module, "__all__", None)
        assert exported is not None, f"{module.__name__} has no __all__"
        assert len(set(exported)) == len(exported), f"{module.__name__}.__all__ has a name twice"
        for name in exported:
            assert hasattr(module, name), f"{module.__name__}.__all__ names {name}, which is not there"
        hidden = {name for name, value in vars(module).items() if _is_public_here(name, value, module)} - set(exported)
        assert not hidden, f"{module.__name__} defines {hidden} and does not export them: a leading _ or __all__"
        names += len(exported)
    saw(len(modules), "modules", at_least=4)
    saw(names, "exported names", at_least=12)


def test_the_package_exports_every_error(saw):
    errors = set(penstock.errors.__all__)
    assert set(penstock.__all__) == errors | {"__version__"}
    for name in errors:
        assert getattr(penstock, name) is getattr(penstock.errors, name)
    saw(len(errors), "names of errors", at_least=9)


def test_promised_names_are_there(saw):
    modules = [module for module in _modules() if module.__name__ in PROMISED]
    for module in modules:
        missing = PROMISED[module.__name__] - set(module.__all__)
        assert not missing, f"{module.__name__} lacks {missing}"
    saw(len(modules), "modules with promised names", at_least=0)


def test_the_stub_of_the_core_exports_what_the_core_has(repository, saw):
    from penstock import _core

    stub = ast.parse((repository / "python" / "penstock" / "_core.pyi").read_text())
    described = {
        element.value
        for node in stub.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
        for element in ast.walk(node.value)
        if isinstance(element, ast.Constant)
    }
    there = {name for name in vars(_core) if not name.startswith("__") or name == "__version__"}
    assert described == there
    saw(len(there), "names of penstock._core", at_least=2)
