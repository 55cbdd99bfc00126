"""Waits until the followed image holds what was committed before somebody asked."""

import asyncio
import time

from twinlog.control.image import Image
from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.relay.waiting import may_be_left
from twinlog.state.log import StateLog
from twinlog.state.topic import STATE_TOPIC
from twinlog.wire import codes
from twinlog.wire.ops import LATEST, list_offsets

WITHIN_S = 10.0
POLL_S = 0.02


class CatchUp:
    """Called by any number at once: those who come while a look is under way share the next one."""

    def __init__(self, state: StateLog, image: Image) -> None:
        self._state = state
        self._image = image
        self._one_look = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"CatchUp({self._image!r})"

    async def __call__(self) -> None:
        """Return once the image holds all that was committed before this call. Raises RetryLater after 10 s.

        Raises RefreshLeader and the like where a partition of the state does not tell its end.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._in_turn(), name="catch up")
            may_be_left(self._next)
        # Whoever gives up waiting does not end it for the others.
        await asyncio.shield(self._next)

    async def _in_turn(self) -> None:
        async with self._one_look:
            self._next = None
            await self._look()

    async def _look(self) -> None:
        asked = {TopicPartition(STATE_TOPIC, shard): LATEST for shard in range(self._state.shards)}
        ends = await list_offsets(self._state.cluster, asked, read_committed=True)
        for where, listed in ends.items():
            codes.check(listed.error, f"The end of {where} cannot be told, so what was committed there is not known")
        positions = self._image.positions
        deadline = time.monotonic() + WITHIN_S
        while any(positions.get(tp.partition, 0) < listed.offset for tp, listed in ends.items()):
            if time.monotonic() > deadline:
                raise RetryLater(f"the state could not be followed to its end within {WITHIN_S:.0f} s")
            await asyncio.sleep(POLL_S)
