"""Runs the commands of `kafka-mirrors` in this process, and looks at both clusters past them."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from twinlog.cli import kafka_mirrors
from twinlog.config.client import ClientSettings
from twinlog.state.log import StateLog
from twinlog.testing.kafka import LocalKafka
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import describe_configs

READY_S = 30.0


@dataclass(frozen=True)
class Said:
    """What one command came to."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Commands:
    """Runs commands against one destination, in this process."""

    destination: LocalKafka
    source: LocalKafka
    folder: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Said:
        """Run a command that names no cluster itself."""
        return self.bare("--bootstrap-server", self.destination.bootstrap, *words)

    def bare(self, *words: str) -> Said:
        """Run a command with these words alone."""
        self.capsys.readouterr()
        code = kafka_mirrors.main(list(words))
        out, err = self.capsys.readouterr()
        return Said(code, out, err)

    def done(self, *words: str) -> str:
        """Run a command that must succeed; returns what it printed."""
        said = self(*words)
        assert said.code == 0, said
        return said.out

    def file(self, text: str) -> str:
        """A file with this text."""
        path = self.folder / f"{uuid.uuid4().hex}.properties"
        path.write_text(text)
        return str(path)

    def mirror(self, **configs: str) -> str:
        """A mirror of the source that was just created; `_` in a key stands for a dot."""
        name = f"m-{uuid.uuid4().hex[:8]}"
        lines = [f"bootstrap.servers={self.source.bootstrap}"]
        lines += [f"{key.replace('_', '.')}={value}" for key, value in configs.items()]
        self.done("--create", "--mirror", name, "--mirror-config", self.file("\n".join(lines)))
        return name

    def state(self) -> Any:
        """All that a command could change: mirrors and topics in the state, and the destination's topics."""
        return on(self.destination, _state)

    def refused(self, *words: str) -> str:
        """Run a command that must be refused without any change; returns what it said on stderr."""
        before = self.state()
        said = self(*words)
        assert said.code == 1, said
        assert said.out == ""
        assert "Traceback" not in said.err
        assert self.state() == before
        return said.err

    def failure(self, *words: str) -> str:
        """As `refused`, for what is no mistake in the command line; returns the sentence, which notes may precede."""
        last = self.refused(*words).strip().splitlines()[-1]
        prefix, colon, sentence = last.rpartition("mirror command : ")
        assert (prefix, colon) == ("Error while executing ", "mirror command : ")
        return sentence


async def _state(cluster: Cluster) -> Any:
    image = await (await StateLog.open(cluster, create=False)).load()
    return (
        image.mirrors,
        list(image.all_topics()),
        {name: info.id for name, info in (await cluster.topics(None)).items()},
    )


def on(kafka: LocalKafka, work: Callable[[Cluster], Any]) -> Any:
    """Run something with a client of a cluster."""

    async def connected() -> Any:
        settings = ClientSettings.from_properties({}, bootstrap=kafka.bootstrap, origin="test")
        cluster = await Cluster.connect(settings, client_id="test")
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    return asyncio.run(connected())


def topic_info(kafka: LocalKafka, topic: str) -> Any:
    """A topic as its cluster tells it."""
    return on(kafka, lambda cluster: cluster.topics([topic]))[topic]


def topic_configs(kafka: LocalKafka, topic: str) -> dict[str, str | None]:
    """All configs of a topic in force."""
    entries = on(kafka, lambda cluster: describe_configs(cluster, "topic", [topic]))[topic]
    return {name: entry.value for name, entry in entries.items()}


def produce(kafka: LocalKafka, topic: str, count: int, partition: int = 0) -> None:
    """Write plain records."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(count):
        producer.produce(topic, key=str(number), value=b"v", partition=partition)
    assert producer.flush(READY_S) == 0


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without its headings."""
    return [line.split() for line in text.splitlines()[1:]]
