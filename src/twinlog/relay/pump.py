"""Turns one partition's data path: five verbs, in this order, until one of them ends it."""

import time
from dataclasses import dataclass

from twinlog.batch.scan import Blank
from twinlog.relay.confirm import confirm
from twinlog.relay.decide import Terms, decide, forwarded
from twinlog.relay.destination import Destination
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Accepted, Progress
from twinlog.relay.rewrite import rewrite
from twinlog.relay.stream import Stream
from twinlog.wire.ops import init_producer_id


@dataclass(slots=True)
class Pump:
    """One partition's pump. `progress` is where it stands, also after an error has ended it."""

    destination: Destination
    stream: Stream
    progress: Progress
    terms: Terms
    guard_ms: int
    appending: bool = False

    async def run(self, inbox: Inbox) -> None:
        """Mirror what comes out of `inbox` until an error of ours says what to do next.

        Raises Stopped, RefreshLeader (the source's), TakeOverAnew, GiveWay or PartitionFailed; never returns.
        """
        while True:
            fetched = await inbox.get()
            verdict = forwarded(decide(self.progress, fetched, self.terms))
            self.appending = True
            await self._keep_spare(sum(isinstance(item, Blank) for item in verdict.items))
            plan = rewrite(self.progress, verdict, now_ms=time.time_ns() // 1_000_000, guard_ms=self.guard_ms)
            answer = await self.destination.append(self.stream, plan)
            if not isinstance(answer, Accepted):
                self.progress = self.progress.short_of(plan, answer.first)
            self.progress = confirm(self.progress, plan, answer)
            self.appending = False
            inbox.expect(self.progress.position)

    async def _keep_spare(self, blanks: int) -> None:
        if self.progress.wants_spare(blanks):
            fresh = await init_producer_id(self.destination.cluster)
            self.progress = self.progress.with_spare(fresh.id)
            await self.stream.took_spare(self.progress)
