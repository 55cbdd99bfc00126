"""What was done for one partition since its supervisor began: plain integers, which whoever shows them reads."""

import time
from dataclasses import dataclass

from twinlog.relay.progress import Accepted, Answer, DataStep, Plan, Refused


@dataclass(slots=True)
class Counts:
    """Counted a plan at a time, behind its answer; times are monotonic seconds, -1 for never."""

    records: int = 0
    batches: int = 0
    size: int = 0
    blanks: int = 0
    refused: int = 0
    takeovers: int = 0
    retries: int = 0
    appended_at: float = -1.0

    def note(self, plan: Plan, answer: Answer) -> None:
        """Take notice of what came of a plan; of one that was not accepted as a whole nothing counts as copied."""
        if isinstance(answer, Refused):
            self.refused += 1
        if not isinstance(answer, Accepted) or not plan.steps:
            return
        for step in plan.steps:
            if isinstance(step, DataStep):
                self.batches += len(step.sends)
                self.records += sum(send.batch.count for send in step.sends)
                self.size += sum(send.batch.size for send in step.sends)
            else:
                self.blanks += step.count
        self.appended_at = time.monotonic()
