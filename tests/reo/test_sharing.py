"""What an instance does with the shares that the group gives and takes."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from twinlog.errors import BadInput
from twinlog.reo import sharing
from twinlog.reo.sharing import Board, Crew
from twinlog.reo.stage import TakenOver


class Group:
    """A membership whose shares a test gives and takes."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.gained: Callable[[Collection[int]], None] = lambda _: None
        self.taken: Callable[[Collection[int]], Awaitable[None]]

    def __call__(
        self,
        *,
        group: str,
        topic: str,
        on_gained: Callable[[Collection[int]], None],
        on_taken: Callable[[Collection[int]], Awaitable[None]],
    ) -> "Group":
        """Make the member."""
        self.steps.append(f"{group} of {topic}")
        self.gained, self.taken = on_gained, on_taken
        return self

    def start(self) -> None:
        """Join."""
        self.steps.append("joined")

    async def leave(self) -> None:
        """Leave."""
        self.steps.append("left")

    async def watch(self) -> None:
        """Nothing ends it."""
        await asyncio.Event().wait()


class Fake:
    """A copier that does nothing until it is told to stop, or ends with an error at once."""

    def __init__(self, share: int, error: Exception | None, log: list[str]) -> None:
        self.share, self.error, self.log = share, error, log

    async def run(self, stopping: asyncio.Event) -> None:
        """Wait, or fail."""
        self.log.append(f"begin {self.share}")
        if self.error is not None:
            raise self.error
        await stopping.wait()

    def close(self) -> None:
        """Note it."""
        self.log.append(f"end {self.share}")


def crew_of(log: list[str], board: Board, errors: dict[int, list[Exception]] | None = None) -> Crew:
    """Copiers that fail as often as `errors` say."""

    def make(share: int) -> Any:
        left = (errors or {}).get(share, [])
        return Fake(share, left.pop() if left else None, log)

    return Crew(make, board)


async def settled() -> None:
    """Let what is ready run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_shares_are_worked_at_from_gain_to_loss_and_given_up_before_leaving() -> None:
    """The board shows what is at work."""
    group, board, log, stopping = Group(), Board(), list[str](), asyncio.Event()
    running = asyncio.create_task(
        crew_of(log, board).run(group, group="copy", topic="copy-positions", stopping=stopping)
    )
    await settled()
    group.gained([0, 2])
    await settled()
    assert len(board.copiers) == 2
    await group.taken([0, 5])
    assert log == ["begin 0", "begin 2", "end 0"]
    stopping.set()
    await asyncio.wait_for(running, 5)
    assert (log[-1], board.copiers) == ("end 2", [])
    assert group.steps == ["copy of copy-positions", "joined", "left"]


async def test_a_share_that_was_taken_over_is_tried_again_while_it_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group may not have told yet that it is another's."""
    monkeypatch.setattr(sharing, "AGAIN_AFTER_S", 0.01)
    group, board, log, stopping = Group(), Board(), list[str](), asyncio.Event()
    crew = crew_of(log, board, {1: [TakenOver("another copy")]})
    running = asyncio.create_task(crew.run(group, group="g", topic="t", stopping=stopping))
    await settled()
    group.gained([1])
    await asyncio.sleep(0.1)
    assert log == ["begin 1", "end 1", "begin 1"]
    stopping.set()
    await asyncio.wait_for(running, 5)


async def test_what_is_refused_ends_the_instance() -> None:
    """With its reason; the other shares are given up in order."""
    group, board, log, stopping = Group(), Board(), list[str](), asyncio.Event()
    crew = crew_of(log, board, {1: [BadInput("created again")]})
    running = asyncio.create_task(crew.run(group, group="g", topic="t", stopping=stopping))
    await settled()
    group.gained([0, 1])
    with pytest.raises(BadInput, match="created again"):
        await asyncio.wait_for(running, 5)
    assert sorted(log) == ["begin 0", "begin 1", "end 0", "end 1"]
    assert group.steps[-1] == "left"


def test_the_board_is_empty_at_first() -> None:
    """And says what is waited for."""
    assert (Board().copiers, bool(Board().waits_for)) == ([], True)
