"""The demo's processes."""

import sysconfig
from pathlib import Path

import pytest

from twinlog.cli.demo.programs import Background, DemoFailed, finish, program, shown_path, typed


def test_program_that_is_not_installed_is_named() -> None:
    """What is missing beside this Python is named, with what to do."""
    with pytest.raises(DemoFailed, match="no-such-program does not exist: install twinlog"):
        program("no-such-program")


def test_shown_path_is_relative_where_that_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path below the current folder is shown as one would type it there."""
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "bin" / "twinlog") == "bin/twinlog"
    assert shown_path(Path("/elsewhere/twinlog")) == "/elsewhere/twinlog"


def test_typed_quotes_what_a_shell_would_take_apart() -> None:
    """A printed command can be copied into a shell."""
    assert typed(["kafka-mirrors", "--topics", "a b"]) == "kafka-mirrors --topics 'a b'"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that prints a line and ends with 3, where installed programs are looked for."""
    path = tmp_path / "said"
    path.write_text("import sys\nprint('last words')\nsys.exit(3)\n", "utf-8")
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    return path


def test_finish_returns_what_a_program_printed(script: Path) -> None:
    """Output and exit code come back as they are."""
    done = finish([script.name])
    assert (done.stdout, done.returncode) == ("last words\n", 3)


def test_background_program_that_ended_is_told_with_its_last_words(script: Path, tmp_path: Path) -> None:
    """A worker that is gone ends the demo, with its exit code and the end of its log."""
    background = Background([script.name], tmp_path / "log")
    background._process.wait(20)
    with pytest.raises(DemoFailed, match="`said` ended with 3; its last words: last words"):
        background.check()
    background.end()
