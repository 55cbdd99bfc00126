"""What compose.yaml starts, started here without containers: its commands and variables, between two real clusters."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from tests.deploy.deployed import ROOT, compose, entry_point, stages
from tests.real.faults import until

from twinlog.testing.kafka import LocalKafka
from twinlog.testing.ports import free_port

BIN = Path(sys.executable).parent
SERVICES: dict[str, Any] = compose()["services"]
PORT = "9404"
TOPICS = {"orders": "orders", "payments": "payments-copy"}
ARRIVES_WITHIN_S = 60.0


class Stand:
    """Puts what is here in the place of what a container would have there."""

    def __init__(self, source: LocalKafka, destination: LocalKafka, folder: Path, prefix: str) -> None:
        self.prefix = prefix
        self.folder = folder
        self._brokers = {"source:9092": source.bootstrap, "destination:9092": destination.bootstrap}
        self.ports = {name: str(free_port()) for name in ("worker", "reo")}

    def here(self, text: str, service: str = "") -> str:
        """A word or a script of a service, for this machine and for topics of the test's own."""
        for name, bootstrap in self._brokers.items():
            text = text.replace(name, bootstrap)
        for volume in SERVICES.get(service, {}).get("volumes", ()):
            ours, theirs, _ = volume.split(":")
            text = text.replace(theirs, str(self.folder / Path(ours).name))
        for name in ("orders", "payments"):
            text = text.replace(f" {name}", f" {self.prefix}{name}")
        return text.replace("0.0.0.0:" + PORT, "127.0.0.1:" + self.ports.get(service, "")).replace("$$", "$")

    def environment(self, service: str) -> dict[str, str]:
        """The variables of a service."""
        told = {name: self.here(value) for name, value in SERVICES[service].get("environment", {}).items()}
        told |= {name: f"{self.prefix}{value}" for name, value in told.items() if value.startswith("payments")}
        return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **told}

    def words(self, service: str) -> list[str]:
        """The command line of a service of ours."""
        told = SERVICES[service]
        program, *rest = [*entry_point(told["build"]["target"]), *told.get("command", [])]
        return [str(BIN / program), *(self.here(word, service) for word in rest)]

    @contextmanager
    def running(self, service: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a service of ours until the block ends."""
        with (self.folder / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                self.words(service), env=self.environment(service), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)

    def healthy(self, service: str) -> bool:
        """What the image's health check says."""
        check = dict(stages()["runtime"])["HEALTHCHECK"].partition("CMD ")[2]
        words: list[str] = [word.replace(PORT, self.ports[service]) for word in json.loads(check)]
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True, check=False, timeout=10)
        return done.returncode == 0


def arrived(kafka: LocalKafka, topic: str, count: int) -> list[bytes | None]:
    """The values of a topic, once there are so many."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        deadline = time.monotonic() + ARRIVES_WITHIN_S
        while len(found) < count and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(count, 0.5) if not message.error()]
        return found
    finally:
        consumer.close()


def test_services_do_between_real_clusters_what_the_file_says(
    source: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """Both are healthy by the image's own check; the mirror is made once; all records of both topics arrive."""
    stand = Stand(source, destination, tmp_path, f"{topic}-")
    properties = ROOT / "deploy" / "compose" / "orders.properties"
    (tmp_path / "orders.properties").write_text(stand.here(properties.read_text("utf-8")), "utf-8")
    for kafka, name in ((source, "orders"), (source, "payments"), (destination, "payments-copy")):
        kafka.create_topic(f"{topic}-{name}", partitions=4)
    with stand.running("worker"), stand.running("reo"):
        for service in ("worker", "reo"):
            until(lambda service=service: stand.healthy(service), timeout_s=30, what=f"{service} is healthy")
        for _ in range(2):
            made = subprocess.run(
                [*SERVICES["mirror"]["entrypoint"], stand.here(SERVICES["mirror"]["command"][0], "mirror")],
                env=stand.environment("mirror"),
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert made.returncode == 0, made.stdout + made.stderr
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for name in TOPICS:
            for number in range(100):
                producer.produce(f"{topic}-{name}", value=f"{name} {number}".encode())
        assert producer.flush(20) == 0
        for name, twin in TOPICS.items():
            found = arrived(destination, f"{topic}-{twin}", 100)
            expected = sorted(f"{name} {number}".encode() for number in range(100))
            assert sorted(value or b"" for value in found) == expected, (tmp_path / "reo.log").read_text()[-2000:]
