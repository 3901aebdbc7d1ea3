"""Peers that others made."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts.spark_classes import BRIEF


@pytest.fixture(scope="session")
def go_lumber(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program around Elastic's Go module; skipped loudly where there is neither Go nor the module."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("NOT TESTED: go-lumber; there is no Go: install one from https://go.dev/dl, and put it into PATH")
    program = tmp_path_factory.mktemp("go") / "go-lumber"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=Path(__file__).parents[2] / "benches" / "peers" / "go-lumber",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if built.returncode:
        assert "dial tcp" in built.stderr or "lookup" in built.stderr or "proxy" in built.stderr, built.stderr
        pytest.skip(f"NOT TESTED: go-lumber; GOPROXY does not give the module: {built.stderr.strip().splitlines()[-1]}")
    return program


@pytest.fixture(scope="session")
def camel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Give the command that runs Apache Camel's reader; skipped loudly where there is no Java or no Maven."""
    java, maven = shutil.which("java"), shutil.which("mvn")
    if java is None or maven is None:
        pytest.skip("NOT TESTED: Camel; there is no Java with Maven: `apt install default-jdk-headless maven`")
    folder, jars = Path(__file__).parent / "camel", tmp_path_factory.mktemp("camel")
    got = subprocess.run(
        [maven, "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
        env={**os.environ, "MAVEN_OPTS": f"{os.environ.get('MAVEN_OPTS', '')} {BRIEF}".strip()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if got.returncode:
        assert "resolve" in got.stdout or "transfer" in got.stdout, got.stdout
        pytest.skip(f"NOT TESTED: Camel; Maven does not get its jars: {got.stdout.strip().splitlines()[0]}")
    return [java, *BRIEF.split(), "-cp", f"{jars}/*", str(folder / "Peer.java")]
