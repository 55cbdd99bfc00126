"""Questions to a cluster about one partition, asked for many at once.

A thousand partitions that are taken over together ask the same few things at the same moment. What comes within some
milliseconds goes into one request a leader, and a topic is described once for all of its partitions.
"""

import asyncio
from typing import NamedTuple

from twinlog.errors import PartitionFailed, RetryLater, TwinlogError
from twinlog.names import TopicPartition
from twinlog.wire.cluster import Cluster, TopicInfo
from twinlog.wire.codes import AUTHORIZATION, code_name
from twinlog.wire.ops import CONSUMER, list_offsets

# Short beside a round trip, long enough for a thousand tasks to have their turn.
GATHER_S = 0.01
# How old a topic's description may be; two refreshes that shall agree on a deletion are further apart.
TOPIC_FRESH_S = 0.2
LOOKUP_LANE = "lookups"


def unreadable(where: TopicPartition, error: int, offset: int, *, side: str) -> TwinlogError:
    """What to raise where the broker of `side` ("source", "destination") answers a read of a log with `error`.

    A missing right is named at once; anything else passes by itself.
    """
    if error not in AUTHORIZATION:
        return RetryLater(f"{where}: the {side} answers {code_name(error)} when read at offset {offset}")
    principal = "mirror's" if side == "source" else "worker's"
    return PartitionFailed(
        f"{where}: the {side} cluster refuses the read at offset {offset}. Grant READ on topic {where.topic} to the "
        f"{principal} principal; it is tried again by itself.",
        retriable=True,
    )


class Question(NamedTuple):
    """Which offset of a log: at a timestamp, LATEST or EARLIEST; see `wire.ops.list_offsets`."""

    at: int
    replica_id: int = CONSUMER
    read_committed: bool = False


class Lookups:
    """Merges the questions about partitions of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._rounds: dict[Question, dict[TopicPartition, asyncio.Future[int]]] = {}
        self._topics: dict[str, tuple[float, asyncio.Task[TopicInfo | None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"Lookups({self.cluster!r})"

    async def offset(self, where: TopicPartition, question: Question) -> int:
        """The offset asked for. Raises RetryLater where it cannot be told just now."""
        loop = asyncio.get_running_loop()
        together = self._rounds.get(question)
        if together is None:
            together = self._rounds[question] = {}
            task = asyncio.create_task(self._ask(question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        future = together.setdefault(where, loop.create_future())
        return await asyncio.shield(future)

    async def topic(self, name: str) -> TopicInfo | None:
        """What the cluster says of a topic; None where it says nothing."""
        now = asyncio.get_running_loop().time()
        asked, task = self._topics.get(name, (float("-inf"), None))
        if task is None or (task.done() and now - asked > TOPIC_FRESH_S):
            task = asyncio.create_task(self._describe(name))
            self._topics[name] = (now, task)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what is under way."""
        tasks = [*self._tasks, *(task for _, task in self._topics.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for together in self._rounds.values():
            for future in together.values():
                future.cancel()
        self._rounds.clear()

    async def _describe(self, name: str) -> TopicInfo | None:
        return (await self.cluster.topics([name])).get(name)

    async def _ask(self, question: Question) -> None:
        await asyncio.sleep(GATHER_S)
        together = self._rounds.pop(question)
        try:
            listed = await list_offsets(
                self.cluster,
                dict.fromkeys(together, question.at),
                replica_id=question.replica_id,
                read_committed=question.read_committed,
                lane=LOOKUP_LANE,
            )
        except TwinlogError as error:
            for future in together.values():
                _fail(future, error)
            return
        except asyncio.CancelledError:
            for future in together.values():
                future.cancel()
            raise
        for where, future in together.items():
            told = listed[where]
            if told.error:
                _fail(future, RetryLater(f"{where}: a log end cannot be told just now: {code_name(told.error)}"))
            elif not future.done():
                future.set_result(told.offset)


def _fail(future: "asyncio.Future[int]", error: TwinlogError) -> None:
    if not future.done():
        future.set_exception(error)
        # Whoever asked may have been cancelled; then nobody is left to look at the error.
        future.exception()
