"""Where penstock keeps what must outlive a run, such as development certificates."""

import os
from pathlib import Path

__all__ = ["certificate_folder", "state_dir"]


def state_dir() -> Path:
    """Give ``$PENSTOCK_STATE``, else ``$XDG_STATE_HOME/penstock``, else ``~/.local/state/penstock``."""
    if own := os.environ.get("PENSTOCK_STATE"):
        return Path(own)
    # The XDG specification: a path that is not absolute is to be ignored.
    shared = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".local" / "state") / "penstock"


def certificate_folder(folder: str | Path | None) -> Path:
    """Name the folder of the development certificate."""
    return (state_dir() if folder is None else Path(folder)) / "certificate"
