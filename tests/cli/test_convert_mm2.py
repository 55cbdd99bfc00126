"""`twinlog convert-mm2`: files, commands, and what it refuses."""

from pathlib import Path

import pytest

from twinlog.cli.twinlog import main
from twinlog.config.mirror import MirrorConfig
from twinlog.config.properties import read_properties

FILE = r"""
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
b.security.protocol = SSL
a->b.enabled = true
a->b.topics = t\\.x
tasks.max = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of MirrorMaker 2."""
    path = tmp_path / "mm2.properties"
    path.write_text(FILE)
    return path


def test_files_and_commands(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files read back as what was converted, and the commands name them."""
    out = tmp_path / "out"
    assert main(["convert-mm2", str(file), "--out", str(out)]) == 0
    config = MirrorConfig.from_properties(read_properties(out / "a-to-b.properties"), "written")
    assert config.topics_include.matches("t.x")
    assert not config.topics_include.matches("t-x")
    assert dict(read_properties(out / "a-to-b.destination.properties")) == {"security.protocol": "SSL"}
    said = capsys.readouterr().out
    assert f"--create --mirror a-to-b --mirror-config {out / 'a-to-b.properties'}" in said
    assert r"--start --mirror a-to-b --topics 't\.x'" in said.splitlines()[2]
    assert "twinlog worker --bootstrap-server b:9092" in said
    assert f"{file}:8: tasks.max" in said


def test_no_file_is_overwritten(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run into the same folder is refused before anything is written."""
    assert main(["convert-mm2", str(file), "--out", str(tmp_path)]) == 0
    before = (tmp_path / "a-to-b.properties").read_text()
    assert main(["convert-mm2", str(file), "--out", str(tmp_path)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "a-to-b.properties").read_text() == before
