"""Copying exactly once is judged by what was measured, tool by tool."""

from typing import Any

import pytest
from bench.names import MM2_AT_LEAST_ONCE, MM2_EXACTLY_ONCE, REO_DIRECT, REO_PROXY
from bench.reo_report import rows, table, targets


def run(rate: float, cpu: float) -> dict[str, float]:
    """One round of a tool."""
    return {"mb_per_second": rate, "cpu_seconds_per_gb": cpu, "peak_rss_bytes": 80e6, "start_seconds": 1.0}


def figures(**changes: Any) -> dict[str, Any]:
    """Direct three times as fast as MirrorMaker 2; everything measured."""
    tools = {
        REO_DIRECT: [run(150, 3.0), run(120, 3.5)],
        REO_PROXY: [run(50, 20.0), run(40, 22.0)],
        MM2_AT_LEAST_ONCE: [run(50, 20.0), run(40, 25.0)],
        MM2_EXACTLY_ONCE: [run(30, 30.0), run(30, 30.0)],
    }
    late = {"p50_ms": 60.0, "p99_ms": 150.0}
    return {
        "load": {"text": "1 KB records", "partitions": 4},
        "tools": tools,
        "latency": dict.fromkeys(tools, late),
        "restart_seconds": dict.fromkeys(tools, 2.0),
        **changes,
    }


def test_nothing_measured_meets_nothing() -> None:
    """A requirement without a figure is neither met nor missed."""
    judged = targets({})
    assert len(judged) == 9
    assert {target.met for target in judged} == {None}


def test_each_requirement_is_judged_by_its_own_figure() -> None:
    """Ratios by the median of the rounds, rates and costs by the best one."""
    judged = {target.text: target for target in targets({"reo": figures()})}
    assert {target.met for target in judged.values()} == {True}
    ratio = judged["reo, direct: times the throughput of MirrorMaker 2, at least once"]
    assert ratio.value == pytest.approx(3.0)
    assert judged["reo, proxy: CPU-s per GB"].bound == pytest.approx(27.0)


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"restart_seconds": {REO_DIRECT: 11.0}}, "reo, direct: first record after a restart, s"),
        ({"latency": {REO_PROXY: {"p50_ms": 100.0, "p99_ms": 401.0}}}, "reo, proxy: p99 latency, ms"),
        ({"tools": {REO_DIRECT: [run(59, 3.0)]}}, "reo, direct: MB/s"),
        ({"tools": {REO_PROXY: [run(59, 28.0)]}}, "reo, proxy: CPU-s per GB"),
    ],
)
def test_on_the_wrong_side_is_missed(change: dict[str, Any], missed: str) -> None:
    """And nothing else with it."""
    judged = targets({"reo": figures(**change)})
    assert [target.text for target in judged if target.met is False] == [missed]


def test_the_table_shows_every_tool_once() -> None:
    """With its best round; what a tool has no figure for is a dash."""
    found = list(rows(figures(latency={}, restart_seconds={})))
    assert [row[0] for row in found] == ["", REO_DIRECT, REO_PROXY, MM2_AT_LEAST_ONCE, MM2_EXACTLY_ONCE]
    assert found[1][1:5] == ("150.0", "3", "4.5", "3.00")
    assert found[1][-3:] == ("-", "-", "-")
    assert "1 KB records" in table(figures())
