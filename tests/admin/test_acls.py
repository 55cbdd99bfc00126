"""What a stop gives of what was held back; the destination and its state are played."""

from dataclasses import replace
from typing import Any

import pytest

from twinlog.admin import acls as module
from twinlog.admin.acls import give, to_give
from twinlog.admin.results import StopMirrorTopicsResult
from twinlog.config.acls import LITERAL, PREFIXED, Acl
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState, PartitionState
from twinlog.control.records import (
    NO_TOPIC_ID,
    MirrorRecord,
    PartitionRecord,
    Skipped,
    SkippedRecord,
    TopicRecord,
    WorkerRecord,
)
from twinlog.errors import AuthorizationFailed, TwinlogError

WRITE = Acl("TOPIC", "t", LITERAL, "User:app", "*", "WRITE", "ALLOW")
WIDE = Acl("TOPIC", "t", PREFIXED, "User:app", "*", "WRITE", "ALLOW")
FOR_EVER_MS = 2**62
RESULT = StopMirrorTopicsResult("m", stopped=("t",))
LOG: Any = type("Log", (), {"cluster": None})()


def image(state: PartitionState, *held: Acl, mode: str = "additive", working: bool = False) -> Image:
    """A topic that is to be stopped, beside `t2`, which is mirrored."""
    changes: list[Any] = [
        MirrorRecord("m", {"bootstrap.servers": "a:1", "mirror.acls.sync.mode": mode}, "S"),
        TopicRecord("m", "t", DesiredState.STOPPED, NO_TOPIC_ID, NO_TOPIC_ID, 1),
        PartitionRecord("m", "t", 0, state),
        TopicRecord("m", "t2", DesiredState.MIRRORING, NO_TOPIC_ID, NO_TOPIC_ID, 1),
        SkippedRecord("m", 1, tuple(Skipped("acl", str(acl), "held") for acl in held), 0, held, ("t", "t2")),
    ]
    if working:
        changes.append(WorkerRecord("w", "h", 1, 0, FOR_EVER_MS))
    return Image(changes)


class _Played:
    """The destination, and the state as it is when it is changed."""

    def __init__(self) -> None:
        self.made: list[Acl] = []
        self.problem: TwinlogError | None = None
        self.image = Image()

    async def create(self, _cluster: Any, acls: Any, **_: Any) -> dict[Acl, TwinlogError]:
        """Make them, unless that is refused."""
        if self.problem is not None:
            raise self.problem
        self.made += acls
        return {}

    async def change(self, _cluster: Any, _log: Any, handler: Any) -> None:
        """Commit at once."""
        for record in handler(self.image).records:
            self.image.apply(record)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> _Played:
    """Everything outside this process."""
    played = _Played()
    monkeypatch.setattr(module, "create", played.create)
    monkeypatch.setattr(module.state, "change", played.change)
    return played


async def test_a_stopped_topic_is_opened_and_the_record_knows(played: _Played) -> None:
    """A wider one is given for this topic alone, since another is mirrored."""
    played.image = image(PartitionState.STOPPED, WRITE, WIDE)
    done = await give(LOG, played.image, RESULT)
    assert played.made == [WRITE]
    assert done.acls == (str(WRITE),)
    assert done.notes == ()
    after = played.image.skipped["m"]
    assert (after.held, after.held_for) == ((WIDE,), ("t2",))
    assert [item.name for item in after.items] == [str(WIDE)]


@pytest.mark.parametrize("working", [True, False])
async def test_a_topic_that_workers_are_still_stopping_is_left_to_them(played: _Played, working: bool) -> None:  # noqa: FBT001  # two cases
    """Where none lives, nobody writes to it any more."""
    played.image = image(PartitionState.STOPPING, WRITE, working=working)
    done = await give(LOG, played.image, RESULT)
    assert played.made == ([] if working else [WRITE])
    assert done.acls == (() if working else (str(WRITE),))


@pytest.mark.parametrize(("working", "words"), [(True, "left to the workers"), (False, "Add them by hand")])
async def test_an_operator_who_may_not_make_acls_is_told(played: _Played, working: bool, words: str) -> None:  # noqa: FBT001  # two cases
    """The stop itself stands; what is held back stays in the record, for workers."""
    played.image = image(PartitionState.STOPPED, WRITE, working=working)
    played.problem = AuthorizationFailed("Grant ALTER on CLUSTER.")
    done = await give(LOG, played.image, RESULT)
    assert done == replace(RESULT, notes=done.notes)
    assert words in done.notes[0]
    assert "Grant ALTER on CLUSTER." in done.notes[0]
    assert played.image.skipped["m"].held == (WRITE,)


async def test_nothing_is_given_where_acls_are_left_alone(played: _Played) -> None:
    """Nor for topics that the stop is not about."""
    assert await give(LOG, image(PartitionState.STOPPED, WRITE, mode="off"), RESULT) == RESULT
    other = StopMirrorTopicsResult("m", stopped=("t2",))
    assert await give(LOG, image(PartitionState.STOPPED, WRITE), other) == other
    assert await give(LOG, Image(), StopMirrorTopicsResult("n")) == StopMirrorTopicsResult("n")
    assert played.made == []


def test_a_dry_run_tells_what_would_be_given() -> None:
    """Also of topics that are mirrored now."""
    state = image(PartitionState.STOPPED, WRITE, WIDE)
    assert to_give(state, "m", ["t"]) == (str(WRITE),)
    assert to_give(state, "m", ["t", "t2"]) == (str(WRITE), str(WIDE))
    assert to_give(image(PartitionState.STOPPED, WRITE, mode="off"), "m", ["t"]) == ()
