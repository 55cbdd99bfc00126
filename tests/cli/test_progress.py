"""What a waiting command shows on a terminal."""

import os
import pty
import select
import subprocess
import sys
import time

WAITS = """
import sys, time
from twinlog.cli import progress
progress.AFTER_S = 0.2
with progress.waiting("waiting for [the] cluster"):
    time.sleep({seconds})
    print("Started 1 topic")
    print("a note", file=sys.stderr)
    time.sleep({seconds})
print("the end")
"""


def _on_a_terminal(seconds: float) -> tuple[str, str]:
    """What a program wrote to its terminal on stderr, and to a pipe on stdout."""
    ours, theirs = pty.openpty()
    code = WAITS.format(seconds=seconds)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as running:
        os.close(theirs)
        seen, deadline = b"", time.monotonic() + 30
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.5)[0]:
                continue
            try:
                data = os.read(ours, 4096)
            except OSError:
                break
            if not data:
                break
            seen += data
        out, _ = running.communicate(timeout=10)
    os.close(ours)
    return seen.decode(), out.decode()


def test_a_long_wait_is_shown_and_leaves_no_trace_in_the_output() -> None:
    """On stderr with the seconds; what is printed meanwhile goes where it belongs, on a line of its own."""
    shown, out = _on_a_terminal(1.0)
    assert "waiting for [the] cluster" in shown
    assert "0:00:0" in shown
    assert out == "Started 1 topic\nthe end\n"
    assert "\x1b[2Ka note" in shown.replace("\x1b[?25h", "").replace("\x1b[1A", "").replace("\r", "")


def test_a_short_wait_is_not_shown() -> None:
    """A line that flashes up tells nobody anything."""
    shown, out = _on_a_terminal(0.0)
    assert shown.replace("\r", "") == "a note\n"
    assert out == "Started 1 topic\nthe end\n"


def test_nothing_is_shown_where_stderr_is_a_pipe() -> None:
    """Scripts see sentences only."""
    done = subprocess.run(
        [sys.executable, "-c", WAITS.format(seconds=0.6)], capture_output=True, text=True, check=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("Started 1 topic\nthe end\n", "a note\n")
