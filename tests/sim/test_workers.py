"""The group that stands in for Kafka's membership."""

import asyncio
from collections.abc import Collection, Iterator
from random import Random

import pytest
from tests.sim.loop import SimLoop
from tests.sim.workers import Group, Member, WorkerProcess

SHARDS = 6


class Owner:
    """What a worker would do with what its member tells it."""

    def __init__(self, loop: SimLoop, group: Group, name: str) -> None:
        self.process = WorkerProcess(name, group)
        self.owned: set[int] = set()
        self.member: Member | None = None
        loop.spawn(self.process, self._join())

    async def _join(self) -> None:
        self.member = Member(None, on_gained=self._gained, on_taken=self._taken, client_id=self.process.name)
        self.member.start()

    def _gained(self, shards: Collection[int]) -> None:
        self.owned.update(shards)

    async def _taken(self, shards: Collection[int]) -> None:
        await asyncio.sleep(0.5)
        self.owned.difference_update(shards)


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    """A loop that is cleared away."""
    loop = SimLoop()
    yield loop
    loop.dispose()


async def joined(loop: SimLoop, group: Group, names: str) -> list[Owner]:
    """Some owners that have shared everything."""
    owners = [Owner(loop, group, name) for name in names]
    await asyncio.sleep(30)
    return owners


def test_shards_are_shared_evenly(loop: SimLoop) -> None:
    """Each shard has one owner, and nobody has more than his share."""
    group = Group(loop, Random(1), SHARDS)

    async def main() -> list[Owner]:
        return await joined(loop, group, "abc")

    owners = loop.run(main())
    assert sorted(shard for owner in owners for shard in owner.owned) == list(range(SHARDS))
    assert max(len(owner.owned) for owner in owners) == 2


def test_a_member_taken_for_dead_hears_of_it_when_it_thaws_and_joins_again(loop: SimLoop) -> None:
    """Meanwhile the others have all; the frozen one still believes in what it had."""
    group = Group(loop, Random(1), SHARDS)

    async def main() -> None:
        first, second = await joined(loop, group, "ab")
        loop.freeze(first.process)
        group.expel(first.process)
        await asyncio.sleep(5)
        assert second.owned == set(range(SHARDS))
        assert len(first.owned) == 3
        loop.thaw(first.process)
        await asyncio.sleep(60)
        assert len(first.owned) == len(second.owned) == 3
        assert first.owned | second.owned == set(range(SHARDS))

    loop.run(main())
    assert len(group.members) == 2


def test_a_dead_member_never_comes_back(loop: SimLoop) -> None:
    """What it had falls to the others."""
    group = Group(loop, Random(1), SHARDS)

    async def main() -> list[Owner]:
        owners = await joined(loop, group, "ab")
        loop.kill(owners[0].process)
        group.expel(owners[0].process)
        await asyncio.sleep(60)
        return owners

    owners = loop.run(main())
    assert owners[1].owned == set(range(SHARDS))
    assert group.members == [owners[1].member]
