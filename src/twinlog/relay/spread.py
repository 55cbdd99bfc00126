"""How the streams to one broker are spread over the connections to it: each keeps the one that it is given."""

from collections import Counter


class Spread:
    """Gives each stream the lane of its broker that has the fewest.

    By turn and not by a hash of the name: a broker handles one request of a connection at a time, so a few partitions
    that happen to share a lane would leave the others idle.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = range(lanes)
        self._streams: Counter[tuple[int, int]] = Counter()

    def __repr__(self) -> str:
        return f"Spread({sum(self._streams.values())} streams over {len(self._lanes)} lanes a broker)"

    def take(self, node: int) -> int:
        """The lane for one more stream to broker `node`."""
        lane = min(self._lanes, key=lambda number: self._streams[node, number])
        self._streams[node, lane] += 1
        return lane

    def give_back(self, node: int, lane: int) -> None:
        """One stream fewer."""
        self._streams[node, lane] -= 1
