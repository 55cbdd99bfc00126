"""The metrics of a worker, from stand-ins of what it looks at."""

import logging
import re
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.control.image import Image
from twinlog.control.lifecycle import PartitionState
from twinlog.control.records import MirrorRecord, PartitionRecord
from twinlog.names import TopicPartition
from twinlog.relay.counts import Counts
from twinlog.relay.inbox import SourceFigures
from twinlog.relay.lease import Lease
from twinlog.service import metrics
from twinlog.service.metric_table import SUMMED, TABLE, reference
from twinlog.service.metrics import NAMED_AFTER_S, Sights, View, exposition


def _supervisor(position: int = 5, end: int = 9, *, partition: int = 0, **counts: float) -> Any:
    figures = SourceFigures(0, end, end, told_at=90.0)
    relay = SimpleNamespace(position=position, confirmed=position, figures=figures)
    record = PartitionRecord("m", "t", partition, PartitionState.MIRRORING)
    return SimpleNamespace(
        mirror="m",
        topic="t",
        partition=partition,
        where=TopicPartition("t", partition),
        relay=relay,
        record=record,
        state=record.state,
        ended=False,
        counts=Counts(**counts),  # type: ignore[arg-type]
    )


_SYNCS = SimpleNamespace(
    topic_metadata_refresh_errors=Counter(m=1),
    topic_config_sync_errors=Counter(m=5),
    consumer_group_offset_sync_errors=Counter(m=6),
    share_group_offset_sync_errors=Counter(m=8),
    acl_sync_errors=Counter(m=7),
)


def _view(*supervisors: Any) -> View:
    lease = Lease(lambda: 100.0)
    lease.renewed(99.0)
    return View(
        "w",
        "c",
        Image([MirrorRecord("m", {}, "s")]),
        lease,
        SimpleNamespace(supervisors=supervisors, owned=[1, 2]),  # type: ignore[arg-type]
        SimpleNamespace(connected={"m": SimpleNamespace(throttled_ms=70, rounds={}, dead=0)}),  # type: ignore[arg-type]
        SimpleNamespace(errors={"m": 3}, coordinator=_SYNCS),  # type: ignore[arg-type]
        SimpleNamespace(throttled_ms=80),  # type: ignore[arg-type]
    )


def _values(view: View, now: float = 100.0) -> dict[str, float]:
    return {name: value for name, _, value in view.samples(now)}


def test_every_name_is_in_the_table_and_every_row_is_told() -> None:
    """A metric without a row, or a row without its metric, is a mistake."""
    view = _view(_supervisor(records=2, size=10, appended_at=95.0))
    text = exposition(view.samples(100.0)).decode()
    told = set(re.findall(r"^(twinlog_\w+?)(?:\{| )", text, re.MULTILINE))
    assert told == {metric.name for metric in TABLE}
    assert "process_resident_memory_bytes" in text
    assert all(f"`{metric.name}`" in reference() for metric in (*TABLE, *SUMMED.values()))


def test_names_follow_the_rules_of_prometheus() -> None:
    """Counters end with _total, gauges do not, and no name is given twice."""
    names = [metric.name for metric in (*TABLE, *SUMMED.values())]
    assert len(names) == len(set(names))
    assert all(metric.name.endswith("_total") == (metric.kind.value == "counter") for metric in TABLE)
    assert all(metric.doc.endswith(".") for metric in TABLE)


def test_lag_in_records_and_bytes() -> None:
    """Four offsets are lacking, of five bytes each so far."""
    values = _values(_view(_supervisor(records=2, size=10)))
    assert values["twinlog_lag_records"] == 4
    assert values["twinlog_lag_bytes"] == 20
    assert values["twinlog_max_lag_records"] == 4
    assert values["twinlog_topic_metadata_refresh_errors_total"] == 4
    assert values["twinlog_topic_config_sync_errors_total"] == 5
    assert values["twinlog_consumer_group_offset_sync_errors_total"] == 6
    assert values["twinlog_source_throttle_milliseconds_total"] == 70
    assert values["twinlog_destination_throttle_milliseconds_total"] == 80
    assert values["twinlog_share_group_offset_sync_errors_total"] == 8
    assert values["twinlog_acl_sync_errors_total"] == 7
    assert values["twinlog_lease_remaining_seconds"] == 5


def test_bytes_are_not_guessed_before_anything_was_copied() -> None:
    """There is no mean yet; nor is there a lag before the source has said anything."""
    assert "twinlog_lag_bytes" not in _values(_view(_supervisor()))
    assert "twinlog_lag_records" not in _values(_view(_supervisor(end=-1)))


def test_beyond_the_cap_only_sums_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how many partitions they stand for."""
    monkeypatch.setattr(metrics, "MOST_PARTITIONS", 1)
    samples = _view(*(_supervisor(partition=p, records=p) for p in range(4))).samples(100.0)
    assert [labels for name, labels, _ in samples if name == "twinlog_copied_records_total"] == [("m", "t", "0")]
    assert ("twinlog_topic_copied_records_total", ("m", "t"), 6) in samples
    assert ("twinlog_partitions_left_out", (), 3) in samples


def test_lag_in_time_begins_when_the_lacking_was_first_seen() -> None:
    """A newer end of the source makes it no younger; having all of it ends it."""
    sights, one = Sights(), _supervisor(9, 9)
    sights.look([one], 0.0)
    one.relay.figures.last_stable_offset = 12
    sights.look([one], 1.0)
    one.relay.figures.last_stable_offset = 20
    sights.look([one], 5.0)
    assert sights.lag_s(one, 6.0) == 5.0
    one.relay.position = 12
    assert sights.lag_s(one, 6.0) == 1.0
    one.relay.position = 20
    sights.look([one], 7.0)
    assert sights.lag_s(one, 8.0) == 0.0


def test_what_stands_still_is_named_once_within_30_s(caplog: pytest.LogCaptureFixture) -> None:
    """Also without a relay, as in a retry; once more only after it has moved."""
    sights, one = Sights(), _supervisor()
    with caplog.at_level(logging.WARNING, "twinlog.partition"):
        sights.look([one], 0.0)
        one.relay = None
        for second in range(1, 60):
            sights.look([one], float(second))
    assert len(caplog.messages) == 1
    assert "t-0 of mirror m: stands still at offset 5 for 20 s" in caplog.messages[0]
    assert NAMED_AFTER_S + metrics.LOOK_EVERY_S < 30
    assert sights.still_s(one, 60.0) == 60.0


def test_nothing_stands_still_that_is_level_moves_or_rests(caplog: pytest.LogCaptureFixture) -> None:
    """Only what is meant to move and lacks something is named."""
    sights = Sights()
    level, moving, paused = _supervisor(9, 9), _supervisor(partition=1), _supervisor(partition=2)
    paused.state = PartitionState.PAUSED
    for second in range(60):
        moving.relay.position += 1
        moving.relay.figures.last_stable_offset += 1
        sights.look([level, moving, paused], float(second))
    assert caplog.messages == []
    assert [sights.still_s(one, 59.0) for one in (level, moving, paused)] == [0, 0, 0]


def test_a_thousand_partitions_are_looked_at_quickly() -> None:
    """What runs on the event loop must not hold the lease up: far below a second on a busy machine."""
    view = _view(*(_supervisor(partition=p, records=1, size=1) for p in range(1000)))
    began = time.perf_counter()
    view.sights.look(view.shards.supervisors, 100.0)
    samples = view.samples(101.0)
    assert time.perf_counter() - began < 0.5
    assert len(samples) > 10_000
