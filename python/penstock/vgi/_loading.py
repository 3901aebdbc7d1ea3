"""Loading of the service that a command line names."""

import inspect
from importlib import import_module
from typing import Any

from penstock.errors import VgiError
from penstock.vgi.rpc import RpcServer, rpc_methods

__all__ = ["load_server"]


def load_server(name: str, *, describe: bool, dialect: str | None) -> RpcServer:
    """Return a server for ``MODULE:SERVICE``: an RpcServer, a function that returns one, or an implementation.

    An implementation is an object, or a class whose constructor needs no arguments. Its protocol is the one that it
    derives from, else the only one in its module of which it has all methods.

    Args:
        name: The module and the service, ``MODULE:SERVICE``.
        describe: Whether to answer ``__describe__`` even if the RpcServer does not.
        dialect: The dialect; None keeps that of the RpcServer, else means the default.

    Raises:
        VgiError: If the name cannot be loaded, or its protocol cannot be determined.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise VgiError(f"{name!r} is not MODULE:SERVICE", "misuse")
    try:
        module = import_module(module_name)
        found: Any = getattr(module, attribute)
    except (ImportError, AttributeError) as error:
        raise VgiError(f"{name}: {error}", "misuse") from error
    if inspect.isclass(found) or inspect.isfunction(found):
        found = found()
    if isinstance(found, RpcServer):
        return found.with_options(enable_describe=describe, dialect=dialect)
    return RpcServer(_protocol_of(found, module), found, enable_describe=describe, dialect=dialect)


def _protocol_of(implementation: object, module: Any) -> type:
    for base in type(implementation).__mro__[1:]:
        if getattr(base, "_is_protocol", False) and rpc_methods(base):
            return base
    fitting = []
    for candidate in vars(module).values():
        if inspect.isclass(candidate) and getattr(candidate, "_is_protocol", False):
            methods = rpc_methods(candidate)
            if methods and all(callable(getattr(implementation, each, None)) for each in methods):
                fitting.append(candidate)
    if len(fitting) != 1:
        named = ", ".join(each.__name__ for each in fitting) or "none"
        raise VgiError(
            f"{type(implementation).__name__} implements {named} of the protocols in {module.__name__}: derive it from "
            "the intended one, or use an RpcServer",
            "misuse",
        )
    return fitting[0]
