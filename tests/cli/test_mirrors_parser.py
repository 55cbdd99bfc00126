"""The flags of `kafka-mirrors` and the rules among them, in KIP-1279's words."""

import pytest

from twinlog.cli.common import UsageError
from twinlog.cli.mirrors_parser import NotAvailableYet, build, check, entries

TO = ("--bootstrap-server", ":9094")


def action(*words: str) -> str:
    """The action of a command line."""
    return check(build("kafka-mirrors").parse_args(words))


@pytest.mark.parametrize(
    "words",
    [
        ("--create", "--mirror", "m", "--mirror-config", "f"),
        ("--create", "--mirror", "m", "--remote-bootstrap-server", ":9092"),
        ("--start", "--mirror", "m", "--topics", "a,b.*", "--exclude", "b"),
        ("--add", "--mirror", "m", "--topic", "t", "--topic-id", "x", "--remote-bootstrap-server", ":9092"),
        ("--stop", "--mirror", "m", "--topics", ".*", "--timeout", "2.5"),
        ("--remove", "--mirror", "m", "--topic", "t", "--command-config", "f", "--verbose"),
        ("--list", "--json"),
        ("--describe", "--failed", "--json", "--mirror", "m"),
    ],
)
def test_what_goes_together(words: tuple[str, ...]) -> None:
    """Each action with the flags that it takes."""
    assert action(*TO, *words) == words[0].removeprefix("--")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--list",), "--bootstrap-server must be specified"),
        ((*TO, "--create", "--mirror-config", "f"), "--mirror must be specified"),
        ((*TO, "--create", "--mirror", "m"), "--mirror-config must be specified when creating a mirror"),
        ((*TO, "--start", "--mirror", "m"), "--topics must be specified when starting mirror topic(s)"),
        (
            (*TO, "--stop", "--mirror", "m", "--topics", " ,"),
            "--topics must be specified when stopping mirror topic(s)",
        ),
        ((*TO, "--stop", "--mirror", "m", "--topics", "t", "--exclude", "u"), "--exclude is only valid with --start"),
        (
            (*TO, "--stop", "--mirror", "m", "--topics", "t", "--json"),
            "--json is only supported for describing mirrors",
        ),
        ((*TO, "--list", "--failed"), "--failed is only supported for describing mirrors"),
        ((*TO, "--list", "--topics", "t"), "--topics is only valid with --start and --stop"),
        ((*TO, "--list", "--mirror-config", "f"), "--mirror-config is only valid with --create"),
        ((*TO, "--list", "--topic-id", "x"), "--topic-id is only valid with --start"),
        ((*TO, "--list", "--replication-factor", "1"), "--replication-factor is only valid with --start"),
        (
            (*TO, "--list", "--remote-bootstrap-server", ":1"),
            "--remote-bootstrap-server is only valid with --create and --start",
        ),
        (
            (*TO, "--list", "--describe"),
            "exactly one action: --create, --start, --stop, --delete, --pause, --resume, --list, or --describe",
        ),
        ((*TO, "--lis"), "Unrecognized arguments: --lis"),
        ((*TO, "--list", "--timeout", "0"), "not a number of seconds"),
        ((*TO, "--list", "--replication-factor", "no"), "not a whole number from 1 to 32767"),
    ],
)
def test_what_does_not(words: tuple[str, ...], sentence: str) -> None:
    """The sentence that KIP-1279 has, where it has one; a flag is never ignored, nor guessed from a part of it."""
    with pytest.raises(UsageError) as refused:
        action(*words)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("words", [("--pause",), ("--alter", "--config", "a=b"), ("--stop", "--dry-run")])
def test_what_is_not_there_yet(words: tuple[str, ...]) -> None:
    """Said before anything else, whatever else is missing."""
    with pytest.raises(NotAvailableYet, match="does not exist yet in this version of twinlog"):
        action(*words)


def test_lists_are_joined() -> None:
    """Flags may be repeated, elements stand once, and a comma in a quantifier separates nothing."""
    assert entries(["a, b", "b,c{1,2}"]) == ("a", "b", "c{1,2}")
    assert entries(None) == ()
