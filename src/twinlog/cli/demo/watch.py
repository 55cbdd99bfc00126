"""Looks at the mirror's progress, as `kafka-mirrors --describe` does, and at the source's ends."""

import asyncio
from types import TracebackType
from typing import Final, Self

from twinlog.admin import MirrorAdmin
from twinlog.config.client import ClientSettings
from twinlog.control.describe import PartitionDescription
from twinlog.control.lifecycle import PartitionState
from twinlog.errors import RetryLater
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import EARLIEST, LATEST, list_offsets

CONNECT_WITHIN_S: Final = 20.0

Rows = tuple[PartitionDescription, ...]


class Watch:
    """Asks both clusters from ordinary code; a context manager, since it holds connections."""

    def __init__(self, source: str, destination: str) -> None:
        self._addresses = source, destination
        self._runner = asyncio.Runner()
        self._rows: Rows = ()

    def __enter__(self) -> Self:
        self._runner.run(self._connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _connect(self) -> None:
        source, destination = (
            ClientSettings.from_properties({}, bootstrap=address, origin="the demo") for address in self._addresses
        )
        self._admin = await MirrorAdmin.connect(destination, timeout_s=CONNECT_WITHIN_S)
        self._source = await Cluster.connect(source, client_id="twinlog-demo", timeout_s=CONNECT_WITHIN_S)

    async def _close(self) -> None:
        await self._admin.close()
        await self._source.close()

    def rows(self, mirror: str) -> Rows:
        """Each partition as the worker last published it; what was seen last where there is no answer just now."""
        try:
            self._rows = self._runner.run(self._admin.describe_mirrors([mirror])).partitions
        except RetryLater:
            return self._rows
        return self._rows

    def source_bounds(self, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
        """By partition, where the source's log starts and up to where it is decided (its last stable offset)."""
        return self._runner.run(self._bounds([TopicPartition(topic, number) for number in range(partitions)]))

    async def _bounds(self, asked: list[TopicPartition]) -> dict[int, tuple[int, int]]:
        starts = await list_offsets(self._source, dict.fromkeys(asked, EARLIEST))
        ends = await list_offsets(self._source, dict.fromkeys(asked, LATEST), read_committed=True)
        return {tp.partition: (starts[tp].offset, ends[tp].offset) for tp in asked}


def lag(rows: Rows) -> int:
    """All offsets that are still to come; -1 where any partition cannot tell yet."""
    lags = [row.lag for row in rows]
    return -1 if not lags or -1 in lags else sum(lags)


def mirrored(rows: Rows) -> int:
    """All offsets that the destination has."""
    return sum(max(0, row.destination_offset) for row in rows)


def failure(rows: Rows) -> str | None:
    """What the first failed partition says."""
    return next((row.error_message for row in rows if row.state is PartitionState.FAILED), None)


def reached(rows: Rows, ends: dict[int, int]) -> bool:
    """Whether the destination has everything up to `ends`."""
    return len(rows) == len(ends) and all(row.destination_offset >= ends[row.partition] for row in rows)
