"""From a verdict to a plan: data batches with their new headers, and runs of blanks, in offset order."""

from twinlog.batch.edit import Outgoing, stamped
from twinlog.batch.scan import Blank
from twinlog.batch.view import Batch
from twinlog.relay.progress import BlankStep, DataStep, Forward, Plan, Progress, Send, Step


def rewrite(progress: Progress, verdict: Forward, *, now_ms: int, guard_ms: int) -> Plan:
    """Plan what to write for `verdict`.

    `guard_ms` is for how long after a batch's timestamp the destination surely remembers its producer. A batch behind
    an older one waits until that one is acknowledged, since the broker may accept any sequence by then
    (`ProducerStateManager` judges by record time). Pure: the time is an argument.
    """
    steps: list[Step] = []
    sends: list[Send] = []
    for item in verdict.items:
        if isinstance(item, Blank):
            _close(steps, sends)
            step, progress = _blanks(progress, item, now_ms)
            steps.append(step)
            continue
        send, progress = _data(progress, item, now_ms - guard_ms)
        sends.append(send)
    _close(steps, sends)
    return Plan(tuple(steps), progress)


def _close(steps: list[Step], sends: list[Send]) -> None:
    if sends:
        steps.append(DataStep(tuple(sends)))
        sends.clear()


def _data(progress: Progress, batch: Batch, fresh_from_ms: int) -> tuple[Send, Progress]:
    outgoing: Outgoing = stamped(
        batch, producer_id=progress.producer_id, epoch=progress.epoch, sequence=progress.sequence
    )
    last_ms = progress.last_timestamp_ms
    barrier = last_ms is None or last_ms < fresh_from_ms
    return Send(outgoing, barrier), progress.behind_data(outgoing.count, outgoing.last, outgoing.max_timestamp)


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
