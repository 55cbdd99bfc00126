"""From a verdict to a plan: data batches with their new headers, and runs of blanks, in offset order."""

from collections.abc import Sequence
from dataclasses import replace

from twinlog.batch.edit import next_sequence, stamped
from twinlog.batch.join import joined
from twinlog.batch.scan import Blank
from twinlog.batch.view import Batch
from twinlog.relay.progress import BlankStep, DataStep, Forward, Plan, Progress, Send, Step


def rewrite(progress: Progress, verdict: Forward, *, now_ms: int, guard_ms: int, join_bytes: int = 0) -> Plan:
    """Plan what to write for `verdict`; small batches are joined up to `join_bytes` (`batch.join`), 0: never.

    `guard_ms` is for how long after a batch's timestamp the destination surely remembers its producer. A batch behind
    an older one waits until that one is confirmed, since the broker may accept any sequence by then
    (`ProducerStateManager` judges by record time); also across plans, of which one may be under way while the next is
    made. Pure: the time is an argument.
    """
    steps: list[Step] = []
    run: list[Batch] = []
    for item in verdict.items:
        if not isinstance(item, Blank):
            run.append(item)
            continue
        progress = _data(steps, progress, joined(run, join_bytes), now_ms - guard_ms, before_blanks=True)
        run.clear()
        if progress.worn_out:
            # The rest is read again, under a fresh producer id.
            break
        step, progress = _blanks(progress, item, now_ms)
        steps.append(step)
    progress = _data(steps, progress, joined(run, join_bytes), now_ms - guard_ms, before_blanks=False)
    if progress.position == verdict.next_offset:
        progress = replace(progress, source_epoch=verdict.source_epoch)
    return Plan(tuple(steps), progress)


def _data(
    steps: list[Step], progress: Progress, run: Sequence[Batch], fresh_from_ms: int, *, before_blanks: bool
) -> Progress:
    """Add a step for the batches of `run`, if there are any; where the partition stands moves once for all of them.

    A marker may only follow what is confirmed, so the last batch before one has that said by its own acknowledgement.
    """
    if not run:
        return progress
    producer_id, epoch, sequence = progress.producer_id, progress.epoch, progress.sequence
    sends: list[Send] = []
    # A batch may follow one under way only if the broker knows the producer whether or not it accepts that one: both
    # the batch before and the one before that are fresh.
    stamps = [progress.before_timestamp_ms, progress.last_timestamp_ms]
    fresh, before = _fresh(stamps[-1], fresh_from_ms), _fresh(stamps[-2], fresh_from_ms)
    for batch in run:
        outgoing = stamped(batch, producer_id=producer_id, epoch=epoch, sequence=sequence)
        alone = not (fresh and before)
        sends.append(Send(outgoing, barrier=alone, acks_all=alone))
        sequence = next_sequence(sequence, outgoing.count)
        fresh, before = _fresh(outgoing.max_timestamp, fresh_from_ms), fresh
    if before_blanks:
        sends[-1] = sends[-1]._replace(acks_all=True)
    steps.append(DataStep(tuple(sends)))
    stamps += [send.batch.max_timestamp for send in sends]
    count, last = sum(send.batch.count for send in sends), sends[-1].batch
    return progress.behind_data(
        count, last.last, last.max_timestamp, before_ms=stamps[-2], source_epoch=run[-1].leader_epoch
    )


def _fresh(timestamp_ms: int | None, fresh_from_ms: int) -> bool:
    return timestamp_ms is not None and timestamp_ms >= fresh_from_ms


def _blanks(progress: Progress, blank: Blank, now_ms: int) -> tuple[BlankStep, Progress]:
    epoch = progress.marker_epoch()
    step = BlankStep(
        first=blank.first,
        count=blank.last - blank.first + 1,
        producer_id=progress.producer_id,
        epoch=epoch,
        probe=progress.first_marker,
        timestamp_ms=now_ms if progress.data_timestamp_ms is None else progress.data_timestamp_ms,
    )
    return step, progress.behind_blanks(epoch, blank.last, now_ms)
