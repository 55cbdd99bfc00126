"""The command `twinlog verify`: its arguments, its output, its exit codes. What it compares is tested elsewhere."""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from twinlog.admin.starts import chosen_starts
from twinlog.cli import verify as command
from twinlog.errors import Unreachable
from twinlog.verify.partition import Meter
from twinlog.verify.report import Bounds, PartitionReport, Report
from twinlog.verify.run import Question

REQUIRED = ["verify", "--source", "a:1", "--destination", "b:2", "--topic", "orders"]


def parse(*more: str) -> argparse.Namespace:
    """Parse a command line."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return parser.parse_args([*REQUIRED, *more])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """The questions asked; the answer is one identical partition."""
    questions: list[Question] = []

    async def answer(question: Question, _meter: Meter | None = None) -> Report:
        questions.append(question)
        await asyncio.sleep(0.05)
        if question.topic == "away":
            raise Unreachable("nobody there")
        ends = Bounds(0, 5, 5)
        part = PartitionReport(0, ends, ends, error="a reason" if question.topic == "broken" else None)
        if question.topic == "lagging":
            part.differences.append(command_finding())
        return Report(question.topic, [part], sampled=question.sample, seconds=1.0)

    monkeypatch.setattr(command, "verify", answer)
    return questions


def command_finding() -> Any:
    """A difference of a whole partition."""
    from twinlog.verify.report import Finding  # noqa: PLC0415  # only this answer needs it

    return Finding("end", "end differs")


def test_arguments_become_a_question(asked: list[Question], capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, and the defaults."""
    args = parse("--partitions", "3,0", "--sample", "7", "--timeout", "2.5")
    assert args.run(args) == 0
    assert asked[0].source.bootstrap == (("a", 1),)
    assert asked[0].destination.bootstrap == (("b", 2),)
    assert (asked[0].partitions, asked[0].sample, asked[0].timeout_s) == (frozenset({0, 3}), 7, 2.5)
    assert capsys.readouterr().out.startswith("orders: identical in what was sampled")
    assert parse().run(parse()) == 0
    assert (asked[1].partitions, asked[1].sample, asked[1].timeout_s) == (None, None, 30.0)


def test_chosen_starts_are_looked_up_unless_they_are_given(asked: list[Question]) -> None:
    """By default the destination's state knows them."""
    parse().run(parse())
    assert asked[0].starts is chosen_starts
    args = parse("--from", "0:60,2:7")
    args.run(args)
    starts = asked[1].starts
    nobody: Any = None
    assert starts is not None
    assert asyncio.run(starts(nobody, nobody, "orders")) == {0: 60, 2: 7}  # type: ignore[arg-type] # a coroutine


@pytest.mark.parametrize(
    "wrong",
    [
        ("--partitions", "1,x"),
        ("--partitions", "-1"),
        ("--partitions="),
        ("--from", "0"),
        ("--from", "0:-1"),
        ("--from=",),
        ("--sample", "-1"),
        ("--sample", "many"),
        ("--timeout", "0"),
        ("--timeout", "nan"),
        ("--timeout", "soon"),
    ],
)
def test_a_bad_argument_is_refused(wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, and a sentence that names it."""
    with pytest.raises(SystemExit) as ended:
        parse(*([wrong] if isinstance(wrong, str) else wrong))
    assert ended.value.code == 2
    assert "error: argument" in capsys.readouterr().err


@pytest.mark.parametrize(("topic", "code"), [("orders", 0), ("lagging", 1), ("broken", 2), ("away", 2)])
@pytest.mark.usefixtures("asked")
def test_exit_codes(topic: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """As documented; with --json stdout holds exactly one object in every case."""
    args = parse("--topic", topic, "--json")
    assert args.run(args) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["topic"] == topic
    assert json.loads(out)["identical"] is {0: True, 1: False, 2: None}[code]
    assert not err
    args = parse("--topic", topic)
    assert args.run(args) == code
    assert topic in "".join(capsys.readouterr())


def test_client_properties_come_from_files(
    asked: list[Question], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line's brokers win; a key without meaning is named; a file that is not there ends it with 2."""
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=elsewhere:9\nclient.id=me\nsurprise=1\n", encoding="utf-8")
    args = parse("--source-config", str(file))
    assert args.run(args) == 0
    assert (asked[0].source.bootstrap, asked[0].source.client_id) == ((("a", 1),), "me")
    assert "surprise" in capsys.readouterr().err
    args = parse("--destination-config", str(tmp_path / "none"))
    assert args.run(args) == 2
    assert "none" in capsys.readouterr().err


def test_progress_without_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, so that stdout holds the report alone."""

    async def slow(question: Question, meter: Meter | None = None) -> Report:
        assert meter is not None
        meter.doing, meter.offsets, meter.offsets_done, meter.bytes = "comparing", 200, 50, 3_000_000
        await asyncio.sleep(0.1)
        return Report(question.topic)

    monkeypatch.setattr(command, "verify", slow)
    monkeypatch.setattr(command, "LINE_S", 0.01)
    args = parse()
    assert args.run(args) == 0
    out, err = capsys.readouterr()
    assert "comparing: 25%, 3 MB" in err
    assert "comparing" not in out
