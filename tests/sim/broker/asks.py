"""A request as a broker gets it, and from which message classes requests and responses are made."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from kafka.protocol.api_message import ApiMessage

from twinlog.wire import messages

Message = Any


@dataclass(frozen=True, slots=True)
class Ask:
    """One request; `reply` is called once, at once or later."""

    api_key: int
    version: int
    message: Message
    reply: Callable[[Message], None]


@cache
def request_class(api_key: int) -> type[ApiMessage]:
    """The class of a request by its key; KeyError for one that nobody here has ever sent."""
    return messages._request_classes()[api_key]


@cache
def response_class(api_key: int) -> Any:
    """The class of the response to a request."""
    request = request_class(api_key)
    return getattr(import_module(request.__module__), request.__name__.removesuffix("Request") + "Response")


def decoded(api_key: int, version: int, body: memoryview) -> Message:
    """Read a request's body, all of it: what our hand-made frames hold must be exactly one message."""
    request: Any = request_class(api_key)
    message, end = messages._compiled(request, version, flexible=request.flexible_version_q(version))(body, 0)
    if end != len(body):
        raise AssertionError(f"{request.__name__} version {version}: {len(body)} bytes, of which {end} are the message")
    return message
