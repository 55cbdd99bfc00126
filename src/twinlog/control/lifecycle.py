"""The states of a mirror topic and of a mirror partition, and the one table of their transitions.

Theory of operation
===================

Two layers (KIP-1279, section 4.2). An operator states per *topic* what is **desired**: MIRRORING, PAUSED or STOPPED.
The worker that owns a *partition* moves that partition's **actual** state towards it, one transition at a time, and
stores each one in `__mirror_state`. Nobody else writes an actual state, and no command waits for one.

- A partition without a stored state is UNKNOWN. It begins in LOG_ALIGNMENT: the two logs are compared, the log start
  is met, and only then is it MIRRORING. Where holes of a compacted source were filled, it streams in LOG_ALIGNMENT
  until the destination's cleaner has made holes of them again.
- A change of owner is no transition. Every owner begins with a takeover (settle, read the log's end, check the tail),
  whatever the state; a MIRRORING partition is MIRRORING throughout.
- PAUSING and STOPPING are passed through: what is in flight is awaited, then the partition is PAUSED or STOPPED. Both
  are written down so that the next owner, after a crash in between, knows what remains to be done.
- FAILED is reached from anywhere and left to anywhere: a retry or `--recover` returns to the state it failed in
  (`PartitionRecord.previous_state`), stop and pause go on towards what is desired.
- Writing the same state again is always allowed: it carries new figures, not a transition.

EPOCH_FENCING and ULE_RECOVERY of the KIP do not arise: the destination keeps its own leader epochs, and its log is
never truncated. Their codes (1 and 2) stay reserved.
"""

from enum import Enum, IntEnum
from typing import NamedTuple


class DesiredState(Enum):
    """What the operator wants of a topic."""

    MIRRORING = "MIRRORING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class PartitionState(IntEnum):
    """What a partition is doing; the numbers are the KIP's late codes."""

    UNKNOWN = -1
    LOG_ALIGNMENT = 0
    MIRRORING = 3
    PAUSING = 4
    PAUSED = 5
    STOPPING = 6
    STOPPED = 7
    FAILED = 8


class Transition(NamedTuple):
    """One allowed step, with its reason as it stands in the diagram."""

    old: PartitionState
    new: PartitionState
    why: str


_S = PartitionState

TRANSITIONS: tuple[Transition, ...] = (
    Transition(_S.UNKNOWN, _S.LOG_ALIGNMENT, "started"),
    Transition(_S.STOPPED, _S.LOG_ALIGNMENT, "started again"),
    Transition(_S.LOG_ALIGNMENT, _S.MIRRORING, "logs agree"),
    Transition(_S.MIRRORING, _S.PAUSING, "pause"),
    Transition(_S.PAUSING, _S.PAUSED, "nothing in flight"),
    Transition(_S.PAUSED, _S.MIRRORING, "resume"),
    Transition(_S.LOG_ALIGNMENT, _S.STOPPING, "stop"),
    Transition(_S.MIRRORING, _S.STOPPING, "stop"),
    Transition(_S.PAUSING, _S.STOPPING, "stop"),
    Transition(_S.PAUSED, _S.STOPPING, "stop"),
    Transition(_S.STOPPING, _S.STOPPED, "nothing in flight"),
    # Beyond the KIP, whose alignment is short and never waits for a source that is down:
    Transition(_S.LOG_ALIGNMENT, _S.PAUSING, "pause before the logs agree"),
    Transition(_S.PAUSED, _S.LOG_ALIGNMENT, "resume before the logs agreed"),
    # ... and whose controller tells brokers at once, while a topic here may be stopped before any worker saw it:
    Transition(_S.UNKNOWN, _S.STOPPING, "stop before any worker saw it"),
    Transition(_S.UNKNOWN, _S.PAUSING, "pause before any worker saw it"),
    Transition(_S.STOPPED, _S.PAUSING, "started again and paused before any worker saw it"),
    Transition(_S.STOPPING, _S.PAUSING, "started again and paused before the stop was over"),
    # FAILED from anywhere, and from FAILED to anywhere.
    *(Transition(state, _S.FAILED, "error") for state in _S if state is not _S.FAILED),
    *(Transition(_S.FAILED, state, "retry, recover, pause or stop") for state in _S if state is not _S.FAILED),
)

_ALLOWED = frozenset((step.old, step.new) for step in TRANSITIONS)


def allowed(old: PartitionState, new: PartitionState) -> bool:
    """Whether a partition in `old` may be stored as `new` next."""
    return old is new or (old, new) in _ALLOWED


def check(old: PartitionState, new: PartitionState) -> PartitionState:
    """Return `new`, or raise ValueError: a forbidden transition is a mistake in the program, never in its input."""
    if not allowed(old, new):
        raise ValueError(f"A mirror partition cannot go from {old.name} to {new.name}.")
    return new


SETTLED: dict[DesiredState, PartitionState] = {
    DesiredState.MIRRORING: PartitionState.MIRRORING,
    DesiredState.PAUSED: PartitionState.PAUSED,
    DesiredState.STOPPED: PartitionState.STOPPED,
}
"""The actual state in which a desired one is reached."""
