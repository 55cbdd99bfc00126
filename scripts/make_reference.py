"""Writes the generated parts of docs/reference.md: the tables of mirror configs, states, metrics and errors.

    python scripts/make_reference.py

A test holds the committed page against what this would write. Each part stands between two comments, which name it.
"""

# ruff: noqa: INP001, T201  (a script that people run)

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from twinlog import errors
from twinlog.config.client import CLIENT_KEYS
from twinlog.config.keys import ConfigKey
from twinlog.config.mirror import config_table
from twinlog.control.lifecycle import TRANSITIONS, PartitionState
from twinlog.errors import ClusterMirrorError, ConcurrentChange, TwinlogError
from twinlog.service.metric_table import reference
from twinlog.wire.codes import code_name

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"

# Kafka's own codes end far below.
LAST_CODE = 200

ONE_VALUE = frozenset({"mirror.blank.mode"})
"""Keys of the KIP or of its readers that have one possible value here, so that nothing reads them."""


def configs() -> str:
    """The tables of keys: the mirror's own, then those of the connection to the source."""
    client = {key.name for key in CLIENT_KEYS}
    own = [key for key in config_table() if key.name not in client]
    return "\n".join(
        [
            "Keys of the mirror:",
            "",
            *_table(own),
            "",
            "Keys of the connection to the source, as in Kafka's clients:",
            "",
            *_table(key for key in config_table() if key.name in client),
        ]
    )


def _table(keys: Iterable[ConfigKey[object]]) -> list[str]:
    return ["| key | type | default | meaning |", "|---|---|---|---|", *map(_row, keys)]


def _row(key: ConfigKey[object]) -> str:
    default = f"`{_escaped(key.default)}`" if key.default else ""
    return f"| `{key.name}`{_mark(key)} | {key.type} | {default} | {_escaped(_meaning(key))} |"


def _mark(key: ConfigKey[object]) -> str:
    return " ¹" if key.name in ONE_VALUE else ""


def _meaning(key: ConfigKey[object]) -> str:
    other = f" Also written {', '.join(f'`{name}`' for name in key.aliases)}." if key.aliases else ""
    allowed = "" if key.allowed.startswith("any text") else f" Allowed: {key.allowed}."
    return f"{key.doc}{allowed}{other}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def states() -> str:
    """The diagram of a partition's states, from the one table of transitions."""
    failed = PartitionState.FAILED
    between = [step for step in TRANSITIONS if failed not in {step.old, step.new}]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {PartitionState.UNKNOWN.name}"]
    lines += [f"    {step.old.name} --> {step.new.name}: {step.why}" for step in between]
    # FAILED is reached from every state and left to every state: fourteen arrows that would hide the others.
    lines += ['    state "any of these" as ANY']
    lines += [f"    ANY --> {failed.name}: {why}" for why in _reasons(new=failed)]
    lines += [f"    {failed.name} --> ANY: {why}" for why in _reasons(old=failed)]
    return "\n".join([*lines, "```"])


def transitions() -> str:
    """The same as a table, with nothing summed up."""
    lines = ["| from | to | when |", "|---|---|---|"]
    lines += [f"| `{step.old.name}` | `{step.new.name}` | {step.why} |" for step in TRANSITIONS]
    return "\n".join(lines)


def error_table() -> str:
    """Every error of ours: those with a name of Kafka's or the KIP's first, by name."""
    lines = ["| error | code | class | when | what to do |", "|---|---|---|---|---|"]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TwinlogError)]
    for kind in sorted(kinds, key=lambda kind: (not _own_name(kind), _own_name(kind) or "", kind.__name__)):
        name = _own_name(kind)
        code = next((str(code) for code in range(LAST_CODE) if code_name(code) == name), "") if name else ""
        when = (kind.__doc__ or "").strip().splitlines()[0]
        lines.append(f"| {f'`{name}`' if name else ''} | {code} | `{kind.__name__}` | {when} | {kind.to_do} |")
    return "\n".join(lines)


def _own_name(kind: type[TwinlogError]) -> str | None:
    """The name that users see; a class that only sorts others has none of its own."""
    return None if kind in {ClusterMirrorError, ConcurrentChange} else getattr(kind, "error_name", None)


def _reasons(*, old: PartitionState | None = None, new: PartitionState | None = None) -> list[str]:
    """Why a partition goes from or to a state; ValueError if it cannot do so from or to every other one."""
    found = [step for step in TRANSITIONS if old in {None, step.old} and new in {None, step.new}]
    if len({(step.old, step.new) for step in found}) != len(PartitionState) - 1:
        raise ValueError("The diagram says 'any of these', and the table of transitions does not.")
    return sorted({step.why for step in found})


PARTS = {
    "configs": configs,
    "states": states,
    "transitions": transitions,
    "errors": error_table,
    "metrics": reference,
}


def renewed(page: str) -> str:
    """The page with its generated parts as they should be. Raises ValueError where the page lacks one."""
    for name, write in PARTS.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        part = f"{begin}\n\n{write()}\n\n{end}"
        page, found = pattern.subn(lambda _match, part=part: part, page)
        if found != 1:
            raise ValueError(f"{PAGE.name} has {found} parts '{name}', not one.")
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE} is current.", file=sys.stderr)
