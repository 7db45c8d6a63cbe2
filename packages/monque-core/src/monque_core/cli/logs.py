"""The log of a worker, for people or for programs."""

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
    """How a line of the log is written."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TextFormatter(logging.Formatter):
    """One line per record, and indented below it the other lines of its message and traceback.

    So no text of an exception looks like a record of its own, or changes what a terminal shows.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        return escape_lines(super().format(record), _INDENT)


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with whatever `extra` a call gave."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
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
    """Send the log of this process to standard error, in place of what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    is_json = log_format is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter(_TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    if level is LogLevel.DEBUG:
        # The driver tells every command it sends, which drowns everything else.
        for name in ("pymongo", "asyncio"):
            logging.getLogger(name).setLevel(logging.INFO)
