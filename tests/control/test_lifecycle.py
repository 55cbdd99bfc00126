"""The table of transitions against KIP-1279, section 4.1, and our decisions."""

from itertools import pairwise, product

import pytest

from twinlog.control.lifecycle import SETTLED, TRANSITIONS, DesiredState, PartitionState, allowed, check

S = PartitionState

KIP = {
    S.LOG_ALIGNMENT: {S.UNKNOWN, S.STOPPED},
    S.MIRRORING: {S.LOG_ALIGNMENT, S.PAUSED},
    S.PAUSING: {S.MIRRORING},
    S.PAUSED: {S.PAUSING},
    S.STOPPING: {S.LOG_ALIGNMENT, S.MIRRORING, S.PAUSING, S.PAUSED},
    S.STOPPED: {S.STOPPING},
}
OURS = {
    (S.LOG_ALIGNMENT, S.PAUSING),
    (S.PAUSED, S.LOG_ALIGNMENT),
    (S.UNKNOWN, S.STOPPING),
    (S.UNKNOWN, S.PAUSING),
    (S.STOPPED, S.PAUSING),
    (S.STOPPING, S.PAUSING),
}


def test_codes_are_the_kips() -> None:
    """The numbers of the states are KIP-1279's late ones; 1 and 2 stay reserved."""
    codes = {state.name: state.value for state in S}
    assert codes == {
        "UNKNOWN": -1,
        "LOG_ALIGNMENT": 0,
        "MIRRORING": 3,
        "PAUSING": 4,
        "PAUSED": 5,
        "STOPPING": 6,
        "STOPPED": 7,
        "FAILED": 8,
    }


def test_the_table_is_the_kips_and_ours() -> None:
    """Every pair of states is allowed exactly if the KIP or a decision of ours says so."""
    for old, new in product(S, S):
        expected = old is new or S.FAILED in {old, new} or old in KIP.get(new, set()) or (old, new) in OURS
        assert allowed(old, new) is expected, f"{old.name} -> {new.name}"


def test_each_transition_stands_once_and_says_why() -> None:
    """The diagram is drawn from the table, so it has no double edge and each has a label."""
    edges = [(step.old, step.new) for step in TRANSITIONS]
    assert len(edges) == len(set(edges))
    assert all(step.why and step.old is not step.new for step in TRANSITIONS)


def test_a_forbidden_transition_is_a_mistake_of_ours() -> None:
    """`check` passes an allowed state on and refuses a forbidden one, naming both."""
    assert check(S.UNKNOWN, S.LOG_ALIGNMENT) is S.LOG_ALIGNMENT
    with pytest.raises(ValueError, match="from MIRRORING to STOPPED"):
        check(S.MIRRORING, S.STOPPED)


@pytest.mark.parametrize(
    "path",
    [
        [S.UNKNOWN, S.LOG_ALIGNMENT, S.MIRRORING, S.STOPPING, S.STOPPED, S.LOG_ALIGNMENT],
        [S.MIRRORING, S.PAUSING, S.PAUSED, S.STOPPING, S.STOPPED],
        [S.MIRRORING, S.FAILED, S.MIRRORING],
        [S.FAILED, S.STOPPING, S.STOPPED],
    ],
)
def test_ordinary_lives(path: list[PartitionState]) -> None:
    """Start, stop, pause, stop of a paused topic, failure and recovery are all possible."""
    assert all(check(old, new) is new for old, new in pairwise(path))


def test_every_desired_state_can_be_reached_from_everywhere() -> None:
    """From each state a path of allowed steps leads to what an operator may want."""
    assert set(SETTLED) == set(DesiredState)
    for goal in SETTLED.values():
        reached = {goal}
        while more := {old for old, new in product(S, reached) if allowed(old, new)} - reached:
            reached |= more
        assert reached == set(S)


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("desired", DesiredState)
def test_what_is_desired_can_be_reached_from_everywhere(state: PartitionState, desired: DesiredState) -> None:
    """Whatever a command asks for in whatever state: the way that a worker takes there is allowed at every step."""
    passing = {DesiredState.PAUSED: S.PAUSING, DesiredState.STOPPED: S.STOPPING}.get(desired, S.LOG_ALIGNMENT)
    there = SETTLED[desired]
    way = [state, there] if state in {there, passing} else [state, passing, there]
    if desired is DesiredState.MIRRORING and state in {S.PAUSING, S.STOPPING}:
        rest = S.PAUSED if state is S.PAUSING else S.STOPPED
        way = [state, rest, passing, there]
    assert all(allowed(old, new) for old, new in pairwise(way)), way
