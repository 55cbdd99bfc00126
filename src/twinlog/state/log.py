"""Reads `__mirror_state`: once to its end, and from there on live. Both are one replay into one image.

Only committed records count, and each exactly once and in order: `Image.positions` moves in the same synchronous step
in which the records before it are applied, so no failure between can skip or repeat any.

A load reads to the *high watermark* that each partition had when it began, not merely to the last stable offset: a
worker that died inside a transaction holds the latter back, and behind it may stand what another command has
committed since. Judging without that would let two commands create one mirror.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence

from twinlog.batch.records import Record as RawRecord
from twinlog.control.image import Image
from twinlog.control.records import Change
from twinlog.errors import RetryLater, TakeOverAnew
from twinlog.names import TopicPartition
from twinlog.state.fetch import Piece, fetch, understood
from twinlog.state.topic import DEFAULT_PARTITIONS, STATE_TOPIC, ensure_topic
from twinlog.wire import codes
from twinlog.wire.cluster import Cluster, Leader
from twinlog.wire.leaders import PASSING, Answer, ask_leaders
from twinlog.wire.ops import EARLIEST, LATEST, list_offsets
from twinlog.wire.retry import BACKOFF, Attempts

LOAD_LANE = "state-load"
FOLLOW_LANE = "state-follow"
LOAD_TIMEOUT_S = 60.0
LOAD_WAIT_MS = 100

FOLLOW_WAIT_MS = 1_500
"""Above the second in which each worker writes, so that a poll ends by news and not by itself.

Also the longest that a leader's move can stay unnoticed by a poll under way.
"""

ANSWER_TIMEOUT_S = 5.0
"""A broker that has been silent for so long is asked on another connection, or its successor is."""

FOLLOW_PAUSE_S = 0.02
"""Behind an answer with news: what a transaction has written to many shards becomes visible in all within moments."""

LEADERLESS_RETRY_S = 1.0
_CANCEL_AGAIN_S = 1.0

_PASSING = PASSING | {codes.UNKNOWN_SERVER_ERROR}

OnChange = Callable[[Sequence[Change]], None]


class StateLog:
    """The state topic of one cluster; `shards` is its number of partitions, 0 while there is no such topic."""

    def __init__(self, cluster: Cluster, shards: int) -> None:
        self.cluster = cluster
        self.shards = shards
        # Held for each change of a command's kind: two at once with one transactional id shut each other out.
        self.changing = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        cluster: Cluster,
        *,
        create: bool,
        partitions: int = DEFAULT_PARTITIONS,
        replication_factor: int | None = None,
        timeout_s: float = 30.0,
    ) -> "StateLog":
        """Find the topic, or create it as `ensure_topic` does and raises; without `create` it may be missing."""
        shards = await ensure_topic(
            cluster,
            create=create,
            partitions=partitions,
            replication_factor=replication_factor,
            timeout_s=timeout_s,
        )
        return cls(cluster, shards)

    def __repr__(self) -> str:
        return f"StateLog({self.cluster!r}, shards={self.shards})"

    async def load(self, *, timeout_s: float = LOAD_TIMEOUT_S, to_stable: bool = False) -> Image:
        """Read all that is committed, to the end of every partition; a missing topic is an empty image.

        `to_stable` is for who goes on to follow, and judges nothing by it: read only up to the last stable offsets, so
        that nobody's open transaction is waited for.

        Raises RetryLater when a partition cannot be read to its end within `timeout_s` (a worker that died inside a
        transaction holds it up until that times out), UnsupportedVersion and BadInput as `codec` does.
        """
        image = Image()
        attempts = Attempts(timeout_s)
        ends = await self._begin(image, timeout_s, to_stable=to_stable)
        latest: dict[tuple[int, bytes | None], RawRecord] = {}
        # Where nothing is there one shard is read all the same: whether it could be read, only a read tells.
        behind = _behind(image, ends) or list(ends)[:1]
        while behind:
            for shard, piece in (await self._pieces(image, behind, attempts)).items():
                latest.update(((shard, record.key), record) for record in piece.records)
                image.positions[shard] = piece.next_offset
            behind = _behind(image, ends)
        for (shard, _), record in latest.items():
            change = understood(shard, record, self.shards)
            if change is not None:
                image.apply(change)
        return image

    async def follow(self, image: Image, on_change: OnChange) -> None:
        """Keep a loaded image up to date until cancelled; `on_change` gets each run of changes once they are applied.

        Survives brokers that restart and leaders that move. Raises TakeOverAnew when the log no longer holds the
        image's position (load again), AuthorizationFailed, and what is wrong with a record as `load` does.
        """
        failures = 0
        while True:
            read = await self._follow_leaders(image, on_change)
            failures = 1 if read else failures + 1
            await asyncio.sleep(BACKOFF.wait_s(failures, random.random()))  # noqa: S311  # spreads retries, guards nothing
            await self._refresh_leaders()

    # Loading

    async def _begin(self, image: Image, timeout_s: float, *, to_stable: bool) -> dict[int, int]:
        """Set the positions to the logs' starts, and return the ends to read to."""
        starts, ends = await asyncio.gather(
            self._offsets(EARLIEST, timeout_s), self._offsets(LATEST, timeout_s, read_committed=to_stable)
        )
        image.positions.update(starts)
        return ends

    async def _offsets(self, at: int, timeout_s: float, *, read_committed: bool = False) -> dict[int, int]:
        asked = {TopicPartition(STATE_TOPIC, shard): at for shard in range(self.shards)}
        listed = await list_offsets(self.cluster, asked, read_committed=read_committed, timeout_s=timeout_s)
        for tp, answer in listed.items():
            _check(answer.error, f"An offset of {tp} could not be listed on {self.cluster!r}")
        return {tp.partition: answer.offset for tp, answer in listed.items()}

    async def _pieces(self, image: Image, behind: Sequence[int], attempts: Attempts) -> dict[int, Piece]:
        if attempts.left_s <= 0:
            raise RetryLater(self._stuck(image, behind, attempts.bound_s))
        asked = {TopicPartition(STATE_TOPIC, shard): image.positions[shard] for shard in behind}
        answers = await ask_leaders(self.cluster, asked, self._ask, timeout_s=attempts.share_s(attempts.bound_s))
        return self._checked(answers)

    def _stuck(self, image: Image, behind: Sequence[int], timeout_s: float) -> str:
        tp = TopicPartition(STATE_TOPIC, behind[0])
        return (
            f"{tp} could not be read to its end within {timeout_s:g} s: an open transaction holds it up at offset "
            f"{image.positions[behind[0]]}. It ends by itself when its worker died; try again in a minute."
        )

    async def _ask(
        self, node: int, asked: Mapping[TopicPartition, tuple[Leader, int]], timeout_s: float
    ) -> dict[TopicPartition, Answer[Piece]]:
        bound_s = min(timeout_s, ANSWER_TIMEOUT_S)
        return await fetch(self.cluster, node, asked, lane=LOAD_LANE, max_wait_ms=LOAD_WAIT_MS, timeout_s=bound_s)

    def _checked(self, answers: Mapping[TopicPartition, Answer[Piece]]) -> dict[int, Piece]:
        pieces: dict[int, Piece] = {}
        for tp, answer in answers.items():
            if answer.error == codes.OFFSET_OUT_OF_RANGE:
                raise TakeOverAnew(
                    f"{tp} no longer holds the offset that was to be read next: it was truncated or recreated. "
                    f"Load the state again."
                )
            _check(answer.error, f"{tp} could not be read on {self.cluster!r}")
            if answer.value is not None:
                pieces[tp.partition] = answer.value
        return pieces

    # Following

    async def _follow_leaders(self, image: Image, on_change: OnChange) -> bool:
        """Poll each leader in a task of its own until one of them has to be found anew; whether anything was read."""
        by_node, all_led = self._by_leader()
        polls = [asyncio.create_task(self._poll(node, led, image, on_change)) for node, led in by_node.items()]
        try:
            if not polls:
                return False
            timeout_s = None if all_led else LEADERLESS_RETRY_S
            done, _ = await asyncio.wait(polls, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            answered = [poll.result() for poll in done]  # of all: any may have raised
            return any(answered) or not done
        finally:
            await _ended(polls)

    def _by_leader(self) -> tuple[dict[int, dict[TopicPartition, Leader]], bool]:
        by_node: dict[int, dict[TopicPartition, Leader]] = {}
        for shard in range(self.shards):
            tp = TopicPartition(STATE_TOPIC, shard)
            leader = self.cluster.leader(tp)
            if leader is not None:
                by_node.setdefault(leader.node, {})[tp] = leader
        return by_node, sum(map(len, by_node.values())) == self.shards

    async def _poll(self, node: int, led: Mapping[TopicPartition, Leader], image: Image, on_change: OnChange) -> bool:
        """Read from one leader until it leads no longer or cannot be asked; whether it ever answered."""
        answered = False
        while True:
            asked = {tp: (leader, image.positions[tp.partition]) for tp, leader in led.items()}
            try:
                answers = await fetch(
                    self.cluster, node, asked, lane=FOLLOW_LANE, max_wait_ms=FOLLOW_WAIT_MS, timeout_s=ANSWER_TIMEOUT_S
                )
            except RetryLater:
                return answered
            passing = {tp for tp, answer in answers.items() if answer.error in _PASSING}
            pieces = self._checked({tp: answer for tp, answer in answers.items() if tp not in passing})
            self._apply(image, pieces, on_change)
            if passing:
                return answered
            answered = True
            if any(piece.records for piece in pieces.values()):
                await asyncio.sleep(FOLLOW_PAUSE_S)

    def _apply(self, image: Image, pieces: Mapping[int, Piece], on_change: OnChange) -> None:
        for shard, piece in pieces.items():
            found = [understood(shard, record, self.shards) for record in piece.records]
            changes = [change for change in found if change is not None]
            for change in changes:
                image.apply(change)
            image.positions[shard] = piece.next_offset
            if changes:
                on_change(changes)

    async def _refresh_leaders(self) -> None:
        try:
            await self.cluster.topics([STATE_TOPIC])
        except RetryLater:
            return  # the next round fails, and waits longer


def _behind(image: Image, ends: Mapping[int, int]) -> list[int]:
    """The shards that the image has not reached the end of."""
    return [shard for shard, end in ends.items() if image.positions[shard] < end]


def _check(error: int, what: str) -> None:
    """Raise what a partition's code means here: what passes by itself has been waited for already."""
    if error in _PASSING:
        raise RetryLater(f"{what} ({codes.code_name(error)}, error {error}). Look at the brokers, then try again.")
    codes.check(error, what, right=f"READ on TOPIC {STATE_TOPIC}")


async def _ended(tasks: Collection["asyncio.Task[bool]"]) -> None:
    """Cancel tasks until they are done: Python 3.11 can lose a cancellation that meets a result."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)
