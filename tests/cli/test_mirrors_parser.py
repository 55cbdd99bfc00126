"""The flags of `kafka-mirrors` and the rules among them, in KIP-1279's words."""

import pytest

from twinlog.cli.common import UsageError
from twinlog.cli.mirrors_parser import build, check, entries, settings

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
        ("--stop", "--mirror", "m", "--all-topics", "--check-lag", "--dry-run"),
        ("--start", "--mirror", "m", "--topics", "t", "--on-divergence", "recreate", "--salvage-dir", "d"),
        ("--start", "--mirror", "m", "--topics", "t", "--on-divergence", "refuse", "--no-loop-check"),
        ("--list", "--source-cluster-id", "x", "--states", "STOPPED"),
        ("--describe", "--source-cluster-id", "x"),
        ("--list", "--json"),
        ("--describe", "--failed", "--json", "--mirror", "m"),
        ("--describe", "--failed", "--topics", "t.*"),
        ("--describe", "--skipped", "--json"),
        ("--describe", "--configs", "--json", "--mirror", "m", "--source-cluster-id", "x"),
        ("--pause", "--mirror", "m", "--all-topics"),
        ("--resume", "--mirror", "m", "--topics", "t", "--dry-run"),
        ("--recover", "--mirror", "m", "--topics", "t"),
        ("--alter", "--mirror", "m", "--config", "a=b", "--delete-config", "c"),
        ("--alter", "--mirror", "m", "--mirror-config", "f"),
        ("--delete", "--mirror", "m", "--dry-run"),
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
        ((*TO, "--list", "--topics", "t"), "--topics is only valid with --start, --stop, --pause, --resume"),
        ((*TO, "--list", "--all-topics"), "--all-topics is only valid with --start, --stop"),
        ((*TO, "--list", "--dry-run"), "--dry-run is only valid with an action that changes something"),
        ((*TO, "--list", "--config", "a=b"), "--config and --delete-config are only valid with --alter"),
        ((*TO, "--alter", "--mirror", "m"), "--mirror-config must be specified when altering a mirror"),
        ((*TO, "--describe", "--failed", "--skipped"), "--skipped and --failed exclude each other"),
        ((*TO, "--describe", "--failed", "--configs"), "--failed and --configs exclude each other"),
        (
            (*TO, "--describe", "--configs", "--topics", "t"),
            "--topics chooses partitions, and --configs is about whole",
        ),
        ((*TO, "--list", "--configs"), "--configs is only supported for describing mirrors"),
        ((*TO, "--describe", "--config", "a=b"), "only valid with --alter; --describe --configs shows configs"),
        (
            (*TO, "--pause", "--mirror", "m", "--all-topics", "--topics", "t"),
            "--all-topics and --topics exclude each other",
        ),
        ((*TO, "--recover", "--mirror", "m"), "--topics must be specified when recovering mirror topic(s)"),
        ((*TO, "--pause", "--mirror", "m", "--topics", "t", "--check-lag"), "--check-lag is only valid with --stop"),
        ((*TO, "--stop", "--mirror", "m", "--topics", "t", "--no-loop-check"), "--no-loop-check is only valid with"),
        (
            (*TO, "--start", "--mirror", "m", "--topics", "t", "--on-divergence", "recreate"),
            "--on-divergence recreate and --salvage-dir go together",
        ),
        (
            (*TO, "--start", "--mirror", "m", "--topics", "t", "--salvage-dir", "d"),
            "--on-divergence recreate and --salvage-dir go together",
        ),
        ((*TO, "--describe", "--states", "PAUSED"), "--states is only valid with --list"),
        ((*TO, "--list", "--mirror-config", "f"), "--mirror-config is only valid with --create and --alter"),
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
        ((*TO, "--lis"), "Unrecognized arguments: --lis; perhaps --list was meant"),
        ((*TO, "--stop", "--mirror", "m", "--topcs", "t"), "--topcs; perhaps --topics was meant"),
        ((*TO, "--list", "--timeout", "0"), "not a number of seconds"),
        ((*TO, "--list", "--replication-factor", "no"), "not a whole number from 1 to 32767"),
    ],
)
def test_what_does_not(words: tuple[str, ...], sentence: str) -> None:
    """The sentence that KIP-1279 has, where it has one; a flag is never ignored, nor guessed from a part of it."""
    with pytest.raises(UsageError) as refused:
        action(*words)
    assert sentence in str(refused.value)


def test_all_topics_is_a_regex() -> None:
    """`--all-topics` means every name, in every action on topics."""
    given = build("kafka-mirrors").parse_args([*TO, "--stop", "--mirror", "m", "--all-topics"])
    assert check(given) == "stop"
    assert entries(given.topics) == (".*",)


def test_configs_to_set_are_read_as_kafka_configs_reads_them() -> None:
    """A list stands in brackets, and its commas separate nothing else."""
    assert settings(["a=1,b=[x,y],c=", "d=e=f"]) == {"a": "1", "b": "x,y", "c": "", "d": "e=f"}
    with pytest.raises(UsageError, match="'nothing' is not of the form key=value"):
        settings(["a=1,nothing"])


def test_lists_are_joined() -> None:
    """Flags may be repeated, elements stand once, and a comma in a quantifier separates nothing."""
    assert entries(["a, b", "b,c{1,2}"]) == ("a", "b", "c{1,2}")
    assert entries(None) == ()
