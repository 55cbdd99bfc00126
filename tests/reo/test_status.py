"""What is told of a copy by what is written down."""

from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.names import TopicPartition
from twinlog.reo import status
from twinlog.reo.positions import Place, Position, beginning_of
from twinlog.reo.replicas import Replicas

WHERE = TopicPartition("copy-positions", 0)
POSITION = Position(4, 1, "t-copy", "target", 0)


def sides() -> Any:
    """A copy with one share."""
    told = SimpleNamespace(
        settings=SimpleNamespace(transactional_id=lambda share: f"copy-{share}"),
        destination=None,
        positions=lambda: SimpleNamespace(where=WHERE),
    )
    told.of = lambda _: told
    return told


@pytest.mark.parametrize(("needed", "in_sync", "held"), [(None, (1, 2), False), (2, (1, 2), False), (2, (1,), True)])
async def test_only_what_is_certain_to_hold_a_share_is_told(
    *, needed: int | None, in_sync: tuple[int, ...], held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is away, where the setting may not be read, does not make a healthy copy a held one."""

    async def what_holds(*_: object) -> list[Replicas]:
        return [Replicas(WHERE, 1, (1, 2, 3), in_sync, needed)]

    monkeypatch.setattr(status, "what_holds", what_holds)
    told = await status._holdup(sides(), 0)
    assert bool(told) is held
    assert ("The transaction of copy-0 cannot end" in told) is held


def test_whether_a_share_has_begun_is_told_for_each() -> None:
    """By a position of any topic of that source, or by the note of a share without partitions."""
    noted, copied = {beginning_of("copy", "source"): POSITION}, {Place("copy", "source", "t", "id", 7): POSITION}
    of_two = status.Recorded([copied, {}])
    begun = [of_two.begun(TopicPartition("t", number), "copy", "source") for number in range(2)]
    assert sorted(begun) == [False, True]
    assert status.Recorded([noted]).begun(TopicPartition("t", 0), "copy", "source")
    assert not status.Recorded([noted]).begun(TopicPartition("t", 0), "copy", "another source")
    assert not status.Recorded([]).begun(TopicPartition("t", 0), "copy", "source")
    assert of_two.known == copied
