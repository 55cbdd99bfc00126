"""Where the holes of a compacted source are worth filling, and how far."""

from typing import Any, cast

import pytest

from twinlog.batch.records import Record, encode
from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay import seam
from twinlog.relay.seam import MOST_LOOKS, WORTH_RUNS, find_seam
from twinlog.wire.ops import LogChunk

WHERE = TopicPartition("t", 0)
END = 100_000


class FakeSource:
    """A log with one record in ten up to `holed_to`, and every record from there on; a look shows 500 offsets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holed_to: int) -> None:
        self.holed_to = holed_to
        self.looks = 0
        self.fails_at = -1
        monkeypatch.setattr(seam, "read_log", self._read)

    async def _read(self, _cluster: Any, _where: Any, position: int, **_: Any) -> LogChunk:
        self.looks += 1
        if self.looks == self.fails_at:
            raise RetryLater("away")
        offsets = [at for at in range(position, min(position + 500, END)) if at >= self.holed_to or at % 10 == 5]
        raw = b"".join(bytes(encode([Record(at, 7_000 + at, b"k", b"v")], codec=0).raw) for at in offsets)
        return LogChunk(memoryview(raw), END, END, 0, (), 0)

    async def seam(self, end: int = END) -> seam.Seam | None:
        """What is found."""
        return await find_seam(cast("Any", None), WHERE, 0, end)


@pytest.mark.parametrize("holed_to", [30_000, 65_432, 99_990, END])
async def test_the_seam_is_a_blank_near_the_last(monkeypatch: pytest.MonkeyPatch, holed_to: int) -> None:
    """Within a look of the last hole, and found by few looks."""
    source = FakeSource(monkeypatch, holed_to)
    found = await source.seam()
    assert found is not None
    assert found.at % 10 != 5
    assert holed_to - 1_000 < found.at < holed_to
    assert found.oldest_ms == 7_005
    assert 0.8 < found.runs / (found.at / 10) < 1.3
    assert source.looks <= MOST_LOOKS + 1


@pytest.mark.parametrize(("holed_to", "end"), [(0, END), (WORTH_RUNS * 5, END), (END, WORTH_RUNS)])
async def test_few_holes_are_not_worth_it(monkeypatch: pytest.MonkeyPatch, holed_to: int, end: int) -> None:
    """None, not many, or a short log."""
    assert await FakeSource(monkeypatch, holed_to).seam(end) is None


async def test_a_source_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: nothing is known. Later: the seam is what was found until then."""
    source = FakeSource(monkeypatch, END)
    source.fails_at = 1
    assert await source.seam() is None
    source.looks, source.fails_at = 0, 3
    found = await source.seam()
    assert found is not None
    assert 50_000 <= found.at < 51_000
