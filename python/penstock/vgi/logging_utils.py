"""Log records as lines of JSON."""

import json
import logging

__all__ = ["VgiJsonFormatter"]

_KNOWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class VgiJsonFormatter(logging.Formatter):
    """A formatter that renders a record as one line of JSON, including all fields of its ``extra``.

    ```python
    >>> import logging
    >>> from penstock.vgi.logging_utils import VgiJsonFormatter
    >>> record = logging.makeLogRecord({"name": "vgi_rpc.access", "msg": "Calculator.add ok", "method": "add"})
    >>> '"method": "add"' in VgiJsonFormatter().format(record)
    True

    ```
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON, without a line break."""
        said: dict[str, object] = {
            "timestamp": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        said.update((key, value) for key, value in vars(record).items() if key not in _KNOWN)
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            said["stack"] = self.formatStack(record.stack_info)
        return json.dumps(said, default=str, ensure_ascii=False)
