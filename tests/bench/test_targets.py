"""Requirements are judged by what was measured, and by nothing else."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from bench.__main__ import kept
from bench.loads import LOADS
from bench.names import BOTH, DEFAULT, TUNED, TWINLOG
from bench.picture import picture
from bench.report import merged, table, times
from bench.targets import Target, targets


def run(rate: float, cpu: float = 2.0, rss: int = 70_000_000) -> dict[str, float]:
    """One tool's figures in one round."""
    return {
        "mb_per_second": rate,
        "records_per_second": rate * 1000,
        "cpu_seconds_per_gb": cpu,
        "peak_rss_bytes": rss,
        "start_seconds": 1.0,
    }


def load(name: str, **changes: Any) -> dict[str, Any]:
    """A load's figures: twinlog four times as fast as the default, twice as fast as the tuned one."""
    known = LOADS[name]
    return {
        "load": {
            "name": name,
            "text": known.text,
            "partitions": known.partitions,
            "brokers": known.brokers,
            "log_bytes": 1000,
            "log_records": 1,
        },
        "tools": {TWINLOG: [run(200), run(180)], DEFAULT: [run(50, cpu=20), run(45, cpu=20)], TUNED: [run(100)]},
        "ceiling_mb_per_second": {BOTH: [220.0, 200.0]},
        "latency": {TWINLOG: {"p50_ms": 3.0, "p99_ms": 20.0}, DEFAULT: {"p50_ms": 9.0, "p99_ms": 200.0}},
        **changes,
    }


def by_text(figures: dict[str, Any]) -> dict[str, Target]:
    """The targets."""
    return {target.text: target for target in targets(figures)}


def test_nothing_measured_meets_nothing() -> None:
    """A requirement without a figure is neither met nor missed."""
    judged = targets({})
    assert len(judged) > 20
    assert {target.met for target in judged} == {None}


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """Rounds are compared pairwise, since each pair ran under the same conditions."""
    assert times(load("standard"), TWINLOG, DEFAULT) == pytest.approx(4.0)
    judged = by_text({"loads": {"standard": load("standard")}})
    assert judged["standard: times the default's throughput"].met is True
    assert judged["standard: share of the ceiling"].value == pytest.approx((200 / 220 + 180 / 200) / 2)
    assert judged["standard: CPU-s per GB, share of the default's"].value == pytest.approx(0.1)


def test_on_the_wrong_side_of_the_bound_is_missed() -> None:
    """Whether it is a least or a most."""
    slow = load("rf3-64", tools={TWINLOG: [run(50)], DEFAULT: [run(10)], TUNED: [run(20)]})
    late = load("standard", latency={TWINLOG: {"p50_ms": 1.0, "p99_ms": 51.0}})
    judged = by_text({"loads": {"rf3-64": slow, "standard": late}})
    assert judged["rf3-64: times the default's throughput"].met is False
    assert judged["standard: p99 latency, ms"].met is False
    assert "MISSED" in str(judged["standard: p99 latency, ms"])


def test_every_load_with_few_partitions_counts_for_the_memory() -> None:
    """The most that any of them needed."""
    figures = {
        "loads": {"standard": load("standard"), "large": load("large", tools={TWINLOG: [run(1, rss=160_000_000)]})},
        "idle": {
            "few": {"peak_rss_mb": 90},
            "many": {"peak_rss_mb": 300, "idle_cpu_share": 0.015},
        },
    }
    judged = by_text(figures)
    assert judged["peak RSS with 4 partitions, any load, MB"].value == pytest.approx(160)
    assert judged["peak RSS with 1,000 partitions, MB"].met is True
    assert judged["idle with 1,000 partitions, % of a core"].value == pytest.approx(1.5)


def test_a_file_keeps_what_this_run_did_not_measure(tmp_path: Path) -> None:
    """So the whole can be measured piece by piece."""
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"loads": {"large": 1, "small": 2}, "blanks": {"blanks": 3}, "idle": 4}), "utf-8")
    whole = merged({"loads": {"small": 5}, "blanks": {}, "workers": 6}, path)
    assert whole["loads"] == {"large": 1, "small": 5}
    assert whole["blanks"] == {"blanks": 3}
    assert (whole["idle"], whole["workers"]) == (4, 6)


def test_table_and_picture_show_every_contestant() -> None:
    """With the same numbers, and as XML that can be read."""
    figures = {"loads": {"standard": load("standard"), "rf3-4": load("rf3-4")}, "machine": {"cores": 2}}
    text = table(figures["loads"]["standard"])
    assert "200.0" in text
    drawn = picture(figures)
    assert drawn.count("<rect") == 1 + 3 + 2 * 3
    assert drawn.count("&lt;") == 0
    for name in (TWINLOG, DEFAULT, TUNED, LOADS["rf3-4"].text):
        assert name in drawn


def test_figures_and_picture_are_written_with_the_targets(tmp_path: Path) -> None:
    """Into folders that need not exist."""
    options = Namespace(json=tmp_path / "new" / "bench.json", picture=tmp_path / "other" / "bench.svg")
    kept({"machine": {"cores": 2, "kafka": "4.2.0"}, "loads": {"standard": load("standard")}}, options)
    written = json.loads(options.json.read_text("utf-8"))
    assert {target["met"] for target in written["targets"]} == {True, None}
    assert options.picture.read_text("utf-8").startswith("<svg")
