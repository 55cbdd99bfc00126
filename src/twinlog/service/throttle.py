"""The rate of one mirror in this worker: who wants to send waits in a line until it is their turn.

Each partition has two plans in that line at most, and a fetch brings a bounded part of one partition, so a partition
with little to send waits behind a bounded part of each other one, however much those still have to come.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from twinlog.config.kinds import ThrottledReplicas
from twinlog.config.mirror import MirrorConfig
from twinlog.control.image import Image
from twinlog.errors import BadInput
from twinlog.names import TopicPartition
from twinlog.relay.bucket import Bucket
from twinlog.relay.decide import Stopped
from twinlog.relay.waiting import unless

# A rate that is changed meanwhile counts from then on.
LOOK_AGAIN_S = 0.5

NO_LIMIT = (None, ThrottledReplicas())


class Throttle:
    """One mirror's rate, read from the state while it runs."""

    def __init__(self, image: Image, mirror: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._image = image
        self._mirror = mirror
        self._clock = clock
        self._bucket = Bucket()
        self._turn = asyncio.Lock()
        self._read: tuple[Mapping[str, str] | None, tuple[int | None, ThrottledReplicas]] = (None, NO_LIMIT)

    def __repr__(self) -> str:
        return f"Throttle({self._mirror}, {self._bucket!r})"

    async def passed(self, where: TopicPartition, size: int, stopping: asyncio.Event) -> None:
        """Return once `size` bytes of partition `where` may be sent; at once where `stopping` is set."""
        if self.rate(where) is not None:
            with suppress(Stopped):
                await unless(stopping, self._wait(size))

    def rate(self, where: TopicPartition) -> int | None:
        """The rate that covers partition `where` just now, in bytes a second; None for none."""
        rate, replicas = self._limit()
        return rate if rate is not None and replicas.covers(where.topic, where.partition) else None

    async def _wait(self, size: int) -> None:
        async with self._turn:
            while True:
                rate, _ = self._limit()
                wait_s = 0.0 if rate is None else self._bucket.wait_s(self._clock(), rate)
                if not wait_s:
                    self._bucket.take(size)
                    return
                await asyncio.sleep(min(wait_s, LOOK_AGAIN_S))

    def _limit(self) -> tuple[int | None, ThrottledReplicas]:
        mirror = self._image.mirrors.get(self._mirror)
        if mirror is None:
            return NO_LIMIT
        configs, limit = self._read
        if configs is not mirror.configs:
            limit = _limit_of(mirror.configs, self._mirror)
            self._read = (mirror.configs, limit)
        return limit


def _limit_of(configs: Mapping[str, str], mirror: str) -> tuple[int | None, ThrottledReplicas]:
    try:
        config = MirrorConfig.from_properties(configs, f"the configs of mirror {mirror}")
    except BadInput:  # told where the source is connected
        return NO_LIMIT
    return config.replication_throttled_rate, config.replication_throttled_replicas


class Throttles:
    """The throttles of all mirrors in a worker."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._throttles: dict[str, Throttle] = {}

    def __repr__(self) -> str:
        return f"Throttles({len(self._throttles)} mirrors)"

    def of(self, mirror: str) -> Throttle:
        """The throttle that all partitions of `mirror` share."""
        return self._throttles.setdefault(mirror, Throttle(self._image, mirror))
