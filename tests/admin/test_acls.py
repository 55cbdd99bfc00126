"""What a stop gives of what was held back; the destination and its state are played."""

from dataclasses import replace
from typing import Any

import pytest

from twinlog.admin import acls as module
from twinlog.admin.acls import allow_all, give, to_give
from twinlog.admin.results import StopMirrorTopicsResult
from twinlog.config.acls import LITERAL, PREFIXED, Acl, denial
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
from twinlog.errors import AuthorizationFailed, BrokerError, TwinlogError
from twinlog.sync import denials

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


# What others are denied


def denying(state: PartitionState, *, working: bool = False) -> Image:
    """As `image`, of a mirror that denies others to write to both its topics."""
    made = image(state, WRITE, working=working)
    made.apply(MirrorRecord("m", {"bootstrap.servers": "a:1", "mirror.acls.deny.writes": "true"}, "S"))
    made.apply(replace(made.skipped["m"], denied=("t", "t2")))
    return made


class _Allowed:
    """The denials of the destination."""

    def __init__(self, played: _Played, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there = {denial("t"), denial("t2")}
        self.problem: TwinlogError | None = None
        self.refused: dict[Acl, TwinlogError] = {}
        self.events: list[str] = []
        self.played = played
        monkeypatch.setattr(denials, "delete_acls", self.delete)
        monkeypatch.setattr(module.state, "read", self.read)
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
        monkeypatch.setattr(module, "GIVE_WITHIN_S", 0.1)

    async def delete(self, _cluster: Any, acls: Any, **_: Any) -> dict[Acl, TwinlogError]:
        """Delete them, unless that fails."""
        assert not self.played.made, "the rights to write are given afterwards"
        if self.problem is not None:
            raise self.problem
        self.there -= set(acls) - set(self.refused)
        return self.refused

    async def read(self, _log: Any) -> Image:
        """The state at this moment."""
        self.events.append("read")
        return self.played.image


@pytest.fixture
def allowed(played: _Played, monkeypatch: pytest.MonkeyPatch) -> _Allowed:
    """As the destination does it."""
    return _Allowed(played, monkeypatch)


@pytest.mark.parametrize("working", [True, False])
async def test_a_stop_allows_others_to_write_before_it_gives_the_rights(
    played: _Played,
    allowed: _Allowed,
    working: bool,  # noqa: FBT001  # two cases
) -> None:
    """It is forgotten only where no worker lives: one may be about to deny what it does not know to be stopped."""
    played.image = denying(PartitionState.STOPPED, working=working)
    done = await give(LOG, played.image, RESULT)
    assert allowed.there == {denial("t2")}
    assert (done.notes, done.acls) == ((), (str(WRITE),))
    assert played.image.skipped["m"].denied == (("t", "t2") if working else ("t2",))


@pytest.mark.parametrize("working", [True, False])
async def test_what_is_about_to_be_stopped_by_workers_stays_denied(
    played: _Played,
    allowed: _Allowed,
    working: bool,  # noqa: FBT001  # two cases
) -> None:
    """Without one, nobody mirrors to it."""
    played.image = denying(PartitionState.STOPPING, working=working)
    await give(LOG, played.image, RESULT)
    assert (denial("t") in allowed.there) is working


@pytest.mark.parametrize(("working", "words"), [(True, "left to the workers"), (False, "kafka-acls.sh --remove")])
async def test_a_denial_that_stays_is_never_silent(
    played: _Played,
    allowed: _Allowed,
    working: bool,  # noqa: FBT001  # two cases
    words: str,
) -> None:
    """The topic is named, and it stays noted; the rights to write are given all the same."""
    played.image = denying(PartitionState.STOPPED, working=working)
    allowed.problem = AuthorizationFailed("Grant ALTER on CLUSTER.")
    done = await give(LOG, played.image, RESULT)
    assert len(done.notes) == 1
    for word in (words, "topic 't'", "Grant ALTER on CLUSTER."):
        assert word in done.notes[0]
    assert played.image.skipped["m"].denied == ("t", "t2")
    assert done.acls == (str(WRITE),)


async def test_before_a_mirror_is_deleted_all_is_allowed(played: _Played, allowed: _Allowed) -> None:
    """A worker that lives is waited for, a while; what cannot be deleted is raised."""
    assert await allow_all(LOG, "none") == frozenset()
    played.image = denying(PartitionState.STOPPED)
    allowed.problem = AuthorizationFailed("Grant ALTER on CLUSTER.")
    with pytest.raises(AuthorizationFailed):
        await allow_all(LOG, "m")
    allowed.problem, allowed.refused = None, {denial("t2"): BrokerError("no", code=1, name="X")}
    with pytest.raises(BrokerError):
        await allow_all(LOG, "m")
    allowed.refused = {}
    played.image, allowed.events = denying(PartitionState.STOPPED, working=True), []
    assert await allow_all(LOG, "m") == {"t", "t2"}
    assert allowed.there == set()
    assert len(allowed.events) > 1
