"""What `--dry-run` prints: one line for each topic, with what would be done, or why nothing would."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from twinlog.cli.common import FAILURE, SUCCESS
from twinlog.errors import TwinlogError

if TYPE_CHECKING:
    from twinlog.control.selection import Edits


def told(
    done: Mapping[str, Sequence[str]], kept: Mapping[str, Sequence[str]], failed: Mapping[str, TwinlogError]
) -> int:
    """Print names by what would be done with them (`done`), by why nothing would (`kept`), and what would fail.

    Returns the exit code of the command itself: a failure where something would fail.
    """
    lines = [f"Would {verb}: {name}" for verb, names in done.items() for name in names]
    lines += [f"Would leave, {reason}: {name}" for reason, names in kept.items() for name in names]
    lines += [f"Would fail: {name}: {error}" for name, error in failed.items()]
    print("\n".join(lines or ["Would change nothing"]))
    return FAILURE if failed else SUCCESS


def patterns(edits: "Edits") -> dict[str, tuple[str, ...]]:
    """What would become of a mirror's patterns, for `told`."""
    return {
        "save include pattern": edits.saved_include,
        "save exclude pattern": edits.saved_exclude,
        "take back include pattern": edits.taken_back_include,
        "take back exclude pattern": edits.taken_back_exclude,
    }
