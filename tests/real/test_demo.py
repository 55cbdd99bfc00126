"""The demo, as users run it: elsewhere than in a terminal it ends by itself, in one it runs until Ctrl-C."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

COMMAND = [sys.executable, "-m", "twinlog", "demo"]
WITHIN_S = 150
ENDS_WITHIN_S = 30
TEST_TIMEOUT_S = 200
GONE_WITHIN_S = 10


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An empty folder for all temporary files of the demo."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def environment(scratch: Path, **more: str) -> dict[str, str]:
    """The demo's environment: temporary files in `scratch`."""
    return {**os.environ, "TMPDIR": str(scratch), **more}


def left_behind(scratch: Path) -> tuple[list[str], list[Path]]:
    """Processes whose command line names the scratch folder, and files in it, once they have had time to go."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while True:
        processes = [" ".join(p.info["cmdline"]) for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"]]
        found = [line for line in processes if str(scratch) in line], list(scratch.iterdir())
        if found == ([], []) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_demo_ends_by_itself_without_a_terminal(scratch: Path) -> None:
    """It mirrors, proves that both sides agree, exits with 0, and leaves neither a process nor a file."""
    done = subprocess.run(
        COMMAND, env=environment(scratch), capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert re.search(r"^Identical: 3 partitions, [\d,]+ offsets", done.stdout, re.MULTILINE), done.stdout
    for command in ("--create --mirror demo", "--start --mirror demo", "worker --bootstrap-server", "verify --source"):
        assert re.search(rf"^\$ .*{command}", done.stdout, re.MULTILINE), command
    assert left_behind(scratch) == ([], [])


@contextmanager
def in_terminal(scratch: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The demo with a terminal of its own: the process, and the terminal's other end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        COMMAND, env=environment(scratch), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def read_until(terminal: int, text: str) -> str:
    """What the demo shows until `text` is among it, or until it ends."""
    shown = ""
    while text not in shown:
        try:
            shown += os.read(terminal, 65_536).decode("utf-8", "replace")
        except OSError:  # the other end is closed: the demo has ended
            break
    return shown


@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_demo_in_a_terminal_runs_until_ctrl_c(scratch: Path) -> None:
    """It says what to try next, goes on until SIGINT, exits with 0, and leaves neither a process nor a file."""
    with in_terminal(scratch) as (process, terminal):
        shown = read_until(terminal, "Ctrl-C ends everything.")
        assert "Identical: 3 partitions" in shown, shown
        assert "--stop --mirror demo" in shown
        time.sleep(2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = read_until(terminal, "never shown")
        assert process.wait(ENDS_WITHIN_S) == 0, rest
    assert left_behind(scratch) == ([], [])


@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_demo_that_is_killed_leaves_nothing(scratch: Path) -> None:
    """After SIGKILL in the middle of the mirroring, brokers, worker and files are gone all the same."""
    with in_terminal(scratch) as (process, terminal):
        read_until(terminal, "Meanwhile a producer")
        process.kill()
        process.wait()
    assert left_behind(scratch) == ([], [])


def test_demo_without_kafka_says_so(scratch: Path) -> None:
    """Where Kafka cannot be fetched it exits with 1 and a sentence on stderr."""
    nowhere = environment(scratch, XDG_CACHE_HOME=str(scratch / "cache"), TWINLOG_MAVEN_REPOSITORY="http://127.0.0.1:9")
    done = subprocess.run(COMMAND, env=nowhere, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 1
    assert re.match(r"Error: Kafka 4\S+ could not be fetched", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
