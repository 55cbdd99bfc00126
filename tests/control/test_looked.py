"""What of a mirror's topics was there when it first looked for them, whatever commands and workers do in between."""

from collections.abc import Collection, Mapping
from uuid import UUID

import pytest

from twinlog.control import looked as module
from twinlog.control.commands import FoundTopic, Start, Stop
from twinlog.control.handle import start, stop
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.looked import Looked
from twinlog.control.records import NO_TOPIC_ID, MirrorRecord, TopicRecord

INCLUDE, EXCLUDE = "mirror.topics.include", "mirror.topics.exclude"


def identity(name: str, life: int = 0) -> UUID:
    """A topic's id, another one in each of its lives."""
    return UUID(int=1 + life + (sum(name.encode()) << 64))


class _Mirror:
    """The state of one mirror, as commands change it."""

    def __init__(self, include: str = "", exclude: str = "", *topics: str) -> None:
        self.image = Image([MirrorRecord("m", {"bootstrap.servers": "a:1", INCLUDE: include, EXCLUDE: exclude}, "S")])
        for name in topics:
            self.image.apply(TopicRecord("m", name, DesiredState.MIRRORING, identity(name), NO_TOPIC_ID, 1))

    @property
    def record(self) -> MirrorRecord:
        """As it is now."""
        return self.image.mirrors["m"]

    def alter(self, **lists: str) -> None:
        """Set the include or the exclude list, as an operator does."""
        configs = {**self.record.configs, **{f"mirror.topics.{name}": text for name, text in lists.items()}}
        self.image.apply(MirrorRecord(**{**_fields(self.record), "configs": configs}))

    def start(
        self,
        *found: str,
        include: Collection[str] = (),
        exclude: Collection[str] = (),
        unstarted: Mapping[str, UUID] | None = None,
    ) -> None:
        """A start for the include patterns; discovery's has all of them."""
        patterns = tuple(include) or Looked(self.image, self.record)._now.include
        topics = tuple(FoundTopic(name, identity(name), 1) for name in found)
        command = Start("m", topics, patterns, tuple(exclude), unstarted=unstarted or {})
        for change in start(self.image, command).records:
            self.image.apply(change)

    def stop(self, *patterns: str) -> None:
        """A stop."""
        for change in stop(self.image, Stop("m", (), patterns)).records:
            self.image.apply(change)

    def later(self, name: str, life: int = 0) -> bool:
        """Whether a topic that is found now was born later."""
        return Looked(self.image, self.record).born_later(name, identity(name, life))

    @property
    def complete(self) -> bool:
        """Whether no look is due."""
        return Looked(self.image, self.record).complete


def _fields(record: MirrorRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in MirrorRecord.__dataclass_fields__ if name.islower()}


def test_what_the_first_look_finds_was_there_and_what_comes_later_was_not() -> None:
    """Whether the look found anything or not, and for any worker that reads the state."""
    mirror = _Mirror("ord.*")
    assert (mirror.complete, mirror.later("ord-1")) == (False, False)
    mirror.start("ord-1")
    assert (mirror.complete, mirror.later("ord-1"), mirror.later("ord-2")) == (True, False, True)
    assert mirror.later("other") is False
    nothing = _Mirror("ord.*")
    nothing.start()
    assert (nothing.complete, nothing.later("ord-1")) == (True, True)


def test_a_start_command_is_a_look_for_its_own_patterns() -> None:
    """Those that were there before still wait for theirs; a name that does not exist yet is one."""
    mirror = _Mirror("ord.*")
    mirror.start("pay-1", include=["pay.*", "name"])
    assert (mirror.complete, mirror.later("pay-2"), mirror.later("name")) == (False, True, True)
    assert mirror.later("ord-1") is False
    mirror.start("ord-1")
    assert (mirror.complete, mirror.later("ord-2"), mirror.later("pay-2")) == (True, True, True)


def test_new_patterns_are_looked_for_and_the_old_ones_stay_known() -> None:
    """Between the change and the look both kinds may be born; only the old patterns' topics are late."""
    mirror = _Mirror("ord.*")
    mirror.start()
    mirror.alter(include="ord.*,pay.*")
    assert (mirror.complete, mirror.later("ord-1"), mirror.later("pay-1")) == (False, True, False)
    mirror.start("ord-1", "pay-1")
    assert (mirror.complete, mirror.later("pay-2")) == (True, True)


def test_a_pattern_that_is_taken_back_is_set_up_anew_when_it_comes_again() -> None:
    """By an operator's stop and start, or by an altered list that was looked through in between."""
    mirror = _Mirror("ord.*,pay.*")
    mirror.start()
    mirror.stop("ord.*")
    assert (mirror.complete, mirror.later("ord-1"), mirror.later("pay-1")) == (True, False, True)
    mirror.start("ord-1", include=["ord.*"])
    assert (mirror.complete, mirror.later("ord-2")) == (True, True)
    mirror.alter(include="pay.*")
    mirror.start()
    mirror.alter(include="pay.*,ord.*")
    assert mirror.later("ord-3") is False


def test_what_was_excluded_is_new_once_it_is_not() -> None:
    """The patterns that let it in are then set up for it."""
    mirror = _Mirror("ord.*", "ord-x.*")
    mirror.start()
    assert mirror.later("ord-x1") is False
    mirror.alter(exclude="")
    assert (mirror.complete, mirror.later("ord-x1"), mirror.later("ord-1")) == (False, False, True)
    mirror.start("ord-x1")
    assert mirror.later("ord-x2") is True
    mirror.stop("ord-y.*")
    assert (mirror.complete, mirror.later("ord-y1")) == (True, False)
    mirror.start("ord-y1", include=["ord-y.*"])
    assert (mirror.complete, mirror.later("ord-y2"), mirror.later("ord-2")) == (True, True, True)


def test_what_was_found_and_could_not_be_started_is_remembered_by_its_id() -> None:
    """Not a topic that is made anew under its name, nor one that failed and was born later anyway."""
    mirror = _Mirror("ord.*")
    mirror.start("ord-1", unstarted={"ord-2": identity("ord-2"), "ord-3": identity("ord-3")})
    assert [mirror.later(name) for name in ("ord-2", "ord-3", "ord-4")] == [False, False, True]
    assert mirror.later("ord-2", life=1) is True
    mirror.start("ord-2", unstarted={"ord-3": identity("ord-3", 1), "ord-4": identity("ord-4")})
    assert [mirror.later(name) for name in ("ord-3", "ord-4")] == [True, True]
    assert mirror.record.unstarted == ()


def test_a_topic_that_the_rules_refuse_is_remembered_too() -> None:
    """For example one that another mirror has: once it is free, it begins as it would have begun then."""
    mirror = _Mirror("ord.*")
    mirror.image.apply(TopicRecord("other", "ord-1", DesiredState.MIRRORING, identity("ord-1"), NO_TOPIC_ID, 1))
    mirror.start("ord-1")
    assert (mirror.complete, mirror.later("ord-1"), mirror.later("ord-2")) == (True, False, True)


def test_of_too_many_some_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin at their beginning: more is copied, never less."""
    monkeypatch.setattr(module, "MOST_UNSTARTED", 2)
    mirror = _Mirror("ord.*")
    mirror.start(unstarted={name: identity(name) for name in ("ord-1", "ord-2", "ord-3")})
    assert [mirror.later(name) for name in ("ord-1", "ord-2", "ord-3")] == [False, False, True]


def test_a_mirror_of_an_older_twinlog_has_looked() -> None:
    """It had no field for that; where it has topics, all that comes is late, but for what a new pattern finds."""
    mirror = _Mirror("ord.*", "", "ord-1")
    assert (mirror.complete, mirror.later("ord-2")) == (False, True)
    mirror.start("pay-1", include=["pay.*"])
    assert (mirror.complete, mirror.later("ord-2"), mirror.later("pay-2")) == (True, True, True)
    assert _Mirror("ord.*", "", "ord-1").later("pay-1") is False


def test_a_start_of_which_every_name_is_refused_writes_nothing() -> None:
    """It has set up no patterns."""
    mirror = _Mirror("", "")
    mirror.image.apply(TopicRecord("other", "t", DesiredState.MIRRORING, identity("t"), NO_TOPIC_ID, 1))
    handled = start(mirror.image, Start("m", (FoundTopic("t", identity("t"), 1),), ("t",)))
    assert (list(handled.reply.failed), handled.records) == (["t"], ())


def test_a_name_in_the_mirrors_list_that_cannot_start_is_looked_for_all_the_same() -> None:
    """Else each refresh would look again; what was found of it is remembered, so that it begins as it should."""
    mirror = _Mirror("t,u")
    mirror.image.apply(TopicRecord("other", "t", DesiredState.MIRRORING, identity("t"), NO_TOPIC_ID, 1))
    mirror.start("t")
    assert (mirror.complete, mirror.later("t"), mirror.later("t", life=1), mirror.later("u")) == (
        True,
        False,
        True,
        True,
    )
