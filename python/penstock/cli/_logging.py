"""The options ``--log-level`` and ``--log-format`` of every server, and the logging that they configure."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

__all__ = ["LogFormatOption", "LogLevelOption", "configure"]

LogLevelOption = Annotated[
    Literal["error", "warn", "info", "debug", "trace"], typer.Option("--log-level", help="Log level, on stderr.")
]
LogFormatOption = Annotated[
    Literal["text", "json"], typer.Option("--log-format", help="Log format: text, or json for one object per line.")
]

_PYTHON_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
_LEVEL_NAMES = {logging.CRITICAL: "ERROR", logging.WARNING: "WARN"}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class _TextFormatter(logging.Formatter):
    """Formats records like the Rust side."""

    def format(self, record: logging.LogRecord) -> str:
        level = _LEVEL_NAMES.get(record.levelno, record.levelname)
        line = f"{_time(record)} {level:>5} {record.name}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    """Formats each record as a line of JSON, with the same names as the Rust side."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": _time(record),
            "level": _LEVEL_NAMES.get(record.levelno, record.levelname),
            "message": record.getMessage(),
            "target": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(level: LogLevelOption, log_format: LogFormatOption) -> None:
    """Send the logs of both the Rust and the Python side to stderr in the same form."""
    from penstock import _core

    _core.init_logging(level, log_format)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=_PYTHON_LEVELS[level], handlers=[handler], force=True)
