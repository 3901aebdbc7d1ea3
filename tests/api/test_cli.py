"""The command line: exit codes, one line for a failed job, and the doctor."""

import json
import os
import stat
import sys
from importlib import metadata

import pytest
import typer

from penstock import Error, cli
from penstock.cli import doctor

CHECKS = ["python", "extension", "java", "pyspark", "pandas", "workers", "pypdfium2"]


def test_the_version_is_that_of_the_package(penstock):
    run = penstock("--version")
    assert (run.returncode, run.stdout) == (0, f"penstock {metadata.version('penstock')}\n")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["doctor", "--no-such-option"], ["doctor", "surplus"]])
def test_a_wrong_command_line_exits_2(penstock, arguments):
    run = penstock(*arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr


@pytest.mark.parametrize("error", [Error("the sink is\ngone", "io"), OSError("the sink is gone")])
def test_a_failed_job_exits_1_and_says_why_in_one_line(monkeypatch, capsys, error):
    def fail() -> None:
        raise error

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fail)
    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["penstock"])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 1
    assert capsys.readouterr().err == "penstock: the sink is gone\n"


def test_the_doctor_prints_a_json_line_for_each_check(penstock):
    run = penstock("doctor", "--json", env={**os.environ, "PYSPARK_PYTHON": sys.executable})
    findings = {line["check"]: line for line in map(json.loads, run.stdout.splitlines())}
    assert list(findings) == CHECKS
    assert findings["extension"]["status"] == "ok"
    assert findings["workers"]["status"] == "ok"
    assert all((finding["advice"] is None) == (finding["status"] == "ok") for finding in findings.values())


def test_the_doctor_exits_1_and_advises_where_the_workers_have_no_penstock(penstock, tmp_path):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no penstock' >&2\nexit 1\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    run = penstock("doctor", env={**os.environ, "PYSPARK_PYTHON": str(other)})
    assert run.returncode == 1
    assert f"export PYSPARK_PYTHON={sys.executable}" in run.stdout
    assert "workers" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_the_doctor_names_a_package_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda _name: "3.0.1")
    finding = doctor._pandas()
    assert (finding.status, finding.found) == ("problem", "3.0.1, required: >=2.2,<3")


def test_the_doctor_finds_no_java_where_there_is_none(monkeypatch):
    monkeypatch.setattr(doctor, "find_java", lambda: None)
    finding = doctor._java()
    assert finding.status == "problem"
    assert finding.advice
    assert "jdk" in finding.advice.lower()
