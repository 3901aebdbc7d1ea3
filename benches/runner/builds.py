"""Release builds, made once in a run: programs of ours, programs of the peers, the extension.

Quick runs use the development profile and the whole workspace's features, which tests have built anyway.
`CARGO_TARGET_DIR` is respected. The peers' programs, some of which are called as ours are, lie apart in it. The
extension lies in a folder of its own, with a copy of the Python side: what `make develop` has built stays as it is.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from benches.runner.machine import REPOSITORY

PEERS = REPOSITORY / "benches" / "peers" / "Cargo.toml"
OURS = REPOSITORY / "Cargo.toml"


class Builds:
    """Builds what suites ask for, and remembers it."""

    def __init__(self, console: Console, *, quick: bool = False) -> None:
        self._console = console
        self._quick = quick
        self._programs: dict[tuple[Path, str], dict[str, Path]] = {}
        self._python: Path | None = None

    def program(self, package: str, name: str, manifest: Path) -> Path:
        """The release binary `name` of a package."""
        key = (manifest, package)
        if key not in self._programs:
            # A package alone has other features than the workspace, and everything below it is built once more.
            choice = ["--workspace"] if self._quick and manifest == OURS else ["--package", package]
            self._programs[key] = self._cargo(manifest, *choice, "--bins")
        return self._programs[key][name]

    @staticmethod
    def target() -> Path:
        """Where builds lie."""
        return Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))

    def extension(self) -> Path:
        """A folder for PYTHONPATH: penstock's Python side and the extension in release."""
        if self._python is None:
            library = self._cargo(OURS, "--package", "penstock-py", "--lib")["_core"]
            target = library.parents[1] / "bench-python" / _name_of(REPOSITORY)
            shutil.rmtree(target, ignore_errors=True)
            ignored = shutil.ignore_patterns("*.so", "*.so.new", "__pycache__")
            shutil.copytree(REPOSITORY / "python", target, ignore=ignored)
            shutil.copy2(library, target / "penstock" / "_core.abi3.so")
            self._python = target
        return self._python

    def use_extension(self) -> dict[str, str]:
        """Put the release extension first for this process and those that it starts; gives their environment."""
        folder = str(self.extension())
        if folder not in sys.path:
            loaded = [name for name in sys.modules if name.partition(".")[0] == "penstock"]
            if loaded:
                raise RuntimeError(f"penstock was imported before the release extension was there: {loaded[:3]}")
            sys.path.insert(0, folder)
            others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(REPOSITORY), *others])
        return dict(os.environ)

    def _cargo(self, manifest: Path, *choice: str) -> dict[str, Path]:
        """What a release build made, by the name of its target."""
        profile = [] if self._quick else ["--release"]
        command = ["cargo", "build", *profile, "--locked", "--manifest-path", str(manifest), *choice]
        if manifest == PEERS:
            command += ["--target-dir", str(self.target() / "peers")]
        self._console.print(f"building {' '.join(choice)} of {manifest.relative_to(REPOSITORY)}", style="dim")
        done = subprocess.run(
            [*command, "--message-format", "json-render-diagnostics"],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        made = {}
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if message["reason"] != "compiler-artifact":
                continue
            if message.get("executable"):
                made[message["target"]["name"]] = Path(message["executable"])
            elif "cdylib" in message["target"]["crate_types"]:
                made[message["target"]["name"]] = _shared_library(message["filenames"])
        return made


def _shared_library(names: list[str]) -> Path:
    return next(Path(name) for name in names if name.endswith((".so", ".dylib")))


def _name_of(path: Path) -> str:
    """Tells clones apart that share a target folder."""
    return path.as_posix().strip("/").replace("/", "-")
