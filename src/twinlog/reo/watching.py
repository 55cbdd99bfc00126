"""Beside a copier at work: says once a minute how far it is, and what holds it where it does not come on."""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any, Final

from twinlog.reo.copier import Copier
from twinlog.reo.lines import goes_on

log = logging.getLogger("twinlog.reo")

LOOK_EVERY_S: Final = 5.0
SLOW_S: Final = 5.0
TELL_EVERY_S: Final = 60.0


async def watch(copier: Copier[Any]) -> None:
    """Watch until cancelled."""
    told_at, since = time.monotonic(), replace(copier.counts)
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if copier.quiet_s() > SLOW_S:
            await copier.look_for_holdup()
        if time.monotonic() - told_at >= TELL_EVERY_S:
            facts = copier.facts()
            log.info("%s of share %d: %s", copier.stage.name, copier.stage.share, goes_on(facts, since, copier.counts))
            told_at, since = time.monotonic(), replace(copier.counts)
