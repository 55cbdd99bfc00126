"""The rate of one mirror in a worker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from twinlog.names import TopicPartition
from twinlog.service.throttle import Throttle

WHERE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


def _image(**configs: str) -> Any:
    named = {"bootstrap.servers": "localhost:9092"}
    named |= {f"mirror.replication.throttled.{key}": value for key, value in configs.items()}
    return SimpleNamespace(mirrors={"m": SimpleNamespace(configs=named)})


async def test_only_listed_partitions_wait() -> None:
    """A partition that the list leaves out goes at once, however much the others owe."""
    throttle = Throttle(_image(rate="10", replicas="orders:0"), "m")
    assert (throttle.rate(WHERE), throttle.rate(OTHER)) == (10, None)
    await throttle.passed(WHERE, 1_000_000, asyncio.Event())
    await asyncio.wait_for(throttle.passed(OTHER, 1_000_000, asyncio.Event()), 0.2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(throttle.passed(WHERE, 1, asyncio.Event()), 0.1)


async def test_who_is_asked_to_stop_does_not_wait() -> None:
    """A stop takes effect at once, also in the middle of a long wait."""
    throttle, stopping = Throttle(_image(rate="10"), "m"), asyncio.Event()
    await throttle.passed(WHERE, 1_000_000, stopping)
    waiting = asyncio.create_task(throttle.passed(WHERE, 1, stopping))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    stopping.set()
    await asyncio.wait_for(waiting, 0.2)
    assert waiting.done()


async def test_lifted_rate_frees_who_waits() -> None:
    """The state is looked at while they wait, so no debt outlives the rate that it was made under."""
    image = _image(rate="10")
    throttle = Throttle(image, "m")
    await throttle.passed(WHERE, 1_000_000, asyncio.Event())
    waiting = asyncio.create_task(throttle.passed(WHERE, 1, asyncio.Event()))
    await asyncio.sleep(0)
    image.mirrors.update(_image().mirrors)
    await asyncio.wait_for(waiting, 1.5)
    assert throttle.rate(WHERE) is None
