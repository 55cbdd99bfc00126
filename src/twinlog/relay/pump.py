"""Turns one partition's data path: five verbs, in this order, until one of them ends it."""

import asyncio
import time
from dataclasses import dataclass, replace
from typing import NamedTuple

from twinlog.batch.scan import Blank
from twinlog.relay.confirm import confirm
from twinlog.relay.decide import Terms, decide, forwarded
from twinlog.relay.destination import Destination
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Accepted, Fetched, Forward, Plan, Progress
from twinlog.relay.rewrite import rewrite
from twinlog.relay.stream import Stream
from twinlog.wire.ops import init_producer_id

# A plan judges by the time at which it was made whether the destination still knows the producer.
AHEAD_GOOD_MS = 1_000
# Each is a round trip or two: so much may stand between a request to end and the end.
RUNS_AT_ONCE = 100


class Ahead(NamedTuple):
    """A plan made while the one before it was under way; good for `fetched` if the pump then stands at `before`."""

    fetched: Fetched
    before: Progress
    made_ms: int
    plan: Plan

    def good_for(self, fetched: Fetched, progress: Progress, now_ms: int) -> bool:
        """Whether it is what would be planned now; by identity, since nothing here ever changes."""
        return self.fetched is fetched and self.before is progress and now_ms - self.made_ms <= AHEAD_GOOD_MS


@dataclass(slots=True)
class Pump:
    """One partition's pump. `progress` is where it stands, also after an error has ended it."""

    destination: Destination
    stream: Stream
    progress: Progress
    terms: Terms
    guard_ms: int
    appending: bool = False
    _ahead: Ahead | None = None

    async def run(self, inbox: Inbox) -> None:
        """Mirror what comes out of `inbox` until an error of ours says what to do next.

        Raises Stopped, RefreshLeader (the source's), TakeOverAnew, GiveWay or PartitionFailed; never returns.
        """
        while True:
            fetched = await inbox.get()
            plan, rest = await self._plan(fetched)
            await self._append(plan, inbox, last=rest is None)
            while rest is not None and not inbox.nudged and self.progress.position == _first(rest):
                plan, rest = await self._planned(rest)
                await self._append(plan, inbox, last=rest is None)
            self.appending = False
            inbox.expect(self.progress.position)

    async def _append(self, plan: Plan, inbox: Inbox, *, last: bool) -> None:
        if last:
            # Two turns of the loop later, when the first requests are out: the brokers work on them meanwhile.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._look_ahead, inbox, plan.after)
        answer = await self.destination.append(self.stream, plan)
        if not isinstance(answer, Accepted):
            self.progress = self.progress.short_of(plan, answer.first)
        self.progress = confirm(self.progress, plan, answer)

    async def _plan(self, fetched: Fetched) -> tuple[Plan, Forward | None]:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.good_for(fetched, self.progress, _now_ms()):
            self.appending = True
            return ahead.plan, None
        verdict = forwarded(decide(self.progress, fetched, self.terms))
        self.appending = True
        return await self._planned(verdict)

    async def _planned(self, verdict: Forward) -> tuple[Plan, Forward | None]:
        part, rest = parted(verdict)
        await self._keep_spare(sum(isinstance(item, Blank) for item in part.items))
        return rewrite(self.progress, part, now_ms=_now_ms(), guard_ms=self.guard_ms), rest

    def _look_ahead(self, inbox: Inbox, after: Progress) -> None:
        """Make the next plan, if it is one of data alone; whatever else comes next is judged in its turn."""
        fetched = inbox.waiting
        if fetched is None:
            return
        verdict, now_ms = decide(after, fetched, self.terms), _now_ms()
        if isinstance(verdict, Forward) and not any(isinstance(item, Blank) for item in verdict.items):
            plan = rewrite(after, verdict, now_ms=now_ms, guard_ms=self.guard_ms)
            self._ahead = Ahead(fetched, after, now_ms, plan)

    async def _keep_spare(self, blanks: int) -> None:
        if self.progress.wants_spare(blanks):
            fresh = await init_producer_id(self.destination.cluster)
            self.progress = self.progress.with_spare(fresh.id)
            await self.stream.took_spare(self.progress)


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
