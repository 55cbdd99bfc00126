"""ACLs, and the rules of `mirror.acls.include`: which of the source's a mirror copies (KIP-1279, ACL sync)."""

from dataclasses import dataclass

from twinlog.config.patterns import Patterns
from twinlog.errors import BadInput

MAX_RULES = 1_000
"""Each ACL is held against each rule at every refresh."""

RESOURCE_TYPES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
OPERATIONS = (
    *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS"),
    *("ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
PERMISSIONS = ("ALLOW", "DENY")
LITERAL, PREFIXED = "LITERAL", "PREFIXED"
WILDCARD = "*"
"""As a literal resource name: every resource of the type."""
ANYONE = "User:*"
ANY_HOST = "*"
_FORM = "resourceType;resourceName;operation;permissionType;principal"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL of a cluster, its fields named as Kafka's enums are (`org.apache.kafka.common.acl.AclBinding`)."""

    resource_type: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        """As people read it: who, whether, what, on what, and from where if not from anywhere."""
        kind = "prefix " if self.pattern == PREFIXED else ""
        host = "" if self.host == ANY_HOST else f" from {self.host}"
        where = f"{self.resource_type} {kind}{self.name}"
        return f"{self.principal} {self.permission} {self.operation} on {where}{host}"

    @property
    def allows(self) -> bool:
        """Whether it grants something, rather than taking it away."""
        return self.permission == "ALLOW"

    @property
    def everywhere(self) -> bool:
        """Whether it is about every resource of its type."""
        return self.pattern == LITERAL and self.name == WILDCARD

    def covers(self, resource_type: str, name: str) -> bool:
        """Say whether it is about one resource."""
        if self.resource_type != resource_type:
            return False
        return name.startswith(self.name) if self.pattern == PREFIXED else self.name in {name, WILDCARD}


@dataclass(frozen=True, slots=True)
class AclRule:
    """One rule; None stands for `*`, anything. Name and principal are expressions that match the whole text."""

    resource_type: str | None = None
    name: Patterns | None = None
    operation: str | None = None
    permission: str | None = None
    principal: Patterns | None = None

    @property
    def names_everything(self) -> bool:
        """Whether it asks for ACLs on the resource name `*` by giving an expression for it."""
        return self.name is not None and self.name.matches(WILDCARD)

    def admits(self, acl: Acl) -> bool:
        """Say whether an ACL passes this rule."""
        return self.passes(
            resource_type=acl.resource_type,
            name=acl.name,
            operation=acl.operation,
            permission=acl.permission,
            principal=acl.principal,
        )

    def passes(self, *, resource_type: str, name: str, operation: str, permission: str, principal: str) -> bool:
        """Say whether an ACL, its fields named as Kafka's enums are, passes this rule."""
        return (
            self.resource_type in {None, resource_type}
            and self.operation in {None, operation}
            and self.permission in {None, permission}
            and (self.name is None or self.name.matches(name))
            and (self.principal is None or self.principal.matches(principal))
        )


def denial(topic: str) -> Acl:
    """Return the ACL by which nobody but super users may write to a topic."""
    return Acl("TOPIC", topic, LITERAL, ANYONE, ANY_HOST, "WRITE", "DENY")


def parse_acl_rules(text: str) -> tuple[AclRule, ...]:
    """Parse comma-separated rules; trailing fields may be left out. ValueError says which rule is wrong, and why."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MAX_RULES:
        raise ValueError(f"must have at most {MAX_RULES} rules")
    return tuple(_rule(part) for part in parts)


def _rule(text: str) -> AclRule:
    fields = [field.strip() for field in text.split(";")]
    if len(fields) > 5:
        raise ValueError(f"must consist of rules of at most five fields, {_FORM}; {text!r} has {len(fields)}")
    fields += ["*"] * (5 - len(fields))
    return AclRule(
        _word(fields[0], RESOURCE_TYPES, text),
        _expression(fields[1], text),
        _word(fields[2], OPERATIONS, text),
        _word(fields[3], PERMISSIONS, text),
        _expression(fields[4], text),
    )


def _word(field: str, words: tuple[str, ...], rule: str) -> str | None:
    if field in {"*", ""}:
        return None
    if field.upper() not in words:
        raise ValueError(f"must name what Kafka knows; in the rule {rule!r}, {field!r} is none of {', '.join(words)}")
    return field.upper()


def _expression(field: str, rule: str) -> Patterns | None:
    if field in {"*", ""}:
        return None
    try:
        return Patterns((field,))
    except BadInput as problem:
        raise ValueError(f"must be valid; in the rule {rule!r}, {str(problem).removesuffix('.')}") from None
