"""The rules of `mirror.acls.include`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.config.acls import MAX_RULES, AclRule, parse_acl_rules
from twinlog.config.patterns import Patterns

ACL = {
    "resource_type": "TOPIC",
    "name": "orders-eu",
    "operation": "READ",
    "permission": "ALLOW",
    "principal": "User:alice",
}


def passes(rules: str, **changed: str) -> bool:
    """Say whether an ACL passes any of the rules."""
    return any(rule.passes(**(ACL | changed)) for rule in parse_acl_rules(rules))


def test_a_star_is_everything() -> None:
    """The default rule lets every ACL pass; no rule lets none."""
    assert parse_acl_rules("*") == (AclRule(),)
    assert passes("*")
    assert not passes("")


def test_fields_narrow_and_may_be_left_out_at_the_end() -> None:
    """Each field must agree; name and principal are expressions that match whole texts."""
    rule = "topic;orders-.*;read;allow;User:(alice|bob)"
    assert passes(rule)
    assert not passes(rule, resource_type="GROUP")
    assert not passes(rule, name="my-orders-eu")
    assert not passes(rule, operation="WRITE")
    assert not passes(rule, permission="DENY")
    assert not passes(rule, principal="User:eve")
    assert passes("GROUP, TOPIC;orders-.*;*;DENY,*;orders-eu")
    assert parse_acl_rules("TOPIC;;READ") == (AclRule("TOPIC", None, "READ"),)
    assert parse_acl_rules("*;a") == (AclRule(name=Patterns(("a",))),)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("TOPICS", "'TOPICS' is none of TOPIC, GROUP"),
        ("*;*;LOOK", "'LOOK' is none of ALL, READ"),
        ("*;*;*;MAYBE", "'MAYBE' is none of ALLOW, DENY"),
        ("*;a(", r"in the rule '\*;a\(', the pattern 'a\(' is not valid at character 2"),
        ("a;b;c;d;e;f", "at most five fields"),
        ("*," * (MAX_RULES + 1), "at most 1000 rules"),
    ],
)
def test_a_wrong_rule_is_quoted_with_the_reason(text: str, complaint: str) -> None:
    """Each mistake names its rule and what would be allowed."""
    with pytest.raises(ValueError, match=complaint):
        parse_acl_rules(text)


@given(st.text(alphabet="TOPIC;,*(.a"))
def test_any_text_is_rules_or_a_value_error(text: str) -> None:
    """No text makes the parser fail in another way."""
    complaint = "must"
    try:
        parse_acl_rules(text)
    except ValueError as problem:
        complaint = str(problem)
    assert complaint.startswith("must")
