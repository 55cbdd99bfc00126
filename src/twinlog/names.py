"""The names that every part shares: a partition of a topic, and the offsets around it."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic, written `topic-3` as Kafka's own logs do."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
