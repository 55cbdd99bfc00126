"""Where each partition of a topic is read on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.reo import topics
from twinlog.reo.positions import Place, Position
from twinlog.reo.settings import ReoSettings, Reset
from twinlog.reo.topics import Beginning, Route, starts
from twinlog.wire.ops import EARLIEST, LATEST

ROUTE = Route("t", "id", 4, "t-copy", "target", 4)
FIRST, END = 3, 90
SOURCE: Any = SimpleNamespace(cluster_id="source")
VALUES = {
    "application.name": "copy",
    "kafka.clusters.source.bootstrap-servers": "a:1",
    "kafka.clusters.destination.bootstrap-servers": "b:1",
    "kafka.clusters.source.topic": "t.*",
    "kafka.config.consumer.auto-reset": "latest",
}
SETTINGS = ReoSettings.read(VALUES, "the settings")


def known(*numbers: int, topic_id: str = "id", target_id: str = "target") -> dict[Place, Position]:
    """Positions of topic t, at ten times the partition's number."""
    return {
        Place("copy", "source", "t", topic_id, number): Position(10 * number, 1, "t-copy", target_id, 0)
        for number in numbers
    }


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Asks where partitions of t begin, of which the share has every second one; the destination holds nothing."""
    destination: Any = SimpleNamespace(cluster_id="destination")

    async def one_offset(cluster: object, _: TopicPartition, at: int, *, read_committed: bool = False) -> int:
        del read_committed
        return {EARLIEST: FIRST, LATEST: END}[at] if cluster is SOURCE else 0

    monkeypatch.setattr(topics, "one_offset", one_offset)

    async def ask(
        positions: Mapping[Place, Position], *, begun: bool, start_from: Reset | None = None, share: int = 0
    ) -> dict[int, Beginning]:
        found = await starts(
            replace(SETTINGS, start_from=start_from),
            ROUTE,
            positions,
            SOURCE,
            destination,
            mine=lambda where: where.partition % 2 == share,
            begun=lambda _: begun,
        )
        return {where.partition: beginning for where, beginning in found.items()}

    return ask


async def test_a_share_that_begins_for_the_first_time_begins_where_it_is_told_to(begins: Callable[..., Any]) -> None:
    """Also where another share has begun before it."""
    assert await begins({}, begun=False) == {0: (END, -1), 2: (END, -1)}
    assert await begins(known(1, 3), begun=False) == {0: (END, -1), 2: (END, -1)}


@pytest.mark.parametrize("start_from", [None, Reset.LATEST])
async def test_what_was_added_since_a_share_has_begun_is_copied_from_its_beginning(
    start_from: Reset | None, begins: Callable[..., Any]
) -> None:
    """A topic as well as a partition, whoever has the share now, and also where the settings still say `latest`."""
    assert await begins({}, begun=True, start_from=start_from) == {0: (FIRST, -1), 2: (FIRST, -1)}
    assert await begins(known(0, 1), begun=True, start_from=start_from) == {0: (0, 1), 2: (FIRST, -1)}
    # Partitions 0 and 2 were added: until then, the share had none of the topic.
    assert await begins(known(1), begun=True, start_from=start_from) == {0: (FIRST, -1), 2: (FIRST, -1)}


async def test_a_topic_that_was_created_again_is_no_addition(begins: Callable[..., Any]) -> None:
    """It is refused, or begins where `start-from` says, in the share that comes second too."""
    old = known(0, 1, 2, 3, topic_id="old")
    with pytest.raises(BadInput, match="created again"):
        await begins(old, begun=True)
    assert await begins(old, begun=True, start_from=Reset.LATEST) == {0: (END, -1), 2: (END, -1)}
    after_the_other = old | known(1, 3)
    assert await begins(after_the_other, begun=True, start_from=Reset.LATEST) == {0: (END, -1), 2: (END, -1)}


async def test_what_a_share_has_copied_to_the_new_destination_topic_holds_while_others_have_yet_to_begin(
    begins: Callable[..., Any],
) -> None:
    """A share that moves on goes on there, though the settings still say `latest`."""
    half = known(0, 2) | known(1, 3, target_id="old")
    assert await begins(half, begun=True, start_from=Reset.LATEST) == {0: (0, 1), 2: (20, 1)}
    assert await begins(half, begun=True) == {0: (0, 1), 2: (20, 1)}
    assert await begins(half, begun=True, start_from=Reset.LATEST, share=1) == {1: (END, -1), 3: (END, -1)}
    with pytest.raises(BadInput, match="is not the one that t was copied to"):
        await begins(half, begun=True, share=1)
