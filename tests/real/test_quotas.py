"""A broker's client quotas: obeyed on both sides, without errors, without haste, and with every partition going on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from kafka.protocol.admin import AlterClientQuotasRequest
from tests.real.mirrored_logs import numbered, write
from tests.real.mirroring import Mirror

from twinlog.names import TopicPartition as Tp
from twinlog.relay.destination import DATA_CLIENT_ID
from twinlog.testing.checker import assert_identical
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster

pytestmark = pytest.mark.timed

RATE, OVER_S = 250_000, 7.0
BACKLOG, VALUE_BYTES = 3_000, 1000
SMALL = 3


@pytest.fixture(scope="module")
def mirror(source: LocalKafka, destination: LocalKafka) -> Iterator[Mirror]:
    """One mirror and its worker for all tests of this file."""
    with Mirror(source, destination, name="quota-mirror") as mirror:
        yield mirror


async def _set_quota(cluster: Cluster, client_id: str, key: str, value: float, *, remove: bool) -> None:
    entry = AlterClientQuotasRequest.EntryData
    entity = entry.EntityData(entity_type="client-id", entity_name=client_id)
    ops = [entry.OpData(key=key, value=value, remove=remove)]
    answer = await cluster.call(
        AlterClientQuotasRequest(entries=[entry(entity=[entity], ops=ops)], validate_only=False)
    )
    assert [told.error_code for told in answer.entries] == [0]


def set_by_tool(kafka: LocalKafka, client_id: str, setting: str) -> None:
    """As `kafka-configs.sh` does it, which runs this class."""
    what = ("--alter", "--add-config", setting, "--entity-type", "clients", "--entity-name", client_id)
    kafka.java_tool("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap, *what)


@contextmanager
def quota(mirror: Mirror, side: int, client_id: str, key: str) -> Iterator[None]:
    """A quota of RATE for a client id: at the source set by Kafka's own tool, at the destination by the admin API."""
    if side == 0:
        set_by_tool(mirror.source, client_id, f"{key}={RATE}")
    else:
        mirror.run(_set_quota(mirror.clusters[side], client_id, key, RATE, remove=False))
    try:
        yield
    finally:
        mirror.run(_set_quota(mirror.clusters[side], client_id, key, 0.0, remove=True))


def prepared(mirror: Mirror, topic: str) -> None:
    """A topic whose first partition has far more than what a quota lets through at once."""
    mirror.create(topic, partitions=1 + SMALL)
    write(mirror.source, topic, numbered(BACKLOG, value_bytes=VALUE_BYTES), **{"batch.size": 30_000})


def throttled_rate(mirror: Mirror, topic: str) -> tuple[float, float]:
    """Bytes a second that come from the first on, and the worker's share of a core meanwhile.

    A broker here lets through at once what two seconds of the rate are worth, and that is paid off before more comes.
    """
    mirror.wait_figure(topic, lambda figure: figure.destination_end > 0, timeout_s=20.0)
    process = psutil.Process(mirror.workers[0].pid)
    began, cpu = time.monotonic(), sum(process.cpu_times()[:2])
    # Small partitions do not wait for the huge one.
    for partition in range(1, 1 + SMALL):
        write(mirror.source, topic, numbered(10), partition=partition)
    time.sleep(OVER_S / 2)
    middle = mirror.ends(topic)[0]
    time.sleep(OVER_S / 2)
    ends, took_s = mirror.ends(topic), time.monotonic() - began
    assert [ends[partition] for partition in range(1, 1 + SMALL)] == [10] * SMALL
    assert middle < ends[0] < BACKLOG
    return ends[0] * VALUE_BYTES / took_s, (sum(process.cpu_times()[:2]) - cpu) / took_s


def check(mirror: Mirror, topic: str) -> None:
    """After the quota is gone both sides are soon the same, and nothing went wrong meanwhile."""
    mirror.wait_level(topic, timeout_s=20.0)
    assert_identical(mirror.source, mirror.destination, topic)
    log = mirror.workers[0].log_text()
    troubles = [line for line in log.splitlines() if topic in line and ("WARNING" in line or "ERROR" in line)]
    assert troubles == []


def test_source_quota_is_obeyed(mirror: Mirror, topic: str) -> None:
    """Set by Kafka's own tool on the client id that KIP-1279 gives to a mirror's fetchers."""
    prepared(mirror, topic)
    leader = mirror.run(mirror.clusters[1].find_leader(Tp(topic, 0))).node
    client_id = f"broker-{leader}-fetcher-0-mirror-{mirror.name}"
    with quota(mirror, 0, client_id, "consumer_byte_rate"):
        mirror.start(topic)
        rate, cpu = throttled_rate(mirror, topic)
    assert 0.6 * RATE < rate < 1.6 * RATE, rate
    assert cpu < 0.3, cpu
    check(mirror, topic)


def test_destination_quota_is_obeyed(mirror: Mirror, topic: str) -> None:
    """Set on the client id of the connections that carry data, which is the same for all workers."""
    prepared(mirror, topic)
    with quota(mirror, 1, DATA_CLIENT_ID, "producer_byte_rate"):
        mirror.start(topic)
        rate, cpu = throttled_rate(mirror, topic)
    assert 0.6 * RATE < rate < 1.6 * RATE, rate
    assert cpu < 0.3, cpu
    check(mirror, topic)
