"""What a broker's quotas let through one connection, learnt from the throttle times in its answers; pure.

Since Kafka 2.0 a broker that is over a client's quota answers at once, says for how long it throttles, and reads
nothing more of that connection until then (KIP-219, `ClientQuotaManager`). So nothing is sent meanwhile, and no request
is given up for an answer that the broker has only put off. Requests shrink until each costs a short pause only: else
one large request would be followed by silence for many seconds, for every partition on the connection.
"""

from typing import Final

# How long the pause behind one request should be, and how small a request may become for that.
PAUSE_S: Final = 0.25
LEAST_BYTES: Final = 65_536
# A connection begins with little, since the pause behind the first request that is too large is as long as that is.
FIRST_BYTES: Final = 262_144
# By how much more is tried behind an answer without a throttle time: until there was one, and from then on.
GROWTH_BEFORE, GROWTH_BEHIND = 2.0, 1.05
# A pause of less is how a quota works; of a longer one it is told, and again while such last.
TELL_FROM_S, TELL_AGAIN_S = 1.0, 60.0
# What the least request costs under a quota of a hundred bytes a second. A broker that tells of more is not believed:
# it is asked again then, and where it really does not answer its connection is reset, as of any broker.
LONGEST_S: Final = LEAST_BYTES / 100


class Quota:
    """Tells how many bytes may be under way, and how long to wait before more; `now` is in monotonic seconds.

    `most_bytes` is the bound where nothing is throttled.
    """

    def __init__(self, most_bytes: int) -> None:
        self.throttled_s = 0.0
        self._ceiling = float(most_bytes)
        self._most = min(self._ceiling, float(FIRST_BYTES))
        self._until = float("-inf")
        self._told_at = float("-inf")

    def __repr__(self) -> str:
        return f"Quota({self.most_bytes} bytes at a time, throttled for {self.throttled_s:.1f} s so far)"

    @property
    def most_bytes(self) -> int:
        """How much may be under way."""
        return int(self._most)

    @property
    def throttled_ms(self) -> int:
        """For how long the broker has throttled so far, in milliseconds."""
        return round(self.throttled_s * 1000)

    def wait_s(self, now: float) -> float:
        """How long nothing is to be sent; 0.0 for now."""
        return max(0.0, self._until - now)

    def to_tell_s(self, now: float) -> float:
        """How long nothing is to be sent, where that is worth a word now; else 0.0."""
        wait_s = self.wait_s(now)
        if wait_s < TELL_FROM_S or now - self._told_at < TELL_AGAIN_S:
            return 0.0
        self._told_at = now
        return wait_s

    def answered(self, throttle_ms: int, now: float, *, size: int) -> None:
        """Learn from an answer that came just now; `size` is what was under way by then, in bytes.

        Only where that made use of what was allowed, more is tried.
        """
        growth = GROWTH_BEHIND if self.throttled_s else GROWTH_BEFORE
        factor = growth if size >= self._most / 2 else 1.0
        throttle_s = min(LONGEST_S, throttle_ms / 1000)
        if throttle_s > 0:
            self.throttled_s += throttle_s
            self._until = max(self._until, now + throttle_s)
            # Never more than before: the pause is for a request of this size, and a larger one would wait again.
            factor = min(1.0, PAUSE_S / throttle_s)
        least = min(float(LEAST_BYTES), self._ceiling)
        self._most = min(self._ceiling, max(least, self._most * factor))
