"""In which leader epoch each part of a log was written. Pure; the rules of `LeaderEpochFileCache` (KIP-101)."""

from typing import Final, NamedTuple

NONE: Final = -1


class EpochStart(NamedTuple):
    """An epoch, and the offset of the first batch that was written in it."""

    epoch: int
    start: int


class Epochs:
    """The epochs of one log, ascending."""

    def __init__(self) -> None:
        self.entries: list[EpochStart] = []

    @property
    def latest(self) -> int:
        """The last epoch, -1 when there is none."""
        return self.entries[-1].epoch if self.entries else NONE

    def assign(self, epoch: int, start: int) -> None:
        """Note that `epoch` begins at `start`, unless it has begun already."""
        if epoch <= self.latest:
            return
        while self.entries and self.entries[-1].start >= start:
            self.entries.pop()
        self.entries.append(EpochStart(epoch, start))

    def end_of(self, epoch: int, log_end: int) -> EpochStart:
        """The largest epoch not above `epoch`, and where it ends; (-1, -1) where that is not known."""
        if epoch == NONE:
            return EpochStart(NONE, NONE)
        if epoch == self.latest:
            return EpochStart(epoch, log_end)
        higher = next((entry for entry in self.entries if entry.epoch > epoch), None)
        if higher is None:
            return EpochStart(NONE, NONE)
        lower = [entry for entry in self.entries if entry.epoch <= epoch]
        return EpochStart(lower[-1].epoch if lower else epoch, higher.start)

    def cut_end(self, end: int) -> None:
        """Forget what begins at or behind a new log end."""
        self.entries = [entry for entry in self.entries if entry.start < end]

    def cut_start(self, start: int) -> None:
        """Let the first epoch begin at a new log start."""
        before = [entry for entry in self.entries if entry.start <= start]
        behind = [entry for entry in self.entries if entry.start > start]
        self.entries = [EpochStart(before[-1].epoch, start), *behind] if before else behind
