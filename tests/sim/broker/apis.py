"""Which request is answered where; one that is not listed is a mistake of the simulation, and raises at once."""

from collections.abc import Callable
from typing import Final

from tests.sim.broker import admin, appending, reading
from tests.sim.broker.asks import Ask
from tests.sim.broker.node import SimBroker

Handler = Callable[[SimBroker, Ask], None]

HANDLERS: Final[dict[int, Handler]] = {
    0: appending.produce,
    1: reading.fetch,
    2: reading.list_offsets,
    3: admin.metadata,
    10: admin.find_coordinator,
    18: admin.api_versions,
    19: admin.create_topics,
    20: admin.delete_topics,
    21: admin.delete_records,
    22: lambda broker, ask: broker.coordinator.init_producer_id(ask),
    24: lambda broker, ask: broker.coordinator.add_partitions(ask),
    26: lambda broker, ask: broker.coordinator.end_txn(ask),
    27: appending.write_markers,
    29: admin.describe_acls,
    32: admin.describe_configs,
    43: admin.elect_leaders,
    44: admin.alter_configs,
    60: admin.describe_cluster,
    61: admin.describe_producers,
}


def handle(broker: SimBroker, ask: Ask) -> None:
    """Answer a request now, or later."""
    HANDLERS[ask.api_key](broker, ask)
