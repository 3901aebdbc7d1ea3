"""Logs of both sides go to stderr in one form."""

import json
import subprocess
import sys

import pytest

from penstock import _core

PROGRAM = """
import logging
from penstock.cli._logging import configure
configure({level!r}, {form!r})
logging.getLogger("penstock.sink").warning("disk %s", "full")
logging.getLogger("penstock.sink").debug("bytes")
"""


def _logged(level: str, form: str) -> list[str]:
    program = PROGRAM.format(level=level, form=form)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == ""
    return run.stderr.splitlines()


def test_text_lines_name_time_level_and_source():
    (line,) = _logged("info", "text")
    time, level, rest = line.split(maxsplit=2)
    assert time.endswith("Z")
    assert (level, rest) == ("WARN", "penstock.sink: disk full")


def test_json_lines_are_objects():
    lines = [json.loads(line) for line in _logged("debug", "json")]
    assert [(line["level"], line["message"], line["target"]) for line in lines] == [
        ("WARN", "disk full", "penstock.sink"),
        ("DEBUG", "bytes", "penstock.sink"),
    ]


@pytest.mark.parametrize(("level", "form"), [("penstock=loudly", "text"), ("info", "xml")])
def test_the_core_refuses_a_level_or_format_it_does_not_know(level, form):
    with pytest.raises(ValueError, match="is not a log"):
        _core.init_logging(level, form)


def test_setting_up_twice_is_allowed(run_python):
    assert run_python(
        "from penstock import _core; _core.init_logging('info', 'json'); _core.init_logging('debug', 'text'); print(1)"
    )


CONTENT = """
from penstock import _core, documents
_core.init_logging("trace", "text")
parts = list(documents.dehydrate("page.html", b"<html><body>confidential</body></html>"))
assert parts[0].text == "confidential", parts
"""


def test_what_documents_say_is_in_no_log():
    """Libraries that log through the crate `log` are not heard: html5ever would write each character that it reads."""
    run = subprocess.run([sys.executable, "-c", CONTENT], capture_output=True, text=True, timeout=60, check=True)
    assert "html5ever" not in run.stderr
    assert "got character" not in run.stderr
