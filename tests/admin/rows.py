"""A described partition, for tests that care for some of its fields only."""

from typing import Any

from twinlog.control.describe import PartitionDescription
from twinlog.control.lifecycle import PartitionState


def row(**fields: Any) -> PartitionDescription:
    """A partition that is being mirrored, level, with fresh figures; `fields` differ."""
    usual: dict[str, Any] = {
        "mirror": "m",
        "topic": "t",
        "partition": 0,
        "state": PartitionState.MIRRORING,
        "source_offset": 10,
        "destination_offset": 10,
        "retry_attempt": 0,
        "error_message": "",
        "source_high_watermark": 10,
        "source_log_start_offset": 0,
        "waiting_for_transaction": False,
        "figures_age_ms": 0,
        "worker": "w",
    }
    return PartitionDescription(**(usual | fields))
