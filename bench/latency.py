"""How long a record takes from `produce` at the source to a consumer of the destination, at a steady rate."""

import struct
import threading
import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from twinlog.testing.kafka import LocalKafka

VALUE_BYTES: Final = 1000
LEFT_OUT_S: Final = 3.0  # connections open, caches fill
LATE_S: Final = 15.0
_SENT: Final = struct.Struct(">q")


@dataclass(frozen=True)
class Latency:
    """Percentiles in milliseconds over `records` records; `lost` have not come within some seconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    records: int
    lost: int


def measure(
    source: LocalKafka, destination: LocalKafka, topics: tuple[str, str], *, partitions: int, rate: int, seconds: float
) -> Latency:
    """Produce `rate` records a second to the first of `topics` and read the second, its twin or copy."""
    consumer = Consumer(
        {"bootstrap.servers": destination.bootstrap, "group.id": "bench-latency", "enable.auto.commit": False}
    )
    places = [TopicPartition(topics[1], part) for part in range(partitions)]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=20)[1]
    consumer.assign(places)
    count = int(rate * (seconds + LEFT_OUT_S))
    sender = threading.Thread(target=send, args=(source.bootstrap, topics[0], partitions, rate, count), daemon=True)
    sender.start()
    deadline = time.monotonic() + seconds + LEFT_OUT_S + LATE_S
    seen: list[tuple[int, float]] = []
    while len(seen) < count and time.monotonic() < deadline:
        # One at a time: a call for several waits for all of them, or for its timeout.
        message = consumer.poll(0.1)
        now_ns = time.perf_counter_ns()
        if message is not None and not message.error():
            sent_ns = _SENT.unpack_from(message.value() or b"")[0]
            seen.append((sent_ns, (now_ns - sent_ns) / 1e6))
    sender.join()
    consumer.close()
    return _percentiles(seen, lost=count - len(seen))


def _percentiles(seen: list[tuple[int, float]], lost: int) -> Latency:
    if not seen:
        return Latency(float("inf"), float("inf"), float("inf"), 0, lost)
    counted_from = min(sent for sent, _ in seen) + int(LEFT_OUT_S * 1e9)
    times = sorted(took for sent, took in seen if sent >= counted_from) or [float("inf")]
    return Latency(times[len(times) // 2], times[len(times) * 99 // 100], times[-1], len(times), lost)


def send(bootstrap: str, topic: str, partitions: int, rate: int, count: int) -> None:
    """Produce `count` records, `rate` a second, each of which says when it was sent."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    filling = b"x" * (VALUE_BYTES - _SENT.size)
    began = time.perf_counter()
    for at in range(count):
        wait_s = began + at / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(topic, _SENT.pack(time.perf_counter_ns()) + filling, partition=at % partitions)
        producer.poll(0)
    producer.flush(30)
