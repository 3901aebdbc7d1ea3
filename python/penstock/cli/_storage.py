"""Options and arguments for folders that may be URIs, and ``--storage``."""

from pathlib import Path
from typing import Annotated

import typer

from penstock._places import check_storage, is_uri, local_path

__all__ = ["StorageOption", "existing", "existing_folder", "folder", "storage_options"]

StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="Object-store option, such as endpoint=URL; repeatable; default: the environment."
    ),
]


def _place(value: str | None) -> str | None:
    """Return a local path or the URI of a store."""
    if value is None or is_uri(value):
        return value
    try:
        return local_path(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def folder(value: str | None) -> str | None:
    """Reject a file; the folder need not exist."""
    found = _place(value)
    if found is not None and not is_uri(found) and Path(found).is_file():
        raise typer.BadParameter(f"Directory '{found}' is a file.")
    return found


def existing(value: str) -> str:
    """Reject a local path that does not exist."""
    found = _place(value)
    if found is None or (not is_uri(found) and not Path(found).exists()):
        raise typer.BadParameter(f"Path '{value}' does not exist.")
    return found


def existing_folder(value: str) -> str:
    """Reject a local path that is not a folder."""
    found = existing(value)
    if not is_uri(found) and not Path(found).is_dir():
        raise typer.BadParameter(f"Directory '{value}' is a file.")
    return found


def storage_options(given: list[str] | None, *uris: str | None) -> dict[str, str]:
    """Parse the ``NAME=VALUE`` options; an invalid one is an error of the command line."""
    options: dict[str, str] = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"--storage must be NAME=VALUE, not {each!r}")
        options[name] = value
    if options and not any(uri is not None and is_uri(uri) for uri in uris):
        raise typer.BadParameter("--storage requires an object-store URI, and none was given")
    try:
        return check_storage(options, *uris)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
