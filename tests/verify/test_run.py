"""A whole topic: partitions shared among lanes, and what is reported for all of them together."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from twinlog.config.client import ClientSettings
from twinlog.errors import AuthorizationFailed, BadInput, Unreachable
from twinlog.names import TopicPartition
from twinlog.verify import run
from twinlog.verify.partition import Meter
from twinlog.verify.report import Bounds, Outcome, PartitionReport
from twinlog.verify.run import Question, verify

SETTINGS = ClientSettings.from_properties({}, bootstrap="a:1")
QUESTION = Question(SETTINGS, SETTINGS, "orders")


class Bench:
    """What the fakes are told, and what they saw."""

    def __init__(self) -> None:
        self.partitions = {"source": range(5), "destination": range(5)}
        self.compacted: list[bool | None] = [False, False]
        self.starts = {"source": 0, "destination": 0}
        self.connections = 0
        self.most_connections = 100
        self.asked: list[str] = []
        self.compared: list[int] = []
        self.manners: list[Any] = []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Clusters that are only names, and comparisons that only take note."""
    bench = Bench()

    async def connect(_settings: ClientSettings, label: str, _timeout_s: float, _stack: AsyncExitStack) -> str:
        bench.connections += 1
        if bench.connections > bench.most_connections:
            raise Unreachable("too many connections")
        return label

    async def partitions_of(cluster: str, _topic: str) -> frozenset[int]:
        return frozenset(bench.partitions[cluster])

    async def bounds_of(cluster: str, wanted: list[TopicPartition], **_: Any) -> dict[TopicPartition, Bounds | str]:
        bench.asked.append(cluster)
        start = bench.starts[cluster]
        ends = {tp: 10 * tp.partition for tp in wanted}
        return {tp: Bounds(start, ends[tp], ends[tp]) if tp.partition else "no leader." for tp in wanted}

    async def is_compacted(cluster: str, _topic: str, **_: Any) -> bool | None:
        return bench.compacted[cluster == "destination"]

    class Comparison:
        def __init__(self, _sides: Any, _where: Any, report: PartitionReport, *, manner: Any, meter: Meter) -> None:
            self.report, self.manner, self.meter = report, manner, meter

        async def run(self) -> None:
            bench.compared.append(self.report.partition)
            bench.manners.append(self.manner)

    monkeypatch.setattr(run, "_refuse_same", lambda _source, _destination: None)
    for name, fake in {
        "_connect": connect,
        "partitions_of": partitions_of,
        "bounds_of": bounds_of,
        "is_compacted": is_compacted,
        "Comparison": Comparison,
    }.items():
        monkeypatch.setattr(run, name, fake)
    return bench


async def test_every_partition_is_compared_once(bench: Bench) -> None:
    """The longest first, over several lanes; one whose bounds are not known is an error of its own."""
    meter = Meter()
    report = await verify(QUESTION, meter)
    assert sorted(bench.compared) == [1, 2, 3, 4]
    assert bench.compared[0] == 4
    assert meter.offsets == 100
    assert [part.partition for part in report.partitions] == [0, 1, 2, 3, 4]
    assert report.partitions[0].error == "no leader. no leader."
    assert report.outcome is Outcome.NOT_COMPARED


async def test_the_destination_is_looked_at_first(bench: Bench) -> None:
    """So that a running mirror never seems to be ahead of its source."""
    await verify(QUESTION)
    assert bench.asked == ["destination", "source"]


async def test_refused_connections_leave_the_first_lane(bench: Bench) -> None:
    """It does all the work alone."""
    bench.most_connections = 2
    await verify(QUESTION)
    assert sorted(bench.compared) == [1, 2, 3, 4]


async def test_an_unreachable_cluster_is_raised(bench: Bench) -> None:
    """Nothing can be compared without it."""
    bench.most_connections = 1
    with pytest.raises(Unreachable):
        await verify(QUESTION)


async def test_a_topic_is_compacted_if_either_side_says_so(bench: Bench) -> None:
    """And where neither can tell, that is noted."""
    bench.compacted = [None, True]
    report = await verify(QUESTION)
    assert bench.manners[0].compacted
    assert not report.notes
    bench.compacted = [None, False]
    report = await verify(QUESTION)
    assert not bench.manners[-1].compacted
    assert "could not be read" in report.notes[0]


async def test_numbers_of_partitions_are_compared(bench: Bench) -> None:
    """And only those that both have."""
    bench.partitions["destination"] = range(1, 3)
    report = await verify(QUESTION)
    assert (report.outcome, sorted(bench.compared)) == (Outcome.DIFFERENT, [1, 2])


async def test_a_chosen_start_is_asked_for_only_where_a_log_begins_later(bench: Bench) -> None:
    """And by the partition, of those that do."""
    asked: list[tuple[Any, Any, str]] = []

    async def starts(source: Any, destination: Any, topic: str) -> dict[int, int]:
        asked.append((source, destination, topic))
        return {0: 3, 1: 5}

    question = replace(QUESTION, starts=starts)
    report = await verify(question)
    assert (asked, {part.chosen_start for part in report.partitions}) == ([], {0})
    bench.starts["destination"] = 5
    report = await verify(question)
    assert asked == [("source", "destination", "orders")]
    assert [part.chosen_start for part in report.partitions] == [0, 5, 0, 0, 0]


async def test_a_start_is_in_doubt_where_nobody_can_tell_whether_it_was_chosen(bench: Bench) -> None:
    """A warning says why and what to give; where no log begins later it does not matter, and nobody asks."""

    async def starts(_source: Any, _destination: Any, _topic: str) -> dict[int, int]:
        raise AuthorizationFailed("No READ on the state.")

    bench.partitions = {"source": range(1, 3), "destination": range(1, 3)}
    question = replace(QUESTION, starts=starts)
    report = await verify(question)
    assert (report.warnings, report.outcome) == ([], Outcome.IDENTICAL)
    bench.starts["destination"] = 5
    report = await verify(question)
    assert [part.start_in_doubt for part in report.partitions] == [True, True]
    assert report.outcome is Outcome.NOT_COMPARED
    (warning,) = report.warnings
    assert "its state could not be read: No READ on the state." in warning
    assert "--from 1:5,2:5 if that was meant" in warning


def test_one_cluster_is_not_compared_with_itself() -> None:
    """A pasted wrong address must not end with 'identical'."""
    same: Any = type("Cluster", (), {"cluster_id": "abc"})()
    other: Any = type("Cluster", (), {"cluster_id": "def"})()
    with pytest.raises(BadInput, match="same cluster, abc"):
        run._refuse_same(same, same)
    run._refuse_same(same, other)
