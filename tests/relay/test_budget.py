"""How much may be fetched, and who may hold it."""

import asyncio

import pytest

from twinlog.relay.budget import LEAST_SHARE_BYTES, WINDOW_PART, Budget, Share

MB = 1 << 20


def _share(budget: Budget) -> Share:
    share = budget.share()
    share.at_work = True
    return share


async def test_a_response_is_a_part_of_the_whole() -> None:
    """One is under way while others are held; never more than is asked for."""
    budget = Budget(32 * MB)
    share = _share(budget)
    assert await share.room(10 * MB) == 32 * MB // WINDOW_PART
    assert await share.room(1 * MB) == 1 * MB


async def test_full_share_waits_until_something_is_given_back() -> None:
    """At the limit nothing is fetched; the next response is as large as what has become free."""
    budget = Budget(32 * MB)
    share = _share(budget)
    share.take(32 * MB)
    waiting = asyncio.create_task(share.room(4 * MB))
    await asyncio.sleep(0)
    assert not waiting.done()
    share.give_back(1 * MB)
    assert await waiting == 1 * MB
    assert budget.used_bytes == 31 * MB


async def test_a_crack_is_not_filled() -> None:
    """A response of some bytes is not worth a request while something is held."""
    share = _share(Budget(32 * MB))
    share.take(32 * MB - 1000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await share.room(4 * MB)


async def test_nobody_takes_the_share_of_another() -> None:
    """Partitions whose destination does not move leave the others what they need."""
    budget = Budget(32 * MB)
    stuck, other = _share(budget), _share(budget)
    stuck.take(16 * MB)
    waiting = asyncio.create_task(stuck.room(4 * MB))
    assert await other.room(4 * MB) == 4 * MB
    assert not waiting.done()
    other.at_work = False
    assert await waiting == 4 * MB


async def test_however_many_there_are_each_has_something() -> None:
    """A thousand fetchers still fetch."""
    budget = Budget(1 * MB)
    shares = [_share(budget) for _ in range(1000)]
    assert await shares[-1].room(4 * MB) == LEAST_SHARE_BYTES


async def test_batches_larger_than_the_share_come_one_at_a_time() -> None:
    """A broker returns one batch whatever was asked for; the next waits until it is gone."""
    share = _share(Budget(32 * MB))
    window = await share.room(4 * MB)
    share.take(40 * MB)
    share.came(40 * MB, 40 * MB)
    waiting = asyncio.create_task(share.room(4 * MB))
    await asyncio.sleep(0)
    assert not waiting.done()
    share.give_back(40 * MB)
    assert await waiting == window


async def test_room_is_left_for_a_batch_as_large_as_the_last() -> None:
    """After one that was larger than the window, another one of its size must fit."""
    share = _share(Budget(32 * MB))
    await share.room(4 * MB)
    share.take(20 * MB)
    share.came(20 * MB, 20 * MB)
    waiting = asyncio.create_task(share.room(4 * MB))
    await asyncio.sleep(0)
    assert not waiting.done()
    share.give_back(6 * MB)
    assert await waiting == 2 * MB


async def test_tiny_batches_count_with_what_is_kept_for_each() -> None:
    """Where the parts of a batch take up more than the batch, less is asked for."""
    share = _share(Budget(32 * MB))
    await share.room(4 * MB)
    share.take(16 * MB)
    share.came(2 * MB, 16 * MB)
    assert await share.room(4 * MB) == 2 * MB


async def test_closed_share_gives_back_to_the_whole() -> None:
    """What its partitions still hold ends with them, and the others have more at once."""
    budget = Budget(32 * MB)
    gone, other = _share(budget), _share(budget)
    gone.take(5 * MB)
    budget.close(gone)
    assert budget.share_bytes == 32 * MB
    gone.give_back(5 * MB)
    assert budget.used_bytes == 0
    assert other.used_bytes == 0
