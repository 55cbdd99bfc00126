"""Whether this worker may send: a lease on the destination, good for a few seconds from when its renewal *began*.

A worker holds one transactional id on the destination and renews by a small committed write. Whoever fences that id
knows that the former owner sends nothing once `LEASE_S` have passed. The clock is monotonic and an argument; the check
is made in the same synchronous step as the write to the socket.
"""

from collections.abc import Callable

# While the broker dies that coordinates the lease's transactional id, nothing is renewed until the controller has given
# it up (9 s by default): the longer a lease, the shorter all partitions stand still then. A successor learns of a dead
# worker after the group's session of 6 s, so that this much costs it hardly anything.
LEASE_S = 6.0


class Lease:
    """The right to write, as long as `valid()` says so."""

    def __init__(self, clock: Callable[[], float], duration_s: float = LEASE_S) -> None:
        self._clock = clock
        self._duration_s = duration_s
        self._good_until = float("-inf")
        self._fenced = False

    def __repr__(self) -> str:
        state = "fenced" if self._fenced else f"{self.remaining_s():.3f} s left"
        return f"Lease({state})"

    def renewed(self, began: float) -> None:
        """Note a committed renewal whose first attempt began at `began` on this lease's clock."""
        self._good_until = max(self._good_until, began + self._duration_s)

    def fenced(self) -> None:
        """Note that another worker holds the id now; this lease never becomes valid again."""
        self._fenced = True

    @property
    def is_fenced(self) -> bool:
        """Whether another worker has taken the id."""
        return self._fenced

    def remaining_s(self) -> float:
        """Seconds for which the lease is still good; negative once it has run out."""
        return self._good_until - self._clock()

    def valid(self) -> bool:
        """Whether something may be sent at this very moment."""
        return not self._fenced and self._clock() < self._good_until
