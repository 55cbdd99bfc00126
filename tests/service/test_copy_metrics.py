"""What `/metrics` and `/readyz` of a copy say of the copiers at work."""

from types import SimpleNamespace
from typing import Any

from twinlog.names import TopicPartition
from twinlog.reo.lines import Counts, Fact
from twinlog.reo.sharing import Board
from twinlog.service.copy_metrics import METRICS, CopyEndpoints, samples


def copier(name: str, facts: list[Fact], *, trouble: str = "", **counts: int) -> Any:
    """Stands for one that is at work."""
    return SimpleNamespace(
        stage=SimpleNamespace(name=name),
        counts=Counts(**counts),
        trouble=trouble,
        holdup=trouble,
        facts=lambda: facts,
        too_few_replicas=lambda: [SimpleNamespace(where=TopicPartition("t-copy", 1))] if trouble else [],
    )


def test_the_shares_of_a_stage_are_summed_and_each_partition_is_told() -> None:
    """The lag only where the end is known."""
    board = Board()
    board.copiers = [
        copier("stage 1", [Fact(TopicPartition("t", 0), 5, 9, "")], bytes=10, rounds=1),
        copier("stage 1", [Fact(TopicPartition("t", 1), 7, -1, "too large")], trouble="held", bytes=5, failures=2),
    ]
    told = {(name, labels): value for name, labels, value in samples(board)}
    assert told == {
        ("twinlog_reo_shares", ("stage 1",)): 2,
        ("twinlog_reo_held", ("stage 1",)): 1,
        ("twinlog_reo_too_few_replicas", ("stage 1", "t-copy", "1")): 1,
        ("twinlog_reo_bytes_total", ("stage 1",)): 15,
        ("twinlog_reo_rounds_total", ("stage 1",)): 1,
        ("twinlog_reo_interruptions_total", ("stage 1",)): 2,
        ("twinlog_reo_position", ("stage 1", "t", "0")): 5,
        ("twinlog_reo_position", ("stage 1", "t", "1")): 7,
        ("twinlog_reo_stopped", ("stage 1", "t", "0")): 0,
        ("twinlog_reo_stopped", ("stage 1", "t", "1")): 1,
        ("twinlog_reo_lag_records", ("stage 1", "t", "0")): 4,
    }
    assert {name for name, _ in told} == {metric.name for metric in METRICS}


async def test_it_is_ready_when_nothing_is_in_trouble() -> None:
    """Else each reason is told."""
    board = Board()
    endpoints = CopyEndpoints(board)
    assert await endpoints._answer("GET", "/readyz") == (
        503,
        "text/plain; charset=utf-8",
        b"the clusters have not been reached\n",
    )
    board.waits_for = ""
    board.copiers = [copier("stage 2", [], trouble="stage 2: no proxy topic"), copier("stage 1", [])]
    assert endpoints.reasons() == ["stage 2: no proxy topic"]
    board.copiers = [copier("stage 1", [Fact(TopicPartition("t", 0), 5, 9, "")])]
    assert endpoints.reasons() == []
    text = (await endpoints._answer("GET", "/metrics"))[2].decode()
    assert 'twinlog_reo_position{partition="0",stage="stage 1",topic="t"} 5.0' in text
