"""Kafka's messages as kafka-python describes them, decoded exactly and, for fetched records, without a copy.

This is the only file that reaches into kafka-python's internals (`share_messages` adds requests by the library's own
means). What it adds to the library:

* which versions of a request exist, and from which on the request and response headers are flexible (KIP-482);
* a decoder that refuses a response whose fields do not fill it exactly (the library returns cut strings silently);
* one for Metadata that does not read again what it has just read;
* `records` of a Fetch response as views of the response's own buffer (the library copies them).

The library compiles one decoder for each message and version at first use. The one for Fetch is compiled here with
another type for the `records` field; the library's own is neither changed nor kept.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeAlias

from kafka.protocol.api_key import ApiKey
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.fetch import FetchResponse
from kafka.protocol.schemas.fields.codecs import Bytes

from twinlog.wire.codes import UNSUPPORTED_VERSION

Message: TypeAlias = Any  # an ApiMessage; its fields come from Kafka's schemas at run time, no checker knows them
MessageClass: TypeAlias = type[ApiMessage]
Decoder: TypeAlias = Callable[[memoryview], Any]

METADATA: Final = 3
API_VERSIONS: Final = 18
# Answers to Metadata kept for each connection: the sweep and each refresh ask it in turn.
REMEMBERED: Final = 2
# Larger ones are not kept; this is about a thousand partitions.
REMEMBERED_BYTES: Final = 65_536
_API_NAMES: Final[dict[int, str]] = {int(key): key.name for key in ApiKey}
_MODULES: Final = (
    *(f"admin.{name}" for name in ("acl", "client_quotas", "cluster", "configs", "groups", "topics", "transactions")),
    "admin.users",
    *(f"consumer.{name}" for name in ("fetch", "group", "metadata", "offsets")),
    *(f"metadata.{name}" for name in ("api_versions", "find_coordinator", "metadata")),
    *(f"producer.{name}" for name in ("produce", "transaction")),
    "sasl",
)


_OWN_MODULES: Final = ("twinlog.wire.share_messages",)
"""Requests that the library does not have; imported late, so that messages stay free of each other."""


def api_name(api_key: int) -> str:
    """Return an API's name as Kafka writes it: `Fetch`, `WriteTxnMarkers`."""
    return _API_NAMES.get(api_key, f"API {api_key}")


def versions(request: MessageClass) -> tuple[int, int]:
    """Return the lowest and highest version of a request that can be encoded, both included."""
    lowest, highest = request.valid_versions
    return lowest, highest


def is_flexible(api_key: int, version: int) -> bool:
    """Say whether a request has tagged fields, so that its header is of version 2 and its response's of version 1.

    A response to ApiVersions is the exception: its header always has version 0 (KIP-511).
    """
    return version >= _first_flexible_versions().get(api_key, _NEVER)


def decoder(request: MessageClass, version: int) -> Decoder:
    """Return the function that decodes the body of the response to a request; ValueError or worse if it cannot.

    To be asked for once a connection: that for Metadata remembers what the connection was told.
    """
    special = {API_VERSIONS: api_versions_decoder, METADATA: metadata_decoder}.get(request.API_KEY)
    return _decoder(_response_of(request), version) if special is None else special(version)


def api_versions_decoder(version: int) -> Decoder:
    """Decode a response to ApiVersions: a broker that refuses the version answers in version 0 (KIP-511)."""
    response = _response_of(_request_classes()[API_VERSIONS])

    def decode(body: memoryview) -> Message:
        refused = bytes(body[:2]) == UNSUPPORTED_VERSION.to_bytes(2, "big")
        return _decoder(response, 0 if refused else version)(body)

    return decode


def metadata_decoder(version: int) -> Decoder:
    """Decode Metadata for one connection: what a quiet cluster says again in the same bytes is read once.

    The response is shared between those who asked, so nobody may change one.
    """
    decode_one = _decoder(_response_of(_request_classes()[METADATA]), version)
    known: dict[bytes, Message] = {}

    def decode(body: memoryview) -> Message:
        if len(body) > REMEMBERED_BYTES:
            return decode_one(body)
        told = bytes(body)
        message = known.pop(told) if told in known else decode_one(body)
        known[told] = message  # as the newest
        if len(known) > REMEMBERED:
            del known[next(iter(known))]
        return message

    return decode


_NEVER: Final = 1 << 16  # above every version, an int16


@cache
def _request_classes() -> dict[int, MessageClass]:
    modules = [import_module(name) for name in (*(f"kafka.protocol.{name}" for name in _MODULES), *_OWN_MODULES)]
    named = [kind for module in modules for name, kind in vars(module).items() if name.endswith("Request")]
    return {kind.API_KEY: kind for kind in named if isinstance(kind, type) and issubclass(kind, ApiMessage)}


@cache
def _first_flexible_versions() -> dict[int, int]:
    classes: dict[int, Any] = {**_request_classes()}
    first = {api_key: request._flexible_versions[0] for api_key, request in classes.items()}  # noqa: SLF001  # the library shows the table only through a question for one version
    return {api_key: version for api_key, version in first.items() if version >= 0}


def _response_of(request: MessageClass) -> MessageClass:
    name = request.__name__.removesuffix("Request") + "Response"
    kind: MessageClass = getattr(import_module(request.__module__), name)
    return kind


@cache
def _decoder(response: MessageClass, version: int) -> Decoder:
    flexible: bool = response.flexible_version_q(version)
    compile_ = _compiled_with_views if issubclass(response, FetchResponse) else _compiled
    decode_from = compile_(response, version, flexible=flexible)

    def decode(body: memoryview) -> Message:
        message, end = decode_from(body, 0)
        if end != len(body):  # a slice beyond the end is cut silently, so only the position tells
            raise ValueError(f"its fields take {end} bytes, not {len(body)}")
        return message

    return decode


_Compiled: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]


def _compiled(response: MessageClass, version: int, *, flexible: bool) -> _Compiled:
    struct: Any = response._struct  # noqa: SLF001  # the public decode() hides where it ended
    decode_from: _Compiled = struct.compiled_decode_from(
        version, compact=flexible, tagged=flexible, data_class=response
    )
    return decode_from


class _View(Bytes):
    """The library's type `bytes`, except that a decoded value is a view of the response, not a copy."""

    @classmethod
    def emit_decode_from(cls, ctx: Any, var_name: str, indent: str, compact: bool = False) -> None:  # noqa: ANN401, FBT001, FBT002  # the library's signature
        """Emit the library's own code, without its call that copies."""
        start = len(ctx.lines)
        super().emit_decode_from(ctx, var_name, indent, compact=compact)  # type: ignore[no-untyped-call]  # as it is
        ctx.lines[start:] = [line.replace("= bytes(data[", "= (data[") for line in ctx.lines[start:]]


def _compiled_with_views(response: MessageClass, version: int, *, flexible: bool) -> _Compiled:
    struct: Any = response._struct  # noqa: SLF001  # there is no other way to a field's type
    records = struct.fields["responses"].fields["partitions"].fields["records"]
    kept, struct._compiled_encoders = struct._compiled_encoders, {}  # noqa: SLF001  # as above
    usual, records._type = records._type, _View  # noqa: SLF001  # as above
    try:
        return _compiled(response, version, flexible=flexible)
    finally:
        records._type = usual  # noqa: SLF001  # as above
        struct._compiled_encoders = kept  # noqa: SLF001  # as above
