"""The requests that tell and set where share groups begin (KIP-932, keys 90 and 91), which kafka-python lacks.

The library makes a class of each schema of that name in the package `schemas`. Of both requests version 0 is spoken:
the later one of the first only adds a lag.
"""

from kafka.protocol.api_message import ApiMessage

from twinlog.wire import schemas

__all__ = [
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsResponse",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsResponse",
]


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):
    """Where share groups begin in their partitions."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):
    """By group, topic and partition."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=schemas):
    """Set where an empty share group begins; one that does not exist is created."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=schemas):
    """A code for the group, and one for each partition."""
