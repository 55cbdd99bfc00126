"""The names that every part shares: a partition of a topic, the offsets around it, and ids of topics."""

from typing import NamedTuple
from uuid import UUID


class TopicPartition(NamedTuple):
    """One partition of one topic, written `topic-3` as Kafka's own logs do."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def ids_differ(recorded: UUID, now: UUID) -> bool:
    """Whether two topic ids are known and differ, so that this is another topic of the same name.

    An id of zeros is not known: brokers before 2.8 have none to compare.
    """
    return bool(recorded.int and now.int) and recorded != now
