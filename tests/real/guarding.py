"""Two clusters with authorizers, on which one principal has exactly the rights that the documentation lists."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from twinlog.testing.kafka import Listener, LocalKafka

LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LISTENER: Final = "SASL"
USER: Final = "twin"
STRANGER: Final = "stranger"
PASSWORD: Final = "secret"
CALL_S: Final = 30.0
KINDS: Final = {
    "TOPIC": ResourceType.TOPIC,
    "GROUP": ResourceType.GROUP,
    "CLUSTER": ResourceType.BROKER,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True, order=True)
class Right:
    """One operation on one resource; a name that ends with `*` is a prefix."""

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"

    def binding(self) -> AclBinding:
        """As an ACL that allows it."""
        prefixed = self.name.endswith("*") and len(self.name) > 1
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        name = self.name.removesuffix("*") if prefixed else self.name
        operation, allow = AclOperation[self.operation], AclPermissionType.ALLOW
        return AclBinding(KINDS[self.kind], name, pattern, f"User:{USER}", "*", operation, allow)

    def filter(self) -> AclBindingFilter:
        """As a filter that finds that ACL alone."""
        one = self.binding()
        words = (one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation)
        return AclBindingFilter(*words, one.permission_type)


@dataclass(frozen=True)
class Guarded:
    """A cluster that checks rights, and the one principal that it knows."""

    kafka: LocalKafka

    @property
    def bootstrap(self) -> str:
        """Where that principal logs in."""
        return self.kafka.bootstrap_of(LISTENER)

    def grant(self, *rights: Right) -> None:
        """Allow it these."""
        admin = self._admin  # its calls end with it
        for future in admin.create_acls([right.binding() for right in rights]).values():
            future.result(CALL_S)

    def revoke(self, *rights: Right) -> None:
        """Take these away."""
        admin = self._admin
        for future in admin.delete_acls([right.filter() for right in rights]).values():
            assert future.result(CALL_S), rights

    @contextmanager
    def without(self, right: Right) -> Iterator[None]:
        """Take one right away for a while."""
        self.revoke(right)
        try:
            yield
        finally:
            self.grant(right)

    @property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap})


def login_properties(password: str = PASSWORD) -> str:
    """Client properties of that principal; a password by reference is for a mirror."""
    jaas = f'sasl.jaas.config={LOGIN} username="{USER}" password="{password}";'
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n{jaas}\n"


def login_file(folder: Path) -> str:
    """The same as a file."""
    path = folder / "login.properties"
    path.write_text(login_properties())
    return str(path)


@contextmanager
def guarded_kafka(config: Mapping[str, str] | None = None) -> Iterator[Guarded]:
    """A cluster of one broker; its plain listener is for the tests, and may do all."""
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (USER, STRANGER))
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f"{LOGIN} {users};",
        **(config or {}),
    }
    with LocalKafka(config=settings, listeners=[Listener(LISTENER, "SASL_PLAINTEXT")]) as kafka:
        yield Guarded(kafka)
