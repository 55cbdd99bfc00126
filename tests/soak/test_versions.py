"""Soak: every pair of Kafka releases, and a source whose brokers become newer ones while it is mirrored.

| test            | covers                                                                          | minutes |
|-----------------|---------------------------------------------------------------------------------|---------|
| pairs           | 7 sources from 1.1 to 4.4, 4 destinations from 3.3 to 4.4: all kinds of content, | 20      |
|                 | and create, start, stop and verify by the programs                              |         |
| rolling upgrade | a source of three brokers goes from 3.9 to 4.0 to 4.4, broker by broker, under  | 3       |
|                 | transactions                                                                    |         |
"""

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import UpdateFeaturesRequest
from kafka.protocol.metadata.api_versions import ApiVersionsRequest
from tests.real.commanding import Commands, on
from tests.real.matrix import EAGER_CLEANER, mirror_by_commands, run_matrix
from tests.real.mirroring import Mirror

from twinlog.testing.checker import assert_identical
from twinlog.testing.kafka import LocalKafka
from twinlog.testing.load import Flow
from twinlog.wire.cluster import Cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

# The last patch of each; 1.1 is the oldest whose brokers tell what a mirror has to know of a source.
SOURCES = ("1.1.1", "2.4.1", "2.8.2", "3.3.2", "3.9.2", "4.0.2", "4.4.0")
DESTINATIONS = ("3.3.2", "3.9.2", "4.0.2", "4.4.0")

FEATURE = "metadata.version"
TOPIC = "upgraded"
PARTITIONS = 6
IN_SYNC_S = 60.0
CAUGHT_UP_S = 90.0


@pytest.mark.parametrize("destination_version", DESTINATIONS)
@pytest.mark.parametrize("source_version", SOURCES)
def test_every_pair_of_releases_carries_all_content(
    source_version: str, destination_version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All codecs, producers, transactions, aborts, holes, log starts, timestamps and headers; and by the programs."""
    with (
        LocalKafka(version=source_version, config=EAGER_CLEANER) as source,
        LocalKafka(version=destination_version) as destination,
        Mirror(source, destination) as mirror,
    ):
        records = run_matrix(mirror, "matrix")
        assert min(records.values()) > 0
        commands = Commands(destination, source, tmp_path, capsys)
        assert "identical" in mirror_by_commands(commands, mirror, "commanded")


def test_a_source_is_upgraded_broker_by_broker_while_it_is_mirrored() -> None:
    """Two releases further, and its features with it: what producers were told is written is at the twin, and equal."""
    with LocalKafka(3, version="3.9.2") as source, LocalKafka() as destination, Mirror(source, destination) as mirror:
        mirror.create(TOPIC, partitions=PARTITIONS)
        mirror.start(TOPIC)
        with Flow(source, TOPIC, seed=4, records_per_second=500) as flow:
            for version in ("4.0.2", "4.4.0"):
                for node in source.nodes:
                    source.upgrade(node, version)
                    wait_in_sync(source)
                before = flow.acknowledged
                on(source, turn_features_on)
                deadline = time.monotonic() + IN_SYNC_S
                while flow.acknowledged < before + 1000:
                    assert time.monotonic() < deadline
                    time.sleep(0.2)
        mirror.wait_level(TOPIC, timeout_s=CAUGHT_UP_S)
        assert assert_identical(source, destination, TOPIC).source_records >= flow.acknowledged > 2000


async def turn_features_on(cluster: Cluster) -> None:
    """Let the cluster use what its brokers' release has brought, as `kafka-features upgrade` does."""
    told = await cluster.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    newest = {feature.name: feature.max_version for feature in told.supported_features}[FEATURE]
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=FEATURE, max_version_level=newest, upgrade_type=1)
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=False)
    answer = await cluster.call(request, node=Cluster.CONTROLLER)
    assert answer.error_code == 0, answer


def wait_in_sync(kafka: LocalKafka) -> None:
    """Wait until every replica of the topic is in sync, so that the next broker may go."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    deadline = time.monotonic() + IN_SYNC_S
    while any(
        len(part.isrs) < 3 for part in admin.list_topics(TOPIC, timeout=IN_SYNC_S).topics[TOPIC].partitions.values()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)
