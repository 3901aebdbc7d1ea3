"""The folders for state that outlives a run, such as development certificates."""

import os
from pathlib import Path

__all__ = ["certificate_folder", "state_dir"]


def state_dir() -> Path:
    """Return ``$PENSTOCK_STATE``, else ``$XDG_STATE_HOME/penstock``, else ``~/.local/state/penstock``."""
    if own := os.environ.get("PENSTOCK_STATE"):
        return Path(own)
    # The XDG specification requires that a relative path is ignored.
    shared = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".local" / "state") / "penstock"


def certificate_folder(folder: str | Path | None) -> Path:
    """Return the folder of the development certificate."""
    return (state_dir() if folder is None else Path(folder)) / "certificate"
