"""The log formats of a worker: text and JSON."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

from monque_core.display import escape_lines, to_json

_TEXT = "%(asctime)s %(levelname)-7s %(name)s[%(process)d] %(message)s"
_INDENT = "    "
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TextFormatter(logging.Formatter):
    """Writes one line per record; further lines of the message and traceback are indented.

    So the text of an exception cannot imitate a record or send control characters to a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return escape_lines(super().format(record), _INDENT)


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per line, including the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return to_json(line)


def set_up_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Log to standard error; replace an earlier configuration."""
    handler = logging.StreamHandler(sys.stderr)
    is_json = log_format is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter(_TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    if level is LogLevel.DEBUG:
        # The driver logs every command at DEBUG, which hides everything else.
        for name in ("pymongo", "asyncio"):
            logging.getLogger(name).setLevel(logging.INFO)
