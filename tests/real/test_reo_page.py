"""The commands of the page about copies, run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from twinlog.testing.kafka import LocalKafka

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reo.md"
RUN = re.compile(r"<!-- run -->\n\n```sh\n(.*?)```", re.DOTALL)


@pytest.mark.soak
def test_the_ten_minutes_go_as_the_page_says(
    source: LocalKafka, destination: LocalKafka, topic: str, tmp_path: Path
) -> None:
    """Records are written, copied and counted; the status tells before where it begins, and then that nothing lags."""
    source.create_topic(topic, 4)
    destination.create_topic(f"{topic}-copy", 4)
    blocks = RUN.findall(PAGE.read_text("utf-8"))
    assert len(blocks) == 5
    script = "set -e\n" + "\n".join(blocks).replace("orders", topic)
    own = {
        "SRC": source.bootstrap,
        "DST": destination.bootstrap,
        "APPLICATION_NAME": f"{topic}-app",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    told = subprocess.run(
        ["/usr/bin/env", "bash", "-c", script],
        env=os.environ | own,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        timeout=90,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("nothing copied yet, begins at 0") == 4
    assert re.findall(rf"^{topic} +\d +(\d+) +(\d+) +0$", told.stdout, re.MULTILINE), told.stdout
    assert "10000 records, 10000 different ones" in told.stdout
    for line in ("copies 4 partitions", f"{topic} to {topic}-copy from 0:0, 1:0, 2:0, 3:0", "ends; positions"):
        assert line in told.stderr, told.stderr
