"""Waiting for a log to stand still where the broker does not answer at all."""

import asyncio
import time
from typing import Any

import pytest

from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.settle import settled_end


class Silent:
    """A destination whose lookups never end."""

    async def offset(self, *_: Any) -> int:
        """Hang."""
        await asyncio.Event().wait()
        raise AssertionError


async def test_the_bound_holds_also_where_a_lookup_hangs() -> None:
    """The clock alone would be looked at only behind the answer."""
    silent: Any = Silent()
    async with asyncio.timeout(5.0):
        with pytest.raises(RetryLater, match=r"orders-0: .* does not come to rest within 0 s"):
            await settled_end(silent, TopicPartition("orders", 0), time.monotonic, within_s=0.1)
