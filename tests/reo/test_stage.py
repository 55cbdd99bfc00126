"""What a share writes down when it begins."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.reo.test_run import SETTINGS

from twinlog.batch.records import decode
from twinlog.names import TopicPartition
from twinlog.reo import direct, first_stage
from twinlog.reo.direct import Direct
from twinlog.reo.first_stage import FirstStage
from twinlog.reo.positions import Place, Position, Positions, beginning_of, decoded, encoded, has_begun
from twinlog.reo.stage import InTransactions, Sides

NOTE = beginning_of(SETTINGS.application, "source")


class Side:
    """A cluster without topics."""

    cluster_id = "source"
    cluster: "Side"


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Sides:
    """A share of which no partition is; `_end` and `_write` keep what is written, as the topic of positions would."""

    async def nothing(*_: object, **__: object) -> Any:
        return {}

    async def sent_in_transaction(stage: Any, _: object, __: object, found: Mapping[Place, Position]) -> None:
        stage.positions.known.update(found)

    async def sent(stage: Any, found: Mapping[Place, Position]) -> None:
        stage.positions.known.update(found)

    for module in (direct, first_stage):
        monkeypatch.setattr(module, "routes", nothing)
    monkeypatch.setattr(Positions, "ensure", nothing)
    monkeypatch.setattr(Sides, "others_positions", nothing)
    monkeypatch.setattr(InTransactions, "take_over", nothing)
    monkeypatch.setattr(InTransactions, "sender", None)
    monkeypatch.setattr(InTransactions, "_end", sent_in_transaction)
    monkeypatch.setattr(FirstStage, "_own_producer", nothing)
    monkeypatch.setattr(FirstStage, "_write", sent)
    side: Any = Side()
    side.cluster = side
    return Sides(SETTINGS, side, side)


@pytest.mark.parametrize("kind", [Direct, FirstStage])
async def test_a_share_without_partitions_notes_once_that_it_has_begun(kind: Any, sides: Sides) -> None:
    """What comes to it later was then added, whoever has it by then."""
    stage = kind(sides, sides.source)
    assert not await stage.begin()
    assert set(stage.positions.known) == {NOTE}
    assert has_begun(stage.positions.known, SETTINGS.application, "source")
    stage.positions.known[NOTE] = known = Position(0, -1, "", "", 1)
    assert not await stage.begin()
    assert stage.positions.known == {NOTE: known}


def test_the_note_is_read_like_a_position() -> None:
    """By programs too that do not know it: it is of a topic without a name."""
    position = Position(0, -1, "", "", 1)
    (record,) = decode(encoded({NOTE: position}))
    assert decoded(record, TopicPartition("copy-positions", 0)) == (NOTE, position)
