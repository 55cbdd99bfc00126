"""How the worker's log is written."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from twinlog.service.logs import JSON, TEXT, set_up_logging

NAMES = ("twinlog", "uvicorn", "asyncio")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave logging as it was."""
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(list(one.handlers), one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


def _written(form: str, level: str = "INFO") -> list[str]:
    stream = io.StringIO()
    set_up_logging(level=level, form=form, stream=stream)
    log = logging.getLogger("twinlog.partition")
    log.debug("details")
    log.info("%s of mirror %s: MIRRORING", "a-b.c-3", "dr")
    log.warning("mirror %s: discovery: two\nlines", "dr")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("odd")
    return stream.getvalue().splitlines()


def test_json_is_one_object_a_line_with_its_fields() -> None:
    """Time with its zone, level, logger, message; mirror, topic and partition where known; an exception as text."""
    first, second, third = map(json.loads, _written(JSON))
    assert first["time"].endswith("+00:00")
    assert {key: first[key] for key in ("level", "logger", "message", "mirror", "topic", "partition")} == {
        "level": "INFO",
        "logger": "twinlog.partition",
        "message": "a-b.c-3 of mirror dr: MIRRORING",
        "mirror": "dr",
        "topic": "a-b.c",
        "partition": 3,
    }
    assert (second["mirror"], second["message"]) == ("dr", "mirror dr: discovery: two\nlines")
    assert "ValueError: broken" in third["exception"]
    assert "mirror" not in third


def test_text_is_one_line_an_event_too() -> None:
    """A traceback does not make many events of one."""
    lines = _written(TEXT)
    assert len(lines) == 3
    assert lines[2].endswith("ValueError: broken")


def test_level_is_obeyed() -> None:
    """From the most to the least."""
    assert len(_written(TEXT, "DEBUG")) == 4
    assert len(_written(TEXT, "ERROR")) == 1
