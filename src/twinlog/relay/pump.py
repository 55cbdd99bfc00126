"""Turns one partition's data path: five verbs, in this order, until one of them ends it.

Plans of data alone follow each other without waiting: while one is under way the next is made and sent behind it, so
that the destination never runs out of work. Blanks are never sent ahead, nor anything behind them.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from twinlog.batch.scan import Blank
from twinlog.relay.confirm import confirm
from twinlog.relay.decide import Terms, decide, forwarded
from twinlog.relay.destination import Destination
from twinlog.relay.filling import Filling
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Accepted, Answer, Fetched, Forward, Plan, Progress, Verdict
from twinlog.relay.rewrite import rewrite
from twinlog.relay.stream import Stream
from twinlog.relay.waiting import cancelled
from twinlog.wire.ops import init_producer_id

# Each is a round trip or two: so much may stand between a request to end and the end.
RUNS_AT_ONCE = 100
# One being answered, one behind it.
PLANS_UNDER_WAY = 2


class UnderWay(NamedTuple):
    """A plan that is being written."""

    plan: Plan
    answer: asyncio.Task[Answer]


@dataclass(slots=True)
class Pump:
    """One partition's pump. `progress` is where it stands, also after an error has ended it.

    `guard_ms` and `join_bytes` are for `rewrite`.
    """

    destination: Destination
    stream: Stream
    progress: Progress
    terms: Terms
    guard_ms: int
    join_bytes: int = 0
    appending: bool = False
    filling: Filling | None = None
    _under_way: deque[UnderWay] = field(default_factory=deque)

    async def run(self, inbox: Inbox) -> None:
        """Mirror what comes out of `inbox` until an error of ours says what to do next.

        Raises Stopped, RefreshLeader (the source's), TakeOverAnew, GiveWay or PartitionFailed; never returns.
        """
        if self.filling is not None:
            self.filling.begin_at(self.progress.position)
        try:
            while True:
                await self._turn(inbox)
        finally:
            # Only where this task is cancelled is something left: it cannot be called back, but nothing follows it.
            await cancelled([under_way.answer for under_way in self._under_way])
            self._under_way.clear()

    async def _turn(self, inbox: Inbox) -> None:
        """One value. Its names end with it: a quiet partition must not keep in memory what it has sent last."""
        fetched = await self._fetched(inbox)
        verdict = self._judged(fetched)
        if not _data_alone(verdict):
            await self._land_all()
        await self._forward(forwarded(verdict), inbox)

    def _judged(self, fetched: Fetched) -> Verdict:
        planned, filling = self._planned, self.filling
        if filling is None or filling.over(planned.position):
            return decide(planned, fetched, self.terms)
        filling.now_ms = _now_ms()
        verdict = decide(filling.ahead(planned), fetched, self.terms, filling.form)
        if filling.held is None or not isinstance(verdict, Forward):
            return verdict
        # What is held back is not behind us yet.
        return replace(verdict, next_offset=filling.held.first, source_epoch=-1)

    @property
    def _reading_at(self) -> int:
        """From where the source is to be read on once everything under way is accepted."""
        return self.progress.position if self.filling is None else self.filling.ahead(self.progress).position

    @property
    def _planned(self) -> Progress:
        """Where it stands once everything under way is accepted."""
        return self._under_way[-1].plan.after if self._under_way else self.progress

    async def _fetched(self, inbox: Inbox) -> Fetched:
        """The next value; meanwhile the answers to what is under way are taken as they come."""
        while self._under_way and not (len(self._under_way) < PLANS_UNDER_WAY and inbox.waiting is not None):
            first = self._under_way[0].answer
            if len(self._under_way) < PLANS_UNDER_WAY:
                await inbox.arrival_or(first)
            else:
                await asyncio.wait({first})
            if first.done():
                self._landed()
        if not self._under_way:
            self.appending = False
            inbox.expect(self._reading_at)
        return await inbox.get(in_use=len(self._under_way))

    async def _forward(self, verdict: Forward, inbox: Inbox) -> None:
        rest: Forward | None = verdict
        while rest is not None:
            part, rest = parted(rest)
            blanks = sum(isinstance(item, Blank) for item in part.items)
            self.appending = True
            if blanks:
                await self._keep_spare(blanks)
            self._send(self._plan(part))
            if blanks:
                await self._land_all()
                if inbox.nudged or (rest is not None and self.progress.position != _first(rest)):
                    return
        if not self._under_way:
            return
        # Two turns of the loop, in which the first requests go out: brokers work on them while the next plan is made.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _plan(self, part: Forward) -> Plan:
        join_bytes, gate = self.join_bytes, self.stream.gate
        if self.filling is not None and not self.filling.over(self._planned.position):
            join_bytes = 0  # how what fills holes goes again was shown for the batches that `filling` makes
        elif gate is not None:
            join_bytes = gate.joins(join_bytes)
        return rewrite(self._planned, part, now_ms=_now_ms(), guard_ms=self.guard_ms, join_bytes=join_bytes)

    def _send(self, plan: Plan) -> None:
        if not plan.steps and self._under_way:
            before = self._under_way.pop()
            self._under_way.append(before._replace(plan=replace(before.plan, after=plan.after)))
            return
        answer = asyncio.create_task(self.destination.append(self.stream, plan))
        self._under_way.append(UnderWay(plan, answer))

    async def _land_all(self) -> None:
        while self._under_way:
            await asyncio.wait({self._under_way[0].answer})
            self._landed()

    def _landed(self) -> None:
        plan, answering = self._under_way.popleft()
        answer = answering.result()
        if not isinstance(answer, Accepted):
            self.progress = self.progress.short_of(plan, answer.first)
        self.progress = confirm(self.progress, plan, answer)

    async def _keep_spare(self, blanks: int) -> None:
        if self.progress.wants_spare(blanks):
            fresh = await init_producer_id(self.destination.cluster)
            self.progress = self.progress.with_spare(fresh.id)
            await self.stream.took_spare(self.progress)


def _data_alone(verdict: Verdict) -> bool:
    return isinstance(verdict, Forward) and not any(isinstance(item, Blank) for item in verdict.items)


def parted(verdict: Forward) -> tuple[Forward, Forward | None]:
    """What to write before it is looked whether somebody wants the pump to end, and the rest; None: that is all."""
    blanks = 0
    for at, item in enumerate(verdict.items, start=1):
        blanks += isinstance(item, Blank)
        if blanks == RUNS_AT_ONCE and at < len(verdict.items):
            rest = replace(verdict, items=verdict.items[at:])
            return Forward(verdict.items[:at], _first(rest)), rest
    return verdict, None


def _first(verdict: Forward) -> int:
    item = verdict.items[0]
    return item.first if isinstance(item, Blank) else item.base_offset


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
