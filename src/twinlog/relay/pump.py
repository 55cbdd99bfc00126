"""Turns one partition's data path: five verbs, in this order, until one of them ends it."""

import time
from dataclasses import dataclass

from twinlog.relay.confirm import confirm
from twinlog.relay.decide import Terms, decide, forwarded
from twinlog.relay.destination import Destination, Stream
from twinlog.relay.inbox import Inbox
from twinlog.relay.progress import Progress
from twinlog.relay.rewrite import rewrite
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
            await self._keep_spare()
            plan = rewrite(self.progress, verdict, now_ms=time.time_ns() // 1_000_000, guard_ms=self.guard_ms)
            answer = await self.destination.append(self.stream, plan)
            self.progress = confirm(self.progress, plan, answer)
            self.appending = False

    async def _keep_spare(self) -> None:
        if self.progress.wants_spare:
            fresh = await init_producer_id(self.destination.cluster)
            self.progress = self.progress.with_spare(fresh.id)
