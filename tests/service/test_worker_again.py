"""A worker whose credentials are refused: at its start that ends it, later it tries again."""

import asyncio

import pytest

from twinlog.config.client import ClientSettings
from twinlog.errors import AuthenticationFailed
from twinlog.service import worker
from twinlog.service.http import Endpoints

SETTINGS = ClientSettings(bootstrap=(("localhost", 1),))


def workers(monkeypatch: pytest.MonkeyPatch, *served: bool) -> list[bool]:
    """Let each worker be refused, having served before or not; one more ends in order. Returns those that ran."""
    ran: list[bool] = []

    class Refused:
        id = "w"

        def __init__(self, *_: object) -> None:
            self.served = served[len(ran)] if len(ran) < len(served) else False

        async def run(self, stopping: asyncio.Event) -> None:
            ran.append(self.served)
            if len(ran) > len(served):
                stopping.set()
                return
            raise AuthenticationFailed("refused")

    monkeypatch.setattr(worker, "Worker", Refused)
    monkeypatch.setattr(worker, "AGAIN_AFTER_S", 0.001)
    return ran


async def test_refused_at_the_start_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends with the error."""
    ran = workers(monkeypatch, False)
    with pytest.raises(AuthenticationFailed):
        await worker._incarnations(SETTINGS, Endpoints())
    assert ran == [False]


async def test_refused_later_is_tried_again_until_it_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the attempts after the first refusal are refused."""
    ran = workers(monkeypatch, True, False, False)
    assert await worker._incarnations(SETTINGS, Endpoints()) == 0
    assert len(ran) == 4
