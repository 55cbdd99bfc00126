"""How the streams to one broker are spread over the connections to it: each keeps the one that it is given."""

from collections import Counter


class Spread:
    """Gives each stream the first lane of its broker that has fewer than `together`, else the one that has the fewest.

    A request carries one batch of each stream of its lane, and a broker's work is by the request more than by the
    byte: a few streams are faster together. Many are not, since a broker handles one request of a connection at a time.
    By turn and not by a hash of the name, so that no lane is left idle by chance.
    """

    def __init__(self, lanes: int, *, together: int = 1) -> None:
        self._lanes = range(lanes)
        self._together = together
        self._streams: Counter[tuple[int, int]] = Counter()

    def __repr__(self) -> str:
        return f"Spread({sum(self._streams.values())} streams over {len(self._lanes)} lanes a broker)"

    def take(self, node: int) -> int:
        """The lane for one more stream to broker `node`."""
        streams = [self._streams[node, lane] for lane in self._lanes]
        lane = next((lane for lane in self._lanes if streams[lane] < self._together), streams.index(min(streams)))
        self._streams[node, lane] += 1
        return lane

    def give_back(self, node: int, lane: int) -> None:
        """One stream fewer."""
        self._streams[node, lane] -= 1
