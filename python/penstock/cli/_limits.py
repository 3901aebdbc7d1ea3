"""The limits of a PipeStream end as options, such as ``--max-header`` for `penstock.pipestream.Limits.max_header`."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from penstock._pipestream_limits import LIMITS, SERVER_LIMITS, Limits

__all__ = ["limited"]

_HELP = {
    "max_connections": "Maximum concurrent connections; default 1,024.",
    "max_scope_depth": "Maximum nesting depth of scopes; default 7.",
    "max_entities_per_scope": "Maximum entities per scope, in total; default 4,294,967,294.",
    "max_open_entities": "Maximum entities per session without a terminal status; default 1,000,000.",
    "max_open_parents": "Maximum open parents per session; default 1,000,000.",
    "max_children": "Maximum children per parent, whatever its size; default 4,294,967,294.",
    "max_children_per_mib": "Maximum children per parent for each MiB of its original; default 1,000.",
    "max_parent_time": "Seconds that a parent may stay open; default 3,600.",
    "max_open_checkpoints": "Maximum unanswered checkpoints; default 1,024.",
    "max_checkpoint_time": "Seconds that a checkpoint may stay open; default: what it requests.",
    "max_header": "Maximum bytes of a header; default 1 MiB.",
    "max_metadata": "Maximum bytes of metadata in a header; default 1 MiB.",
    "max_held_headers": "Maximum bytes of headers that wait for their announcement; default 16 MiB.",
    "max_claims": "Maximum stored claim checks; default 1,000,000.",
    "max_claim_life": "Seconds that a claim check is valid; default 86,400.",
}


def _option(name: str) -> Any:
    least, most = LIMITS[name]
    kind: Any = int if isinstance(least, int) else float
    seconds = "S" if kind is float else "N"

    def checked(value: float | None) -> float | None:
        if value is not None and not least <= value <= most:
            raise typer.BadParameter(f"{value} is not in the range from {least} to {most}")
        return value

    return Annotated[
        kind | None,
        typer.Option(metavar=seconds, help=_HELP[name], rich_help_panel="Limits", callback=checked),
    ]


def limited(*, server: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of limits to a command, which receives those that were set as its argument ``limits``."""
    names = [name for name in LIMITS if server or name not in SERVER_LIMITS]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            found = {name: given.pop(name) for name in names}
            command(**given, limits=Limits(**{name: value for name, value in found.items() if value is not None}))

        hints = get_type_hints(command, include_extras=True)
        options = {name: _option(name) for name in names}
        own = [
            parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(command).parameters.values()
            if parameter.name != "limits"
        ]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]
        run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
        return run

    return decorate
