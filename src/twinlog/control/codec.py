"""Records as bytes in `__mirror_state`: readable by `kafka-console-consumer`, and refused by rule when not understood.

Key: a JSON array, the type's name and then what identifies the record: `["partition","my-mirror","my-topic",3]`.
Value: a JSON object with `"version"` and the record's other fields; a null value is a tombstone. Compact separators,
sorted names, UTF-8, so that equal records are equal bytes. States are names, topic ids look as Kafka prints them,
figures are arrays in the order of `Figure`'s fields (one such record can hold thousands).

The rules
=========

1. A field whose absence older programs may overlook is added with a default, under the same version. Unknown fields are
   ignored, missing ones take their default.
2. Any other change raises the type's version. A value of an unknown version or type, or with an unknown state in it,
   is refused (`UnsupportedVersion`): acting on half of what is stored would undo what a newer program decided.
3. A tombstone of an unknown type is accepted: it removes only what would have been refused.
4. Bytes that are no such JSON were written by something else: refused (`BadInput`), never skipped. A tombstone with
   the same key is how an operator removes them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, TypeVar, get_type_hints
from uuid import UUID

from twinlog.config.acls import Acl
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    RECORD_TYPES,
    Change,
    Figure,
    Key,
    Record,
    Skipped,
    Tombstone,
    parse_topic_id,
    topic_id_text,
)
from twinlog.errors import BadInput, UnsupportedVersion

T = TypeVar("T")

VERSION = 0
"""The version of every type so far."""

ADVICE = "run a twinlog at least as new as the one that wrote it, on every worker and for admin commands"


def encode(change: Change) -> tuple[bytes, bytes | None]:
    """A record's key and value, or a tombstone's key and None."""
    if isinstance(change, Tombstone):
        return encode_key(change.key), None
    value: dict[str, object] = {"version": VERSION}
    for field in _FIELDS[type(change)]:
        if field.name not in change.KEY_FIELDS:
            value[field.name] = field.kind.encode(getattr(change, field.name))
    return encode_key(change.key), _dump(value)


def encode_key(key: Key) -> bytes:
    """A key alone, for comparing or tombstoning."""
    return _dump(list(key))


def decode(key: bytes | memoryview | None, value: bytes | memoryview | None) -> Change:
    """Read one record of the log.

    Raises UnsupportedVersion (written by a newer twinlog) or BadInput (not written by twinlog).
    """
    parts = _key_parts(key)
    record_type = _BY_NAME.get(str(parts[0]))
    if record_type is not None and not _key_fits(record_type, parts):
        raise BadInput(f"the key {json.dumps(parts)} is not one that twinlog writes")
    if value is None:
        return Tombstone(parts)
    if record_type is None:
        raise UnsupportedVersion(f"a record of type '{parts[0]}' was written by a newer twinlog; {ADVICE}")
    document = _load(value, "value")
    if not isinstance(document, dict):
        raise BadInput("the value is not a JSON object")
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        raise UnsupportedVersion(
            f"a '{parts[0]}' record of version {version} was written by a newer twinlog "
            f"(this one reads {VERSION}); {ADVICE}"
        )
    return _build(record_type, parts, document)


def _build(record_type: type[Record], parts: Key, document: Mapping[str, Any]) -> Record:
    identity = dict(zip(record_type.KEY_FIELDS, parts[1:], strict=True))
    values: dict[str, Any] = {}
    for field in _FIELDS[record_type]:
        stored = identity.get(field.name, document.get(field.name, MISSING))
        if stored is MISSING and field.required:
            raise BadInput(f"a '{parts[0]}' record lacks the field '{field.name}'")
        if stored is not MISSING:
            values[field.name] = _field(field, stored, str(parts[0]))
    return record_type(**values)


def _field(field: "_Field", stored: object, type_name: str) -> object:
    try:
        return field.kind.decode(stored)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the field '{field.name}' of a '{type_name}' record is wrong: {error}") from None


def _key_parts(key: bytes | memoryview | None) -> Key:
    if key is None:
        raise BadInput("the record has no key")
    parts = _load(key, "key")
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise BadInput("the key is not a JSON array that begins with a type's name")
    if not all(isinstance(part, str | int) for part in parts):
        raise BadInput("the key holds something else than names and numbers")
    return tuple(parts)


def _key_fits(record_type: type[Record], parts: Key) -> bool:
    kinds = {field.name: field.kind for field in _FIELDS[record_type]}
    if len(parts) != len(record_type.KEY_FIELDS) + 1:
        return False
    try:
        for name, part in zip(record_type.KEY_FIELDS, parts[1:], strict=True):
            kinds[name].decode(part)
    except (TypeError, ValueError):
        return False
    return True


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8")


def _load(data: bytes | memoryview, what: str) -> object:
    try:
        loaded: object = json.loads(bytes(data))
        return loaded
    except (ValueError, RecursionError):
        raise BadInput(f"the {what} is not JSON") from None


# How each type of field is written and read. `decode` raises TypeError or ValueError with the reason.


class _Kind(NamedTuple):
    encode: Callable[[Any], object]
    decode: Callable[[object], object]


class _Field(NamedTuple):
    name: str
    kind: _Kind
    required: bool


def _same(value: object) -> object:
    return value


def _exactly(kind: type[T]) -> Callable[[object], T]:
    def read(value: object) -> T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
        return value

    return read


def _read_state(states: type[DesiredState] | type[PartitionState]) -> Callable[[object], object]:
    def read(value: object) -> object:
        try:
            return states[_exactly(str)(value)]
        except KeyError:
            raise UnsupportedVersion(f"the state '{value}' was written by a newer twinlog; {ADVICE}") from None

    return read


def _read_topic_id(value: object) -> UUID:
    return parse_topic_id(_exactly(str)(value))


def _read_configs(value: object) -> dict[str, str]:
    text = _exactly(str)
    return {text(name): text(setting) for name, setting in _exactly(dict)(value).items()}


def _write_figures(figures: tuple[Figure, ...]) -> list[Figure]:
    return list(figures)  # JSON writes each as an array


def _read_figures(value: object) -> tuple[Figure, ...]:
    return tuple(_read_figure(_exactly(list)(row)) for row in _exactly(list)(value))


def _read_figure(row: list[object]) -> Figure:
    """Columns are appended with a default (rule 1), so more than are known are fine, and those may be missing."""
    if len(row) < _FIGURE_COLUMNS:
        raise ValueError(f"a figure has {len(row)} columns instead of {_FIGURE_COLUMNS}")
    known: list[Any] = row[: len(_FIGURE_TYPES)]
    # Thousands of these come every few seconds, and next to none is wrong.
    if tuple(map(type, known)) != _FIGURE_TYPES[: len(known)]:
        known = [_exactly(kind)(value) for kind, value in zip(_FIGURE_TYPES, known, strict=False)]
    return Figure(*known)


def _write_skipped(items: tuple[Skipped, ...]) -> list[list[str]]:
    return [[item.kind, item.name, item.reason] for item in items]


def _read_skipped(value: object) -> tuple[Skipped, ...]:
    text = _exactly(str)
    return tuple(Skipped(*(text(part) for part in _exactly(list)(row)[:3])) for row in _exactly(list)(value))


def _write_acls(acls: tuple[Acl, ...]) -> list[list[str]]:
    return [[getattr(acl, name) for name in _ACL_NAMES] for acl in acls]


def _read_acls(value: object) -> tuple[Acl, ...]:
    text = _exactly(str)
    return tuple(Acl(*(text(part) for part in _exactly(list)(row)[: len(_ACL_NAMES)])) for row in _exactly(list)(value))


def _read_texts(value: object) -> tuple[str, ...]:
    return tuple(_exactly(str)(text) for text in _exactly(list)(value))


def _read_numbers(value: object) -> tuple[int, ...]:
    return tuple(_exactly(int)(number) for number in _exactly(list)(value))


_ACL_NAMES = tuple(field.name for field in fields(Acl))
_FIGURE_COLUMNS = len(Figure._fields) - len(Figure._field_defaults)
_FIGURE_TYPES = tuple(get_type_hints(Figure).values())

_KINDS: dict[Any, _Kind] = {
    str: _Kind(_same, _exactly(str)),
    int: _Kind(_same, _exactly(int)),
    bool: _Kind(_same, _exactly(bool)),
    UUID: _Kind(topic_id_text, _read_topic_id),
    DesiredState: _Kind(lambda state: state.name, _read_state(DesiredState)),
    PartitionState: _Kind(lambda state: state.name, _read_state(PartitionState)),
    Mapping[str, str]: _Kind(dict, _read_configs),
    tuple[Figure, ...]: _Kind(_write_figures, _read_figures),
    tuple[Skipped, ...]: _Kind(_write_skipped, _read_skipped),
    tuple[int, ...]: _Kind(list, _read_numbers),
    tuple[str, ...]: _Kind(list, _read_texts),
    tuple[Acl, ...]: _Kind(_write_acls, _read_acls),
}


def _describe(record_type: type[Record]) -> tuple[_Field, ...]:
    return tuple(_Field(field.name, _KINDS[field.type], field.default is MISSING) for field in fields(record_type))


_FIELDS: dict[type[Record], tuple[_Field, ...]] = {record_type: _describe(record_type) for record_type in RECORD_TYPES}
_BY_NAME: dict[str, type[Record]] = {record_type.TYPE: record_type for record_type in RECORD_TYPES}
