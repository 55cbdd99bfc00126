"""How the state topic is found, created and refused; on real brokers in `real/test_state.py`."""

from typing import Any, cast
from uuid import UUID

import pytest

from twinlog.errors import AuthorizationFailed, BadInput, RetryLater, TopicAlreadyExists
from twinlog.state import topic as module
from twinlog.state.topic import STATE_TOPIC, ensure_topic
from twinlog.wire.cluster import Cluster, PartitionInfo, TopicInfo
from twinlog.wire.ops import ConfigEntry

UNKNOWN = TopicInfo(STATE_TOPIC, UUID(int=0), 3, internal=False)


def there(partitions: int = 50, leader: int = 1, error: int = 0) -> TopicInfo:
    """The topic as metadata shows it."""
    parts = {n: PartitionInfo(leader, 0, (1,), (1,), 0) for n in range(partitions)}
    return TopicInfo(STATE_TOPIC, UUID(int=1), error, internal=False, partitions=parts)


class FakeCluster:
    """Answers metadata from a script (the last answer stays), and keeps what was created."""

    def __init__(self, *answers: TopicInfo, brokers: int = 3) -> None:
        self.answers = list(answers)
        self.brokers = dict.fromkeys(range(brokers))
        self.created: list[dict[str, Any]] = []
        self.exists = False
        self.policy = "compact"

    async def topics(self, _: Any) -> dict[str, TopicInfo]:
        """The next answer."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {STATE_TOPIC: answer}

    async def create_topic(self, _: Any, name: str, **options: Any) -> None:
        """Create, unless another was faster."""
        assert name == STATE_TOPIC
        self.created.append(options)
        if self.exists:
            raise TopicAlreadyExists("It exists.")

    async def describe_configs(self, *_: Any, **__: Any) -> dict[str, dict[str, ConfigEntry]]:
        """The policy."""
        entry = ConfigEntry("cleanup.policy", self.policy, "DYNAMIC_TOPIC_CONFIG", sensitive=False, read_only=False)
        return {STATE_TOPIC: {"cleanup.policy": entry}}


async def ensured(monkeypatch: pytest.MonkeyPatch, fake: FakeCluster, **options: Any) -> int:
    """Run against a fake cluster."""
    monkeypatch.setattr(module, "create_topic", fake.create_topic)
    monkeypatch.setattr(module, "describe_configs", fake.describe_configs)
    return await ensure_topic(cast("Cluster", fake), **{"create": True, "timeout_s": 0.3} | options)


async def test_a_topic_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own number of partitions counts, whatever was asked for."""
    fake = FakeCluster(there(7))
    assert await ensured(monkeypatch, fake, partitions=50) == 7
    assert fake.created == []


async def test_looking_creates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `create` a missing topic has no partitions."""
    fake = FakeCluster(UNKNOWN)
    assert await ensured(monkeypatch, fake, create=False) == 0
    assert fake.created == []


@pytest.mark.parametrize(
    ("brokers", "wanted", "replicas", "min_isr"),
    [(1, None, 1, "1"), (2, None, 2, "1"), (5, None, 3, "2"), (5, 1, 1, "1"), (5, 4, 4, "2")],
)
async def test_a_missing_topic_is_created(
    monkeypatch: pytest.MonkeyPatch, *, brokers: int, wanted: int | None, replicas: int, min_isr: str | None
) -> None:
    """Compacted, with up to three replicas, of which two must take each write; a faster process is no error."""
    fake = FakeCluster(UNKNOWN, UNKNOWN, there(leader=-1), there(), brokers=brokers)
    fake.exists = brokers == 2
    assert await ensured(monkeypatch, fake, replication_factor=wanted, timeout_s=5.0) == 50
    (options,) = fake.created
    assert (options["partitions"], options["replication_factor"]) == (50, replicas)
    assert options["configs"]["cleanup.policy"] == "compact"
    assert options["configs"].get("min.insync.replicas") == min_isr


async def test_a_topic_that_does_not_appear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded, and the sentence says where to look."""
    with pytest.raises(RetryLater, match=r"no leaders after 0\.3 s"):
        await ensured(monkeypatch, FakeCluster(UNKNOWN))


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_a_topic_that_deletes_is_refused(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Mirrors would vanish with it."""
    fake = FakeCluster(there())
    fake.policy = policy
    with pytest.raises(BadInput, match=r"Set cleanup\.policy=compact"):
        await ensured(monkeypatch, fake)


async def test_no_partitions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state needs a place."""
    with pytest.raises(BadInput, match="at least one partition"):
        await ensured(monkeypatch, FakeCluster(UNKNOWN), partitions=0)


async def test_a_missing_right_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that may not be looked at is not taken for missing."""
    with pytest.raises(AuthorizationFailed, match=STATE_TOPIC):
        await ensured(monkeypatch, FakeCluster(there(0, error=29)))
