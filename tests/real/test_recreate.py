"""A diverged topic is recreated: its tail is saved as a file first, whatever interrupts the command."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.real.commanding import topic_info
from tests.real.mirrored_logs import visible, write, write_transaction
from tests.real.ways import LEVEL_S, RECORDS, Way, assert_verified, end

from twinlog.admin import recreate, starting
from twinlog.cli import twinlog
from twinlog.errors import RetryLater
from twinlog.wire.cluster import Cluster
from twinlog.wire.ops import create_topic, delete_topics


def diverged(ways: tuple[Way, Way], topic: str) -> Way:
    """Fail over at offset 50, then write 10 + 3 aborted records to the old source and 30 to the new one."""
    there, back = ways
    here, far = there.commands.source, there.commands.destination
    here.create_topic(topic, 2, config={"retention.ms": "-1"})
    write(here, topic, RECORDS)
    there.start(topic)
    there.stop(topic)
    write(here, topic, RECORDS[:10])
    write_transaction(here, topic, RECORDS[:3], commit=False)
    write(far, topic, RECORDS[10:40])
    return back


def recreating(way: Way, topic: str, folder: Path, *more: str) -> tuple[str, ...]:
    """The command that recreates."""
    asked = ("--start", "--topics", topic, "--mirror", way.mirror)
    return (*asked, "--on-divergence", "recreate", "--salvage-dir", str(folder), *more)


def test_the_tail_is_saved_and_the_topic_mirrored_anew(
    ways: tuple[Way, Way], topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run tells it and does nothing; the file then gives the committed records back, in their order."""
    back = diverged(ways, topic)
    here, far = back.commands.destination, back.commands.source
    folder = tmp_path / "tails"
    folder.mkdir()
    tail = f"{topic}-0 offsets 50 to 63 (10 committed records)"
    before = topic_info(here, topic).id
    lost = visible(here, topic)
    said = back.commands.done(*recreating(back, topic, folder, "--dry-run"))
    assert f"Would save {tail} in {folder}/{topic}-" in said
    assert f"delete topic {topic} at the destination and create it anew" in said
    assert f"Would start: {topic}" in said
    assert (list(folder.iterdir()), topic_info(here, topic).id) == ([], before)
    said = back.commands.done(*recreating(back, topic, folder))
    (path,) = folder.iterdir()
    assert said.startswith(f"Saved {tail} in {path}, and deleted topic {topic} at the destination\nStarted 1 ")
    back.wait_level(topic)
    assert topic_info(here, topic).id != before
    assert_verified(far, here, topic)
    here.create_topic(f"{topic}-back", 1, config={"retention.ms": "-1"})
    assert twinlog.main(["salvage", "--list", str(path)]) == 0
    assert "offsets 50 to 63: 10 committed, 3 aborted, 0 undecided records" in capsys.readouterr().out
    to = ["--bootstrap-server", here.bootstrap, "--topic", f"{topic}-back"]
    assert twinlog.main(["salvage", "--produce", str(path), *to]) == 0
    given = visible(here, f"{topic}-back")
    assert [given[at] for at in range(10)] == [lost[at] for at in range(50, 60)]


def test_an_interrupted_command_is_repeated_and_goes_on(
    ways: tuple[Way, Way], topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off before the file, behind it, behind the delete, behind the creation: one file, and a whole twin."""
    back = diverged(ways, topic)
    here, far = back.commands.destination, back.commands.source
    words = recreating(back, topic, tmp_path, "--start-at", "latest")
    first = topic_info(here, topic).id

    def broken(module: Any, name: str) -> str:
        """Run the command with one step of it failing; returns what it said."""
        with monkeypatch.context() as patch:
            patch.setattr(module, name, _broken_off)
            said = back.commands(*words)
        assert said.code == 1
        return said.out + said.err

    broken(recreate.salvage, "save")
    assert (list(tmp_path.glob("*.tail")), topic_info(here, topic).id) == ([], first)
    broken(recreate, "delete_topic_by_id")
    (path,) = tmp_path.glob("*.tail")
    saved = path.read_bytes()
    assert topic_info(here, topic).id == first
    assert f" in {path}, and deleted topic {topic} at the destination" in broken(starting.sync_topics, "create")
    assert topic_info(here, topic).error == 3
    broken(starting.beginnings, "chosen")
    made = topic_info(here, topic).id
    assert made != first
    assert "Started 1 " in back.commands.done(*words)
    back.wait_level(topic)
    assert (topic_info(here, topic).id, path.read_bytes()) == (made, saved)
    assert list(tmp_path.glob("*.tail")) == [path]
    assert end(here, topic) == end(far, topic) == 80
    assert visible(here, topic) == {}


async def _broken_off(*_given: Any, **_named: Any) -> Any:
    await asyncio.sleep(0)
    raise RetryLater("Broken off.")


def test_nothing_is_deleted_where_a_file_differs_or_somebody_writes(
    ways: tuple[Way, Way], topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the folder is missing, or the topic was recreated by somebody else since it was looked at."""
    back = diverged(ways, topic)
    here = back.commands.destination
    missing = back.commands.failure(*recreating(back, topic, tmp_path / "nowhere"))
    assert "is no folder" in missing
    save = recreate.salvage.save_once

    async def save_while_written(*given: Any) -> Path:
        path = await save(*given)
        write(here, topic, RECORDS[:1])
        return path

    with monkeypatch.context() as patch:
        patch.setattr(recreate.salvage, "save_once", save_while_written)
        said = back.commands(*recreating(back, topic, tmp_path))
    assert (said.code, said.out) == (1, "")
    assert f"Topic '{topic}' was written to" in said.err
    assert "Nothing was deleted" in said.err
    assert "holds something else" in back.commands.failure(*recreating(back, topic, tmp_path))
    assert end(here, topic) == 65


def test_what_somebody_else_wrote_into_the_twin_is_saved_and_the_twin_made_anew(
    ways: tuple[Way, Way], topic: str, tmp_path: Path
) -> None:
    """The same direction again: a foreign record makes the partition fail, and only the destination has it."""
    way, _ = ways
    commands = way.commands
    commands.source.create_topic(topic, 1, config={"retention.ms": "-1"})
    write(commands.source, topic, RECORDS)
    way.start(topic)
    write(commands.destination, topic, RECORDS[:1])
    deadline = time.monotonic() + LEVEL_S
    while "FAILED" not in commands.done("--describe", "--mirror", way.mirror):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    way.stop(topic)
    assert f"{topic}-0 offsets 50 to 50 (1 committed records)" in way.refused(topic)
    said = commands.done(*recreating(way, topic, tmp_path))
    assert said.startswith(f"Saved {topic}-0 offsets 50 to 50 (1 committed records) in {tmp_path}/{topic}-")
    write(commands.source, topic, RECORDS[:5])
    way.wait_level(topic)
    assert_verified(commands.source, commands.destination, topic)


def test_a_topic_that_somebody_made_anew_meanwhile_is_not_deleted(
    ways: tuple[Way, Way], topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted is what was looked at, by its id; the other operator's topic stays."""
    back = diverged(ways, topic)
    here = back.commands.destination

    async def made_anew(cluster: Cluster, *_given: Any) -> None:
        await delete_topics(cluster, [topic])
        await create_topic(cluster, topic, partitions=3, replication_factor=1)

    with monkeypatch.context() as patch:
        patch.setattr(recreate, "_check_unchanged", made_anew)
        said = back.commands(*recreating(back, topic, tmp_path))
    assert (said.code, said.out) == (1, "")
    assert "somebody else deleted it just now" in said.err
    assert len(topic_info(here, topic).partitions) == 3
