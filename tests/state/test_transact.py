"""How a command ends, by what becomes of its commit; with real brokers in `real/test_state.py`."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from twinlog.control.commands import Handled
from twinlog.control.image import Image
from twinlog.control.records import Change, MirrorRecord
from twinlog.errors import BadInput, ConcurrentChange, GiveWay, RetryLater, TwinlogError, UnknownOutcome
from twinlog.state import transact as module
from twinlog.state.log import StateLog
from twinlog.state.transact import MOST_TRIES, transact
from twinlog.wire.cluster import Cluster


class Fake:
    """A writer and a log in one: `outcomes` says how each commit ends, and whether it stands."""

    def __init__(self) -> None:
        self.stored: list[Change] = []
        self.outcomes: list[tuple[TwinlogError | None, bool]] = []
        self.reestablishing: TwinlogError | None = None
        self.calls: list[str] = []

    async def fence(self) -> None:
        """Take the lock."""
        self.calls.append("fence")

    async def reestablish(self, **_: Any) -> None:
        """Settle."""
        self.calls.append("reestablish")
        if self.reestablishing is not None:
            raise self.reestablishing

    async def load(self, **_: Any) -> Image:
        """Read what stands."""
        self.calls.append("load")
        return Image(self.stored)

    async def commit(self, records: Sequence[Change]) -> None:
        """End as told."""
        self.calls.append("commit")
        failure, stands = self.outcomes.pop(0) if self.outcomes else (None, True)
        if stands:
            self.stored += records
        if failure is not None:
            raise failure


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Commits stand until told otherwise."""
    fake = Fake()
    monkeypatch.setattr(module, "StateWriter", lambda *_, **__: fake)
    return fake


RECORD = MirrorRecord("m", {}, "")
LOST = UnknownOutcome("lost")


async def run(fake: Fake, records: tuple[Change, ...] = (RECORD,)) -> int:
    """A command that replies with the number of mirrors that it saw."""
    log = cast("StateLog", fake)
    return await transact(cast("Cluster", None), log, lambda image: Handled(records, len(image.mirrors)))


async def test_a_command_fences_reads_judges_commits(fake: Fake) -> None:
    """In this order; the reply is the handler's."""
    assert await run(fake) == 0
    assert fake.calls == ["fence", "load", "commit"]


async def test_a_refusal_commits_nothing(fake: Fake) -> None:
    """What the handler raises ends the command."""

    def refuse(_: Image) -> Handled[None]:
        raise BadInput("No.")

    with pytest.raises(BadInput, match="No"):
        await transact(cast("Cluster", None), cast("StateLog", fake), refuse)
    assert fake.calls == ["fence", "load"]


async def test_a_fenced_command_says_so(fake: Fake) -> None:
    """The user is told to run it again."""
    fake.outcomes = [(GiveWay("x"), False)]
    with pytest.raises(ConcurrentChange, match="Run it again"):
        await run(fake)


async def test_a_lost_answer_of_a_commit_that_stands(fake: Fake) -> None:
    """It is found in the log, and not repeated; of several records of a key the last one counts."""
    fake.outcomes = [(LOST, True)]
    assert await run(fake, (MirrorRecord("m", {"a": "1"}, ""), RECORD)) == 0
    assert fake.calls == ["fence", "load", "commit", "reestablish", "load"]


async def test_a_lost_answer_of_a_commit_that_does_not_stand(fake: Fake) -> None:
    """The command is judged anew and repeated, a few times."""
    fake.outcomes = [(LOST, False)]
    assert await run(fake) == 0
    assert fake.calls.count("commit") == 2
    fake.stored, fake.outcomes = [], [(LOST, False)] * MOST_TRIES
    with pytest.raises(UnknownOutcome, match="not carried out"):
        await run(fake)


@pytest.mark.parametrize(
    ("failure", "expected", "text"),
    [
        (GiveWay("x"), ConcurrentChange, "may or may not have taken effect"),
        (RetryLater("x"), UnknownOutcome, "not known whether"),
    ],
)
async def test_what_cannot_be_settled_is_said(
    fake: Fake, failure: TwinlogError, expected: type[TwinlogError], text: str
) -> None:
    """When nobody can tell, the user learns that, and where to look."""
    fake.outcomes, fake.reestablishing = [(LOST, True)], failure
    with pytest.raises(expected, match=text):
        await run(fake)


@pytest.mark.parametrize("failure", [RetryLater("x"), BadInput("x")])
@pytest.mark.parametrize("cleaning", [None, RetryLater("y")])
async def test_a_commit_that_came_to_nothing_is_cleaned_up(
    fake: Fake, failure: TwinlogError, cleaning: TwinlogError | None
) -> None:
    """Its open transaction is ended at once where that is possible; the error stays the one that mattered."""
    fake.outcomes, fake.reestablishing = [(failure, False)], cleaning
    with pytest.raises(type(failure), match="x"):
        await run(fake)
    assert fake.calls[-1] == "reestablish"
