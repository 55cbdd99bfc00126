"""The configs that a destination topic has while holes of its first copy wait for its cleaner.

`segment.ms` makes the segments roll (`filling`), `min.cleanable.dirty.ratio` makes the cleaner look at the topic though
little of it may be new. Neither has a say in which records are removed. The values are unusual ones, so that they are
known as ours: what was there before is in the state of each partition that needs them, and nowhere else.

`segment.ms` grows with the age of the data: copied faster than it was written, old data would roll a segment for each
batch otherwise, and brokers die of too many files.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from twinlog.errors import RetryLater
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import ConfigEntry, alter_configs, describe_configs

ROLL, RATIO, POLICY, LAG = "segment.ms", "min.cleanable.dirty.ratio", "cleanup.policy", "min.compaction.lag.ms"
# Segments that a partition gets for its data's age, at most; and the shortest time, in seconds.
MOST_SEGMENTS, LEAST_ROLL_S = 200, 1
OURS_MS = 777
# A broker writes the number in its own way; so little of a log that any segment is more.
OUR_RATIO = "0.00000777"
# A broker knows a config some moments before its logs obey it.
OBEYED_AFTER_S = 1.0
EVERYWHERE_WITHIN_S, POLL_S = 15.0, 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """What is in force: the configs that matter, and those of them that the topic itself sets."""

    entries: Mapping[str, str]
    overrides: Mapping[str, str]

    @property
    def ours(self) -> bool:
        """Whether they are as a first copy sets them."""
        return self.roll_ms % 1000 == OURS_MS or self.hastened

    @property
    def hastened(self) -> bool:
        """Whether the cleaner looks at the topic whatever little of it is new."""
        return float(self.entries[RATIO]) == float(OUR_RATIO)

    @property
    def roll_ms(self) -> int:
        """After how long a segment rolls."""
        return int(self.entries[ROLL])

    @property
    def fit(self) -> bool:
        """Whether the cleaner may remove records of any age, and nothing else does."""
        return self.entries[POLICY] == "compact" and int(self.entries[LAG]) == 0

    @property
    def text(self) -> str:
        """What the topic itself sets, for `restore`; an empty value for a config that it does not set."""
        return ",".join(f"{name}={self.overrides.get(name, '')}" for name in (ROLL, RATIO))


def read_before(text: str) -> dict[str, str]:
    """What `Found.text` says, by config; an empty value for one that the topic does not set."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def wanted_roll_ms(oldest_ms: int, now_ms: int) -> int:
    """The time after which a segment is to roll, for data whose first record is from `oldest_ms`."""
    age_s = max(0, now_ms - max(0, oldest_ms)) // 1000
    return max(LEAST_ROLL_S, age_s // MOST_SEGMENTS) * 1000 + OURS_MS


class Rolling:
    """The cleaner's configs of one destination topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    async def found(self, node: int | None = None) -> Found:
        """What is in force, as `node` (None: any broker) says. Raises AuthorizationFailed, RetryLater."""
        keys = (ROLL, RATIO, POLICY, LAG)
        told = await describe_configs(self._cluster, "topic", [self._topic], keys=keys, node=node)
        entries: dict[str, ConfigEntry] = told[self._topic]
        return Found(
            {name: str(entry.value) for name, entry in entries.items()},
            {name: str(entry.value) for name, entry in entries.items() if entry.overridden},
        )

    async def roll_after(self, roll_ms: int, nodes: Collection[int]) -> None:
        """Let segments roll after `roll_ms`; returns once the brokers `nodes` obey. Raises RetryLater."""
        if (await self.found()).roll_ms > roll_ms:
            await alter_configs(self._cluster, "topic", self._topic, set_to={ROLL: str(roll_ms)})
        deadline = time.monotonic() + EVERYWHERE_WITHIN_S
        for node in nodes:
            while (await self.found(node)).roll_ms > roll_ms:
                if time.monotonic() > deadline:
                    raise RetryLater(f"{self._topic}: broker {node} does not take {ROLL}={roll_ms}")
                await asyncio.sleep(POLL_S)
        await asyncio.sleep(OBEYED_AFTER_S)
        if (await self.found()).roll_ms > roll_ms:
            raise RetryLater(f"{self._topic}: {ROLL} was changed again while it was awaited")

    async def hasten(self) -> None:
        """Let the cleaner look at the topic whatever little of it is new."""
        if not (await self.found()).hastened:
            await alter_configs(self._cluster, "topic", self._topic, set_to={RATIO: OUR_RATIO})

    async def restore(self, text: str) -> None:
        """Put back what `Found.text` said, unless somebody else has set other values since."""
        if not (await self.found()).ours:
            return
        before = read_before(text)
        kept = {name: value for name, value in before.items() if value}
        await alter_configs(
            self._cluster, "topic", self._topic, set_to=kept, delete=[name for name in before if name not in kept]
        )
