"""The worker's log: one line an event on stderr, as text for people or as JSON for machines."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

# As the messages name them: `orders-3 of mirror dr: ...` and `mirror dr: ...`.
_WHERE = re.compile(r"^(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)(?: of mirror (?P<mirror>[^\s:]+))?: ")
_MIRROR = re.compile(r"^mirror (?P<mirror>[^\s:]+): ")


class TextFormatter(logging.Formatter):
    """Time, level, logger, message; the lines of a message or a traceback follow each other in one line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return super().format(record).replace("\r", "\\r").replace("\n", "\\n")


class JsonFormatter(logging.Formatter):
    """One JSON object a line; mirror, topic and partition are fields where the message begins with them."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        message = record.getMessage()
        event: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        found = _WHERE.match(message) or _MIRROR.match(message)
        if found is not None:
            named = {name: text for name, text in found.groupdict().items() if text is not None}
            event.update(named | ({"partition": int(named["partition"])} if "partition" in named else {}))
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False, default=str)


def set_up_logging(*, level: str = "INFO", form: str = TEXT, stream: TextIO | None = None) -> None:
    """Send what `twinlog` and the HTTP server log to stderr; `level` is one of LEVELS, `form` one of FORMATS."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == JSON else TextFormatter())
    for name, least in (("twinlog", level), ("uvicorn", "WARNING"), ("asyncio", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
