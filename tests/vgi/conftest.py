"""The package vgi-rpc 0.10.0, the reference, and its own tests, which run against ours and with ours."""

import compileall
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def reference() -> Path:
    """The Python of an environment with the reference; without a Python 3.13 its tests are skipped."""
    made = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "vgi_reference.py")], capture_output=True, text=True, check=False
    )
    if made.returncode == 3:
        pytest.skip("NOT TESTED: the package vgi-rpc; it needs a Python 3.13 in PATH: `pyenv install 3.13`")
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@pytest.fixture(scope="session")
def translated(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reference's conformance service and tests as the package `vgi_conformance`.

    Nothing but their imports is changed, which is what a user has to do.
    """
    found = next(reference.parents[1].glob("lib/python*/site-packages/vgi_rpc/conformance"))
    folder = tmp_path_factory.mktemp("translated")
    package = folder / "vgi_conformance"
    package.mkdir()
    for file in found.glob("*.py"):
        text = re.sub(r"\bvgi_rpc\.conformance\b", "vgi_conformance", file.read_text())
        text = re.sub(r"^(\s*(?:from|import) )vgi_rpc\b", r"\1penstock.vgi", text, flags=re.MULTILINE)
        (package / file.name).write_text(text)
    # Each caller and each worker would compile it, and they write no bytecode.
    compileall.compile_dir(package, quiet=1)
    return folder


@pytest.fixture(scope="session")
def run_suite(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, int]]:
    """Run the reference's tests with a Python, over a transport, against a worker; give how many did what."""

    def run(python: Path | str, suite: str, transport: str, worker: list[str], **environment: str) -> dict[str, int]:
        folder = tmp_path_factory.mktemp("suite")
        (folder / "conftest.py").write_text((HERE / "suite_conftest.py").read_text())
        # Its own limit of five seconds is too little for a machine that is busy.
        (folder / "test_suite.py").write_text(f"from {suite}._pytest_suite import *\npytestmark = []\n")
        plugins = ["-p", "no:cacheprovider", "-p", "pytest_timeout"]
        done = subprocess.run(
            [str(python), "-m", "pytest", "-q", *plugins, "--timeout", "60", "test_suite.py"],
            cwd=folder,
            env={
                **environment,
                "SUITE": suite,
                "TRANSPORT": transport,
                "WORKER": "\n".join(worker),
                "PATH": "/usr/bin",
                # Others, Schemathesis above all, take seconds to import.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        counts = {what: int(count) for count, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout)}
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        return counts

    return run
