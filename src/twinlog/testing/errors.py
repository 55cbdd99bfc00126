"""What can go wrong on the test bench itself, as opposed to in the code under test."""

from twinlog.errors import TwinlogError


class BenchFailed(TwinlogError):
    """A broker, a Kafka tool or a download of the test bench failed; the text says what and where its log is."""
