"""One side read ahead: how large fetches are, what is handed out, and patience with a leader that knows too little."""

from collections.abc import Callable
from typing import Any

import pytest

from twinlog.batch.records import Record
from twinlog.errors import RetryLater
from twinlog.verify import reader as module
from twinlog.verify.reader import Reader

Build = Callable[..., dict[int, Record]]


def reader(pair: Any, *, ahead: bool = True) -> Reader:
    """A reader of the whole source log."""
    source = pair.source
    return Reader(source, module.TopicPartition("orders", 0), range(source.end), timeout_s=0.3, ahead=ahead)


async def test_a_batch_that_reaches_beyond_is_handed_out_again(pair: Any, log: Build) -> None:
    """The other side may end inside of it."""
    records = log(dict.fromkeys(range(9), b"v"))
    pair.write(records, records, span=9)
    one = reader(pair)
    while one.reached < 9:
        assert await one.advance()
    assert [item.batch.base_offset for item in one.take(4)] == [0, 3]
    assert [item.batch.base_offset for item in one.take(7)] == [3, 6]
    assert [item.batch.base_offset for item in one.take(8)] == [6]
    assert not one.take(8)


async def test_the_next_fetch_is_under_way_at_once(pair: Any, log: Build) -> None:
    """And `close` ends it; a sample reads nothing ahead."""
    records = log(dict.fromkeys(range(9), b"v" * 300))
    pair.write(records, records, span=9)
    one = reader(pair)
    await one.advance()
    assert one.reached == 3
    await module.asyncio.sleep(0)
    assert pair.source.fetches == 2
    await one.close()
    other = reader(pair, ahead=False)
    await other.advance()
    await module.asyncio.sleep(0)
    assert pair.source.fetches == 3


async def test_tiny_batches_make_fetches_small(pair: Any, log: Build) -> None:
    """Their views would take more memory than their bytes."""
    records = log(dict.fromkeys(range(20), b"v"))
    pair.write(records, records, span=20, ours_by=1)
    one = reader(pair)
    await one.advance()
    await one.close()
    assert one._fetch_bytes == 8192 * (75 + len(b"k")) or one._fetch_bytes < module.FIRST_FETCH_BYTES


async def test_a_cut_leaves_batches_whole(pair: Any, log: Build) -> None:
    """At least one batch, and never beyond the offset given."""
    records = log(dict.fromkeys(range(9), b"v"))
    pair.write(records, records, span=9)
    one = reader(pair)
    while one.reached < 9:
        await one.advance()
    assert one.cut_at(1, 8) == 2
    assert one.cut_at(1, 1) == 1
    assert one.cut_at(10_000, 8) == 8


async def test_a_log_that_stays_silent_is_given_up(pair: Any, log: Build) -> None:
    """A leader just elected is given time, but not forever."""
    records = log(dict.fromkeys(range(3), b"v"))
    pair.write(records, records, span=3)
    one = reader(pair)
    one._end = 5
    await one.advance()
    with pytest.raises(RetryLater, match="nothing came from the source cluster at offset 3"):
        await one.advance()


async def test_a_log_that_lost_its_front_says_so(pair: Any, log: Build) -> None:
    """As a value: where to go on is not the reader's to decide."""
    records = log(dict.fromkeys(range(3), b"v"))
    pair.write(records, records, span=3)
    pair.source.start = 2
    assert not await reader(pair).advance()
