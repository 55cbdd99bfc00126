"""How a simulated cluster behaves; all of it may be set by a schedule."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Span:
    """A duration drawn anew each time, in seconds."""

    least_s: float
    most_s: float


@dataclass(slots=True)
class Settings:
    """Times in seconds unless the name says otherwise; configs of brokers under their own names."""

    handling: Span = field(default_factory=lambda: Span(0.000_05, 0.000_5))  # a broker at one request
    following: Span = field(default_factory=lambda: Span(0.000_5, 0.003))  # from one fetch of a follower to its next
    learning: Span = field(
        default_factory=lambda: Span(0.001, 0.05)
    )  # until a broker knows what the controller decided
    catching_up: Span = field(default_factory=lambda: Span(0.001, 0.5))  # until a broker that is back knows it
    state_write: Span = field(default_factory=lambda: Span(0.001, 0.005))  # a write of a transaction's state
    session_timeout_s: float = 4.0  # broker.session.timeout.ms: until a silent broker is fenced
    fetch_wait_s: float = 0.5  # replica.fetch.wait.max.ms
    follower_retry_s: float = 0.05  # replica.fetch.backoff.ms, shortened
    replica_lag_max_s: float = 30.0  # replica.lag.time.max.ms
    request_timeout_s: float = 30.0  # request.timeout.ms of a coordinator that writes markers
    marker_retry_s: float = 0.1  # until a coordinator sends a marker again
    marker_surplus: float = 0.0  # how often an answer to a coordinator's marker is lost
    producer_expiration_ms: int = 86_400_000  # producer.id.expiration.ms
    expiration_check_s: float = 600.0  # producer.id.expiration.check.interval.ms
    transaction_check_s: float = 10.0  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    max_transaction_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    default_replication: int = 1
    default_partitions: int = 1
    min_isr: int = 1
    fetch_max_bytes: int = 57_671_680  # fetch.max.bytes
    hold_high_watermark_below_min_isr: bool = True  # so since Kafka 4.0
