"""Exit codes and sentences: whatever ends a command, no traceback unless asked for."""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from twinlog.cli import common
from twinlog.cli.common import Parser, ShowVersion, UsageError, guarded, seconds, settings_of
from twinlog.errors import BadInput


def run(capsys: pytest.CaptureFixture[str], error: BaseException | None, **options: Any) -> tuple[int, str]:
    """Exit code and stderr of a command that ends so."""

    def command() -> int:
        if error is not None:
            raise error
        return 7

    settings: dict[str, Any] = {"prefix": "Error: ", "program": "x", "verbose": False} | options
    code = guarded(command, **settings)
    return code, capsys.readouterr().err


def test_each_ending_has_its_code_and_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The command's own code; the sentence and where the flags are told; the error's sentence; 130 for Ctrl-C."""
    assert run(capsys, None) == (7, "")
    assert run(capsys, UsageError("Wrong.")) == (1, "Wrong.\nx --help shows the flags.\n")
    assert run(capsys, UsageError("Wrong.", program="x y")) == (1, "Wrong.\nx y --help shows the flags.\n")
    assert run(capsys, BadInput("Bad.")) == (1, "Error: Bad.\n")
    assert run(capsys, BadInput("Bad."), failure=2) == (2, "Error: Bad.\n")
    assert run(capsys, KeyboardInterrupt()) == (130, "")


def test_what_nobody_expected_is_a_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    """With --verbose the traceback stands before it."""
    code, said = run(capsys, ZeroDivisionError("by zero"))
    assert (code, said) == (1, "Error: unexpected ZeroDivisionError: by zero. --verbose shows where.\n")
    code, said = run(capsys, BadInput("Bad."), verbose=True)
    assert said.startswith("Traceback")
    assert said.endswith("Error: Bad.\n")


def test_a_reader_that_has_gone_ends_a_command_quietly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with `| head`: nothing on stderr, nothing left to be flushed."""
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert guarded(_gone, prefix="", program="x", verbose=False) == 1
        assert os.path.samestat(os.fstat(out.fileno()), Path(os.devnull).stat())


def _gone() -> int:
    raise BrokenPipeError


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf", "1e9"])
def test_seconds_are_bounded(text: str) -> None:
    """Above 0, at most a day."""
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)
    assert seconds("0.5") == 0.5


STRAY = "a list has commas without blanks, and what a shell would expand stands in quotes"


def parser() -> Parser:
    """A program with a flag of its own and a subcommand with another, which it needs."""
    parser = Parser(prog="x")
    parser.add_argument("--long-flag", action="store_true")
    commands = parser.add_subparsers(parser_class=Parser)
    commands.add_parser("run").add_argument("--topic", required=True)
    return parser


@pytest.mark.parametrize(
    ("words", "sentence", "program"),
    [
        (["--lo"], "Unrecognized arguments: --lo", "x"),
        (["--long-flags"], "Unrecognized arguments: --long-flags; perhaps --long-flag was meant", "x"),
        (["run", "--topc=t"], "Unrecognized arguments: --topc=t; perhaps --topic was meant", "x run"),
        (["run", "--frobnicate", "1"], "Unrecognized arguments: --frobnicate", "x run"),
        (["run", "--long-flag"], "Unrecognized arguments: --long-flag", "x run"),
        (["run"], "The following arguments are required: --topic", "x run"),
        (["run", "--topic", "a,", "b"], f"Unrecognized arguments: b; {STRAY}", "x run"),
    ],
)
def test_a_flag_that_does_not_exist_is_named_with_the_one_that_was_meant(
    words: list[str], sentence: str, program: str
) -> None:
    """No exit code 2, no abbreviations; a subcommand guesses among its own flags, before it misses one."""
    with pytest.raises(UsageError) as refused:
        parser().parse_args(words)
    assert (str(refused.value), refused.value.program) == (sentence, program)


def test_version_is_printed_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the package is not installed."""
    parser = Parser(prog="x")
    parser.add_argument("--version", action=ShowVersion)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("twinlog ")


def test_settings_come_from_the_command_line_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The addresses of the command line win; keys without meaning are named."""
    assert settings_of(":9094", None).bootstrap == (("localhost", 9094),)
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=other:1\nrequest.timeout.ms=5\nunheard.of=1\n")
    settings = settings_of("a:2", str(file))
    assert (settings.bootstrap, settings.request_timeout_ms) == ((("a", 2),), 5)
    assert "unheard.of" in capsys.readouterr().err


def test_the_librarys_log_stays_off_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless asked for."""
    asked: list[object] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **given: asked.append(given["level"]))
    own = logging.getLogger("twinlog")
    before = list(own.handlers)
    common.quiet(verbose=False)
    assert [type(h) for h in own.handlers if h not in before] == [logging.NullHandler]
    own.handlers[:] = before
    common.quiet(verbose=True)
    assert asked == [logging.DEBUG]


def test_arguments_default_to_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As console scripts call it."""
    monkeypatch.setattr(sys, "argv", ["x", "a"])
    assert common.arguments(None) == ["a"]
    assert common.arguments(["b"]) == ["b"]
