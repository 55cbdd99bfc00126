"""A Kafka cluster of real brokers on 127.0.0.1, for tests and the demo; needs only Python.

    with LocalKafka() as kafka:
        use(kafka.bootstrap)

One broker: one process that is broker and controller. More: a controller process of its own beside them, so
that any broker may be killed or paused without touching the controller quorum. Releases before 3.3 have a ZooKeeper
process in the controller's place, also beside a single broker.
"""

import base64
import logging
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from twinlog.testing.errors import BenchFailed
from twinlog.testing.node import ZOOKEEPER_SESSION_S, KafkaNode, ZooKeeperNode
from twinlog.testing.ports import free_port
from twinlog.testing.proxy import ClusterProxy
from twinlog.testing.releases import KafkaRelease
from twinlog.testing.watchdog import Watchdog

BROKER_HEAP_MB = 512
CONTROLLER_HEAP_MB = 256
CONTROLLER_ID = 100
ZOOKEEPER_TICK_MS = 500
ZOOKEEPER_CONNECT_S = 30
TOPIC_TIMEOUT_S = 20.0
START_TIMEOUT_S = 60.0  # a start takes 3 to 10 s; other tests may hold the machine's cores

MAIN = "PLAINTEXT"
PROXIED = "PROXIED"

DEFAULTS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),  # default: a quarter of the heap
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "1",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",  # when a killed broker is given up, and may register again
    "controlled.shutdown.retry.backoff.ms": "500",
    "log.retention.ms": "-1",  # tests write records of years ago, which would be gone half a minute after the start
    "quota.window.num": "3",  # a quota's mean is over 2 s, not over 10 s; without quotas it means nothing
}


@dataclass(frozen=True)
class Listener:
    """One more listener on every broker, for example `Listener("SASL", "SASL_PLAINTEXT")`."""

    name: str
    protocol: str = "PLAINTEXT"


class LocalKafka:
    """A cluster of `brokers` real brokers (ids 1, 2, ...), started by `start()` or as a context manager.

    version: a published release, from 1.0.2 on; see `KafkaRelease`.
    config, broker_config: broker settings over `DEFAULTS`, for all, and by broker id.
    listeners: listeners beside the main one; see `bootstrap_of`.
    proxied: put a TCP proxy in front of each broker, by a listener whose advertised address is the proxy;
        see `proxy`. The brokers themselves talk past it.
    java_options: for the brokers, after ours; `-XX:TieredStopAtLevel=4` gives benchmarks the optimising compiler.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = "",
        config: Mapping[str, str] | None = None,
        broker_config: Mapping[int, Mapping[str, str]] | None = None,
        listeners: Sequence[Listener] = (),
        proxied: bool = False,
        java_options: Sequence[str] = (),
    ) -> None:
        self.release = KafkaRelease(version)
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
        self.folder = Path(tempfile.gettempdir()) / f"twinlog-kafka-{uuid.uuid4().hex[:12]}"
        self._listeners = (Listener(MAIN), *listeners, *([Listener(PROXIED)] if proxied else []))
        self._java_options = tuple(java_options)
        self._proxy: ClusterProxy | None = None
        self.brokers = {number: self._broker(number) for number in range(1, brokers + 1)}
        combined = brokers == 1 and not self.release.needs_zookeeper
        self.controller = self.brokers[1] if combined else self._controller()
        self._proxied = proxied
        self._config = dict(config or {})
        self._broker_config = {number: dict(own) for number, own in (broker_config or {}).items()}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, number: int) -> KafkaNode:
        return self.brokers[number]

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        """All processes, the controller's first."""
        others = (node for node in self.brokers.values() if node is not self.controller)
        return (self.controller, *others)

    @property
    def bootstrap(self) -> str:
        """All brokers' direct addresses, `127.0.0.1:port,...`."""
        return self.bootstrap_of(MAIN)

    def bootstrap_of(self, listener: str) -> str:
        """All brokers' addresses of one listener; for PROXIED those of the proxies."""
        if listener == PROXIED:
            return self.proxy.bootstrap
        return ",".join(f"127.0.0.1:{node.ports[listener]}" for node in self.brokers.values())

    @property
    def proxy(self) -> ClusterProxy:
        """The proxies in front of the brokers; needs `proxied=True` and a started cluster."""
        if self._proxy is None:
            raise BenchFailed("This cluster has no proxies: give proxied=True and start it.")
        return self._proxy

    def data_dir(self, number: int) -> Path:
        """The folder in which a broker keeps its partitions' logs."""
        return self.brokers[number].log_dir

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all processes and wait until every broker serves; ends them all if one does not."""
        Watchdog.shared().watch(self.folder)
        self.folder.mkdir(mode=0o700)
        try:
            if self._proxied:
                targets = {number: node.ports[PROXIED] for number, node in self.brokers.items()}
                self._proxy = ClusterProxy(targets)
            for node in self.nodes:
                node.write_config(self._config_of(node), cluster_id=self.cluster_id)
                node.start()
            self.wait_ready(timeout_s)
            if self.release.needs_zookeeper:
                self.cluster_id = str(_admin(self.bootstrap).list_topics(timeout=TOPIC_TIMEOUT_S).cluster_id)
        except BaseException:  # whatever happened, nothing may be left running
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes at once and delete the data; may be called twice."""
        for node in self.nodes:
            node.kill()
        if self._proxy is not None:
            self._proxy.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        Watchdog.shared().forget(self.folder)

    def restart(self, number: int, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop one broker in order, start it again, and wait until the cluster serves."""
        self.brokers[number].stop()
        self.brokers[number].start()
        self.wait_ready(timeout_s, brokers=[number])

    def upgrade(self, node: KafkaNode, version: str, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop one process in order, and start it again as another release, with the data that it has.

        Wait until the cluster serves. The release's new features stay off until `kafka-features` turns them on.
        """
        node.stop()
        node.release = KafkaRelease(version)
        node.start()
        self.wait_ready(timeout_s, brokers=[node.node_id] if node.node_id in self.brokers else None)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S, *, brokers: Sequence[int] | None = None) -> None:
        """Wait until each broker (default: every living one) itself tells that all these are in the cluster.

        Raises BenchFailed with the end of the log when a process ended or the time is over.
        """
        deadline = time.monotonic() + timeout_s
        alive = [number for number, node in self.brokers.items() if node.alive]
        wanted = alive if brokers is None else list(brokers)
        for number in wanted:
            self._wait_for_broker(number, set(wanted), deadline)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until every living broker knows it and all its leaders.

        Configs that the release does not have yet are left out.
        """
        admin = _admin(self.bootstrap)
        # Brokers before 2.4 cannot be asked for their default number of replicas (KIP-464).
        guessed = replication_factor < 0 and self.release.numbers < (2, 4)
        factor = min(3, len(self.brokers)) if guessed else replication_factor
        taken = {key: value for key, value in (config or {}).items() if self.release.takes_topic_config(key)}
        topic = NewTopic(name, partitions, factor, config=taken)
        admin.create_topics([topic], operation_timeout=TOPIC_TIMEOUT_S)[name].result(TOPIC_TIMEOUT_S)
        for node in self.brokers.values():
            if node.alive:
                _wait_for_topic(f"127.0.0.1:{node.ports[MAIN]}", name)

    def log_text(self, last_lines: int | None = None) -> str:
        """All processes' logs (or their last lines), each under a heading."""
        parts = [f"--- Kafka node {node.node_id} ---\n{node.log_text(last_lines)}" for node in self.nodes]
        return "\n".join(parts)

    def java_tool(self, main_class: str, *args: str, timeout_s: float = 60.0) -> str:
        """Run one of Kafka's own tools and return its output.

        For example `java_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap,
        "--list")`. Raises BenchFailed.
        """
        return self.release.run_tool(main_class, args, timeout_s=timeout_s)

    def _broker(self, number: int) -> KafkaNode:
        ports = {listener.name: free_port() for listener in self._listeners}
        ports["CONTROLLER"] = free_port()
        folder = self.folder / f"broker-{number}"
        return KafkaNode(self.release, number, folder, BROKER_HEAP_MB, ports, self._java_options)

    def _controller(self) -> KafkaNode:
        ports = {"CONTROLLER": free_port()}
        kind = ZooKeeperNode if self.release.needs_zookeeper else KafkaNode
        return kind(self.release, CONTROLLER_ID, self.folder / "controller", CONTROLLER_HEAP_MB, ports)

    def _config_of(self, node: KafkaNode) -> dict[str, str]:
        if isinstance(node, ZooKeeperNode):
            return _zookeeper_config(node)
        copies = min(3, len(self.brokers))
        config = {
            "log.dirs": str(node.log_dir),
            **(self._in_zookeeper(node) if self.release.needs_zookeeper else self._in_kraft(node)),
            "listener.security.protocol.map": self._protocols(),
            **self._addresses(node),
            **DEFAULTS,
            "default.replication.factor": str(copies),
            "min.insync.replicas": str(max(1, copies - 1)),
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            config[f"{topic}.replication.factor"] = str(copies)
        for topic in ("transaction.state.log", "share.coordinator.state.topic"):
            config[f"{topic}.min.isr"] = str(max(1, copies - 1))
        return {**config, **self._config, **self._broker_config.get(node.node_id, {})}

    def _in_kraft(self, node: KafkaNode) -> dict[str, str]:
        return {
            "node.id": str(node.node_id),
            "process.roles": self._roles(node),
            "controller.quorum.voters": f"{self.controller.node_id}@127.0.0.1:{self.controller.ports['CONTROLLER']}",
            "controller.listener.names": "CONTROLLER",
        }

    def _in_zookeeper(self, node: KafkaNode) -> dict[str, str]:
        return {
            "broker.id": str(node.node_id),
            "zookeeper.connect": f"127.0.0.1:{self.controller.ports['CONTROLLER']}",
            "zookeeper.connection.timeout.ms": str(ZOOKEEPER_CONNECT_S * 1000),
            "zookeeper.session.timeout.ms": str(int(ZOOKEEPER_SESSION_S * 1000)),
        }

    def _roles(self, node: KafkaNode) -> str:
        roles = ["broker"] if node.node_id in self.brokers else []
        return ",".join([*roles, *(["controller"] if node is self.controller else [])])

    def _protocols(self) -> str:
        pairs = [f"{listener.name}:{listener.protocol}" for listener in self._listeners]
        return ",".join(["CONTROLLER:PLAINTEXT", *pairs])

    def _addresses(self, node: KafkaNode) -> dict[str, str]:
        own = f"CONTROLLER://127.0.0.1:{node.ports['CONTROLLER']}"
        if node.node_id not in self.brokers:
            return {"listeners": own}
        ports = {listener.name: node.ports[listener.name] for listener in self._listeners}
        seen = dict(ports)
        if self._proxy is not None:
            seen[PROXIED] = self._proxy[node.node_id].port
        listeners = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
        return {
            "listeners": ",".join([*listeners, *([own] if node is self.controller else [])]),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in seen.items()),
            "inter.broker.listener.name": MAIN,
        }

    def _wait_for_broker(self, number: int, wanted: set[int], deadline: float) -> None:
        node = self.brokers[number]
        address = f"127.0.0.1:{node.ports[MAIN]}"
        admin = _admin(address)
        known: set[int] = set()
        while time.monotonic() < deadline:
            node.check_alive()
            try:
                known = set(admin.list_topics(timeout=2.0).brokers)
            except KafkaException:
                continue
            if wanted <= known:
                return
            time.sleep(0.05)
        raise BenchFailed(
            f"Kafka broker {number} at {address} was not ready in time (it knows brokers {sorted(known)}); "
            f"its log ends:\n{node.log_text(40)}"
        )


def _zookeeper_config(node: ZooKeeperNode) -> dict[str, str]:
    return {
        "dataDir": str(node.log_dir),
        "clientPort": str(node.ports["CONTROLLER"]),
        "clientPortAddress": "127.0.0.1",
        "tickTime": str(ZOOKEEPER_TICK_MS),  # sessions live for 2 to 20 ticks
        "maxClientCnxns": "0",
        "admin.enableServer": "false",  # its jars are not among Kafka's
    }


def _admin(address: str) -> AdminClient:
    silent = logging.getLogger("twinlog.testing.kafka.admin")
    silent.setLevel(logging.CRITICAL)  # "connection refused" is what waiting looks like
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": address,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 100,
    }
    return AdminClient(settings, logger=silent)


def _wait_for_topic(address: str, name: str) -> None:
    admin = _admin(address)
    deadline = time.monotonic() + TOPIC_TIMEOUT_S
    while time.monotonic() < deadline:
        known = admin.list_topics(name, timeout=TOPIC_TIMEOUT_S).topics.get(name)
        leaders = [partition.leader for partition in known.partitions.values()] if known is not None else []
        if leaders and min(leaders) >= 0:
            return
        time.sleep(0.02)
    raise BenchFailed(f"The broker at {address} does not know topic {name} after {TOPIC_TIMEOUT_S:g} s.")
