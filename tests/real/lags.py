"""How far behind its source each partition of a mirror is, in seconds."""

import contextlib
import time

from tests.real.mirroring import Mirror
from tests.real.repeated import Repeated

# The lag before something happens is taken from so long.
BEFORE_S = 3.0


class Lags(Repeated):
    """Samples both sides' ends in the background.

    The lag at a moment is for how long the source has had something decided that the destination has not. The source
    is asked first, so that no sample shows less than there was; it shows more by the time between two samples at most.
    """

    def __init__(self, mirror: Mirror, topic: str, *, every_s: float = 0.1) -> None:
        super().__init__(self._sample, every_s=every_s)
        self._mirror, self._topic = mirror, topic
        self._samples: list[tuple[float, dict[int, int], dict[int, int]]] = []

    def _sample(self) -> None:
        with contextlib.suppress(Exception):  # a broker that is away: there is no sample then
            at = time.monotonic()
            there = self._mirror.ends(self._topic, at_source=True, stable=True)
            self._samples.append((at, there, self._mirror.ends(self._topic)))

    def worst_s(self, partition: int, *, since: float, until: float | None = None) -> float:
        """The largest lag from `since` to `until` (now)."""
        samples = list(self._samples)
        worst, oldest = 0.0, 0
        for at, _, here in samples:
            while oldest < len(samples) and samples[oldest][1].get(partition, 0) <= here.get(partition, 0):
                oldest += 1
            if oldest == len(samples):
                break
            if at >= since and (until is None or at <= until):
                worst = max(worst, at - samples[oldest][0])
        return worst

    def rise_s(self, partition: int, *, since: float) -> float:
        """By how much the lag rose after `since` above what it had been right before."""
        before = self.worst_s(partition, since=since - BEFORE_S, until=since)
        return max(0.0, self.worst_s(partition, since=since) - before)
