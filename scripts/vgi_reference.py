"""Makes an environment with the package vgi-rpc 0.10.0, which tests and benchmarks talk to; prints its Python.

It needs Python 3.13, and lies in ``.cache/vgi-reference`` of the repository. Exit code 3 says that there is no 3.13.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".cache" / "vgi-reference"
PACKAGES = ["vgi-rpc[http,external]==0.10.0", "pyarrow", "pytest", "pytest-timeout"]


def interpreter() -> str | None:
    """Find a Python 3.13: by its name, or among those that pyenv keeps."""
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.13*/bin/python"))
    for candidate in (*kept, shutil.which("python3.13"), sys.executable):
        if candidate is None:
            continue
        asked = subprocess.run(
            [candidate, "-c", "import sys; print(sys.version_info[:2] >= (3, 13))"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.stdout.strip() == "True":
            return str(candidate)
    return None


def main() -> int:
    """Make it if it is not there, and print the path of its Python."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        # Tests run in several processes, and each may be the first to need it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _make()


def _make() -> int:
    python = FOLDER / "bin" / "python"
    ready = FOLDER / ".ready"
    wanted = "\n".join(PACKAGES)
    if not ready.exists() or ready.read_text() != wanted:
        base = interpreter()
        if base is None:
            print("no Python 3.13 here: the package vgi-rpc cannot be installed", file=sys.stderr)
            return 3
        shutil.rmtree(FOLDER, ignore_errors=True)
        subprocess.run([base, "-m", "venv", str(FOLDER)], check=True, stdout=sys.stderr)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True, stdout=sys.stderr)
        ready.write_text(wanted)
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
