"""Which shards this worker owns, by Kafka's group membership with incremental rebalancing (KIP-429).

librdkafka's consumer runs in a thread of its own; nothing is ever consumed. A shard that is taken away is given up
before the group goes on: the callback waits, within a bound, until the worker has handed it over.

Renewed credentials are found within some seconds. A user name or password is given to the consumer as it is; for what
it reads only once (certificates, keys, stores) another consumer takes its place, but not before a connection has
failed, since that hands the shards over.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from twinlog.config.client import ClientSettings
from twinlog.config.security import OAuthSource, Security
from twinlog.errors import BadInput, RetryLater
from twinlog.state.topic import STATE_TOPIC
from twinlog.wire.oauth import TokenProvider
from twinlog.wire.stores import pem_stores

log = logging.getLogger("twinlog.membership")

GROUP = "twinlog-workers"
# A worker that died is noticed after this; 6 s is the least that a stock broker accepts.
SESSION_TIMEOUT_MS, HEARTBEAT_MS = 6_000, 1_000
POLL_S = 0.1
# For handing shards over in a rebalance; the session outlasts it, since heartbeats go on in librdkafka's own thread.
HAND_OVER_WITHIN_S = 20.0
# Leaving is one request; without a broker it must not hold up the end of the process.
LEAVE_WITHIN_S = 2.0
# Trouble that lasts is told again after this.
TELL_AGAIN_S = 30.0
# The provider itself keeps a token for as long as it is good; a renewed one is found within this.
TOKEN_KEPT_S = 60.0
# Some small files are read and compared.
RENEWED_EVERY_S = 2.0
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


class Membership:
    """A member of a group that divides the partitions of a topic; `on_gained` and `on_taken` run on the event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        on_gained: Callable[[Collection[int]], None],
        on_taken: Callable[[Collection[int]], Awaitable[None]],
        client_id: str,
        group: str = GROUP,
        topic: str = STATE_TOPIC,
    ) -> None:
        self._settings = settings
        self._connecting = librdkafka_config(settings)
        self._config: dict[str, Any] = {
            "error_cb": self._connection_failed,
            "client.id": client_id,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            "topic.metadata.refresh.interval.ms": 30_000,
            # Its own ceiling of 10 s would keep a worker out of the group for long after an outage.
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
            "logger": _librdkafka_logger(),
        }
        self._topic, self._group = topic, group
        self._on_gained = on_gained
        self._on_taken = on_taken
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="twinlog-membership", daemon=True)
        self.trouble = ""
        self._told_at = float("-inf")
        self._refused = False
        self._read: Mapping[str, object] = {}

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    async def leave(self) -> None:
        """Leave the group at once, so that the others take over without waiting for the session to end."""
        self._ending.set()
        await asyncio.to_thread(self._thread.join, LEAVE_WITHIN_S)

    async def watch(self) -> None:
        """Wait until cancelled; raises what ended the membership, without which no shard comes or goes."""
        await self._failed

    def _serve(self) -> None:
        try:
            self._belong()
        except Exception as error:  # noqa: BLE001  # the worker must hear of it, whatever it is
            self._loop.call_soon_threadsafe(
                self._fail, RetryLater(f"the group {self._group} cannot be joined: {error}")
            )

    def _fail(self, error: RetryLater) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    def _belong(self) -> None:
        consumer: Consumer | None = self._consumer(self._connecting)
        while consumer is not None:
            successor = None
            try:
                consumer.subscribe(
                    [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
                )
                successor = self._poll(consumer)
            finally:
                consumer.close()
            consumer = successor

    def _consumer(self, connecting: dict[str, Any]) -> Consumer:
        consumer = Consumer(connecting | self._config)
        self._connecting, self._read, self._refused = connecting, files_read(connecting), False
        return consumer

    def _poll(self, consumer: Consumer) -> Consumer | None:
        """Be a member until that is to end (None), or another consumer is to be it."""
        look_at = time.monotonic() + RENEWED_EVERY_S
        while not self._ending.is_set():
            message = consumer.poll(POLL_S)
            error = message.error() if message is not None else None
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its public name
                self._troubled(sentence(error, self._group))
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + RENEWED_EVERY_S
                successor = self._renewed(consumer)
                if successor is not None:
                    log.info("membership: begins anew with the credentials as they are now")
                    return successor
        return None

    def _renewed(self, consumer: Consumer) -> Consumer | None:
        """Take another login over; a consumer in its place where a connection failed and other credentials are there.

        Whatever cannot be used yet is being written; the worker's own connections say so.
        """
        try:
            security = self._settings.security_now()
            self._log_in(consumer, security.sasl_username or "", security.sasl_password or "")
            if not self._refused:
                return None
            self._refused = False  # until a connection fails again
            now = librdkafka_config(self._settings)
            if _plain(now) == _plain(self._connecting) and files_read(now) == self._read:
                return None
            return self._consumer(now)
        except (BadInput, KafkaException) as error:
            log.info("membership: the credentials as they are now cannot be used: %s", error)
            return None

    def _log_in(self, consumer: Consumer, user: str, password: str) -> None:
        now = {"sasl.username": user, "sasl.password": password}
        if user and password and any(self._connecting.get(name) != value for name, value in now.items()):
            consumer.set_sasl_credentials(user, password)
            self._connecting = self._connecting | now
            log.info("membership: took over the login as it is now")

    def _connection_failed(self, error: KafkaError) -> None:
        """What librdkafka says of its connections; what is wrong with a login or a certificate is told here."""
        self._refused = True
        if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001  # their public names
            self._troubled(str(error))

    def _troubled(self, trouble: str) -> None:
        """Say it once, and again only if it lasts: while no broker answers, librdkafka says so many times a second."""
        now = time.monotonic()
        if trouble != self.trouble or now - self._told_at >= TELL_AGAIN_S:
            self.trouble, self._told_at = trouble, now
            log.warning("membership: %s", trouble)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gained = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions]
        try:
            consumer.incremental_assign(gained)
            if gained:
                consumer.pause(gained)
        except KafkaException as error:
            log.warning("membership: %s", error)
        self._loop.call_soon_threadsafe(self._on_gained, [p.partition for p in partitions])

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            taken = asyncio.run_coroutine_threadsafe(self._hand_over([p.partition for p in partitions]), self._loop)
            try:
                taken.result(HAND_OVER_WITHIN_S)
            except FutureTimeout:
                log.warning("membership: shards could not be handed over within %.0f s", HAND_OVER_WITHIN_S)
            except Exception as error:  # noqa: BLE001  # the group must go on; the successor will fence us
                log.warning("membership: shards could not be handed over: %s", error)
        try:
            consumer.incremental_unassign(partitions)
        except KafkaException as error:
            log.info("membership: %s", error)

    async def _hand_over(self, shards: Collection[int]) -> None:
        await self._on_taken(shards)


def sentence(error: KafkaError, group: str = GROUP) -> str:
    """Say what librdkafka reports, with the right on `group` that is missing where that is it."""
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return f"{error.str()} Grant READ on GROUP {group} to the worker's principal; it is tried again by itself."
    return str(error)


def _librdkafka_logger() -> logging.Logger:
    """Where librdkafka's own lines go: nowhere unless debugging; one for each failed connection is too many."""
    logger = logging.getLogger("twinlog.librdkafka")
    logger.setLevel(logging.DEBUG if log.isEnabledFor(logging.DEBUG) else logging.CRITICAL)
    return logger


def librdkafka_config(settings: ClientSettings) -> dict[str, Any]:
    """Our connection settings in librdkafka's names."""
    security = settings.security_now()
    config: dict[str, Any] = {
        "bootstrap.servers": ",".join(f"{host}:{port}" for host, port in settings.bootstrap),
        "security.protocol": security.protocol,
    }
    return config | _tls(pem_stores(security)) | _sasl(security)


def files_read(config: Mapping[str, Any]) -> dict[str, object]:
    """What tells whether the files that a consumer reads only when it is made have been written again."""
    found: dict[str, object] = {}
    for name in _FILES:
        if name in config:
            try:
                status = Path(config[name]).stat()
            except OSError:  # away for the moment
                continue
            found[config[name]] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "oauth_cb"}


def _tls(security: Security) -> dict[str, Any]:
    if "SSL" not in security.protocol:
        return {}
    named = {
        "ssl.ca.location": security.ssl_truststore_location,
        "ssl.ca.pem": security.ssl_truststore_certificates,
        "ssl.certificate.location": security.ssl_keystore_location,
        "ssl.key.location": security.ssl_keystore_location,
        "ssl.certificate.pem": security.ssl_keystore_certificate_chain,
        "ssl.key.pem": security.ssl_keystore_key,
        "ssl.key.password": security.ssl_key_password,
    }
    config: dict[str, Any] = {name: value for name, value in named.items() if value}
    config["ssl.endpoint.identification.algorithm"] = "https" if security.ssl_check_hostname else "none"
    return config


def _sasl(security: Security) -> dict[str, Any]:
    if not security.protocol.startswith("SASL"):
        return {}
    named = {
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.sasl_username,
        "sasl.password": security.sasl_password,
        "oauth_cb": None if security.oauth is None else _token_callback(security.oauth),
    }
    return {name: value for name, value in named.items() if value}


def _token_callback(source: OAuthSource) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    """What librdkafka calls for a token.

    It returns the token, until when that may be kept (seconds since 1970), the principal and the extensions.
    """
    provider = TokenProvider(source)

    def token(_config: str) -> tuple[str, float, str, dict[str, str]]:
        return provider.token(), time.time() + TOKEN_KEPT_S, "", dict(provider.extensions())

    return token
