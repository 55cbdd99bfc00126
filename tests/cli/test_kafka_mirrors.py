"""What `kafka-mirrors` prints for each outcome; the calls behind it are faked, and real in tests/real."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from tests.admin.rows import row

from twinlog import admin
from twinlog.admin import (
    CreateMirrorResult,
    DescribeMirrorsResult,
    MoveMirrorTopicsResult,
    StartMirrorTopicsResult,
    StopMirrorTopicsResult,
)
from twinlog.admin.divergence import Tail
from twinlog.admin.results import Recreated
from twinlog.cli.kafka_mirrors import main
from twinlog.control.commands import Altered, Deleted
from twinlog.control.describe import List, MirrorListing
from twinlog.control.image import Image
from twinlog.control.lifecycle import DesiredState
from twinlog.control.mirror_configs import describe_configs
from twinlog.control.records import MirrorRecord
from twinlog.control.selection import Edits
from twinlog.errors import AuthorizationFailed, InvalidRequest, TwinlogError, UnknownClusterMirror
from twinlog.names import TopicPartition

TO = ("--bootstrap-server", ":9094", "--mirror", "m")
START, ADD = ("--start", "--topics", "t,u"), ("--add", "--topic", "t")
STOP, REMOVE = ("--stop", "--topics", "t"), ("--remove", "--topic", "t")


class FakeAdmin:
    """Answers every call with `result`, and keeps what it was asked."""

    result: Any = None
    asked: Any = None

    @classmethod
    async def connect(cls, _settings: Any, *, timeout_s: float) -> Self:
        """As `MirrorAdmin.connect`."""
        assert timeout_s == 30
        return cls()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""

    async def _call(self, *args: Any, **more: Any) -> Any:
        type(self).asked = (*args, more)
        return self.result

    create_mirror = start_mirror_topics = stop_mirror_topics = list_mirrors = describe_mirrors = _call
    describe_configs = skipped = _call
    pause_mirror_topics = resume_mirror_topics = recover_mirror_topics = alter_mirror = delete_mirror = _call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeAdmin]:
    """The admin of the commands under test."""

    class Admin(FakeAdmin):
        pass

    monkeypatch.setattr(admin, "MirrorAdmin", Admin)
    return Admin


@pytest.fixture
def run(fake: type[FakeAdmin], capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command whose call has this result; returns exit code, stdout and stderr."""

    def command(result: Any, *words: str) -> tuple[int, str, str]:
        fake.result = result
        code = main([*TO, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_no_arguments_are_answered_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with exit code 1; asked for, it is on stdout with 0."""
    assert main([]) == 1
    assert "actions (exactly one)" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "actions (exactly one)" in capsys.readouterr().out


def test_create(run: Any, fake: type[FakeAdmin], tmp_path: Path) -> None:
    """The file's configs, with the addresses of the command line if there are any; notes go to stderr."""
    result = CreateMirrorResult("m", "", ("Not asked.",))
    file = tmp_path / "mirror.properties"
    file.write_text("bootstrap.servers=a:1\nmirror.topics.include=x\n")
    said = run(result, "--create", "--mirror-config", str(file))
    assert said == (0, "Created mirror m\n", "Note: Not asked.\n")
    assert dict(fake.asked[1]) == {"bootstrap.servers": "a:1", "mirror.topics.include": "x"}
    run(result, "--create", "--mirror-config", str(file), "--remote-bootstrap-server", ":9092,[::1]:1")
    assert fake.asked[1]["bootstrap.servers"] == "localhost:9092,[::1]:1"
    assert fake.asked[2] == {"origin": str(file), "dry_run": False}
    assert run(result, "--create", "--remote-bootstrap-server", ":9092")[0] == 0


def test_start_and_add_have_their_own_words(run: Any, fake: type[FakeAdmin]) -> None:
    """Only what was started now is counted; what was mirrored already has a line, what an exclude did a remark."""
    result = StartMirrorTopicsResult(
        "m",
        started=("t",),
        already=("u",),
        stopped=("v",),
        excluded=("v", "w"),
        notes=("A.", "B."),
        unmatched=("x.*",),
        live_workers=1,
    )
    unmatched = (
        "Nothing at the source matches yet: [x.*]. Mirror m keeps that, and starts what appears. If it is a mistake: "
        "--stop --mirror m --topics 'x.*'"
    )
    code, out, err = run(result, *START, "--exclude", "v", "--replication-factor", "2")
    assert (code, out) == (0, "Started 1 mirror topic(s) in mirror m: [t]\nAlready mirroring in mirror m: [u]\n")
    assert err.splitlines() == [
        "Note: A.",
        "Note: B.",
        "Stopped, since an exclude matches now: [v]",
        "Left out, since an exclude pattern of mirror m matches: [w]",
        unmatched,
    ]
    assert fake.asked[:2] == ("m", ("t", "u"))
    asked = fake.asked[2]
    assert (asked["exclude"], asked["replication_factor"], asked["must_exist"]) == (("v",), 2, False)
    code, out, err = run(StartMirrorTopicsResult("m", started=("t",)), *ADD)
    assert (code, out) == (0, "Added 1 topic(s) to mirror m: [t]\n")
    assert err.startswith("Warning: no worker is running, so the start is only recorded.")
    assert fake.asked[2]["must_exist"]


def test_a_start_of_what_is_mirrored_already_starts_nothing(run: Any) -> None:
    """And says so, instead of counting it."""
    for words in (START, ADD):
        said = run(StartMirrorTopicsResult("m", already=("t", "u"), live_workers=1), *words)
        assert said == (0, "Already mirroring in mirror m: [t, u]\n", "")
    idle = run(StartMirrorTopicsResult("m", already=("t",)), *START)[2]
    assert idle == "Warning: no worker is running, so nothing is mirrored now. Start a worker (twinlog worker).\n"


def test_a_recreated_topic_is_told_with_its_file(run: Any, fake: type[FakeAdmin], tmp_path: Path) -> None:
    """Also where the start then fails; a dry run says what would be done."""
    words = (*START, "--on-divergence", "recreate", "--salvage-dir", str(tmp_path))
    tail = Tail(TopicPartition("t", 0), 5, 8, 3)
    path = tmp_path / "t.tail"
    result = StartMirrorTopicsResult(
        "m", failed={"t": InvalidRequest("No.")}, recreated={"t": Recreated((tail,), path, 1)}
    )
    code, out, _ = run(result, *words)
    told = "t-0 offsets 5 to 7 (3 committed records)"
    assert (code, out) == (1, f"Saved {told} in {path}, and deleted topic t at the destination\n")
    assert fake.asked[2]["salvage_dir"] == tmp_path
    assert run(result, *words, "--dry-run")[1].startswith(f"Would save {told} in {path}, delete topic t ")


def test_a_promotion_that_is_refused_names_the_level_topics_too(run: Any, fake: type[FakeAdmin]) -> None:
    """Nothing was stopped, so nothing is printed but why."""
    result = StopMirrorTopicsResult("m", failed={"t": InvalidRequest("Behind.")}, level=("u",))
    code, out, err = run(result, *STOP, "--check-lag")
    assert (code, out) == (1, "")
    assert err == "Level, and not stopped, since others are not: [u]\nFailed to stop topic t: Behind.\n"
    assert fake.asked[2]["check_lag"]
    assert "Would leave, level, since others are not: u" in run(result, *STOP, "--check-lag", "--dry-run")[1]


def test_a_start_that_finds_nothing_saves_its_patterns(run: Any) -> None:
    """As KIP-1279 says it, and which names were not found."""
    code, out, err = run(StartMirrorTopicsResult("m", pending=("t",), unmatched=("t", "u.*")), *START)
    assert (code, out) == (0, "No matching topics found yet. Patterns saved to mirror m for auto-discovery.\n")
    assert err.startswith("Nothing at the source matches yet: [t, u.*]. Mirror m keeps that")
    assert err.endswith("--stop --mirror m --topics 't,u.*'\n")
    many = tuple(f"t{number}" for number in range(12))
    assert "and so on" in run(StartMirrorTopicsResult("m", unmatched=many), *START)[2]


def test_a_dry_run_of_a_start_or_stop_names_the_patterns(run: Any) -> None:
    """What would be saved and what would be taken back, one line each."""
    edits = Edits(("a.*", "t"), ("b",), (), ("c",))
    result = StartMirrorTopicsResult("m", started=("t",), edits=edits)
    assert run(result, *START, "--dry-run")[1].splitlines() == [
        "Would start: t",
        "Would save include pattern: a.*",
        "Would save include pattern: t",
        "Would save exclude pattern: b",
        "Would take back exclude pattern: c",
    ]
    taken = StopMirrorTopicsResult("m", edits=Edits(taken_back_include=("ordrs",)))
    assert run(taken, *STOP, "--dry-run") == (0, "Would take back include pattern: ordrs\n", "")


def test_failures_of_single_topics_are_told_one_by_one(run: Any) -> None:
    """Exit code 1; the only topic's failure is the command's."""
    bad = {"u": InvalidRequest("No.")}
    code, out, err = run(StartMirrorTopicsResult("m", started=("t",), failed=bad, live_workers=1), *START)
    assert (code, out) == (1, "Started 1 mirror topic(s) in mirror m: [t]\n")
    assert err == "Failed to start topic u: No.\n"
    code, out, err = run(StartMirrorTopicsResult("m", failed=bad), *START)
    assert (code, out, err) == (1, "", "Error while executing mirror command : No.\n")
    two: dict[str, TwinlogError] = {"t": InvalidRequest("Never."), **bad}
    code, out, err = run(StopMirrorTopicsResult("m", failed=two), *STOP)
    assert (code, out) == (1, "")
    assert err == "Failed to stop topic t: Never.\nFailed to stop topic u: No.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--topics", "t,u", "--topic-id", "gWrR6uDrSNSSfu_ubGndCg"), "--topic-id needs exactly one topic"),
        (("--topics", "t.*", "--topic-id", "gWrR6uDrSNSSfu_ubGndCg"), "--topic-id needs exactly one topic"),
        (("--topics", "t", "--topic-id", "gWrR"), "'gWrR' is not a topic id"),
        (("--topics", "t["), "not valid"),
    ],
)
def test_what_is_wrong_with_topics_is_found_before_a_cluster_is_asked(
    run: Any, fake: type[FakeAdmin], words: tuple[str, ...], sentence: str
) -> None:
    """Ids and patterns."""
    code, out, err = run(None, "--start", *words)
    assert (code, out, fake.asked) == (1, "", None)
    assert sentence in err


def test_stop_and_remove_have_their_own_words_then_the_ends(run: Any) -> None:
    """First the line that scripts look for, then where the mirrored records end."""
    ends = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 0, TopicPartition("t", 2): -1}
    result = StopMirrorTopicsResult("m", stopped=("t",), ends=ends, live_workers=1)
    code, out, err = run(result, *STOP)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Stopped mirroring for topics [t] in mirror m",
        "t-0: last mirrored offset 4, log end 5",
        "t-1: nothing mirrored, log end 0",
    ]
    assert run(result, *REMOVE)[1].splitlines()[0] == "Removed 1 topic(s) from mirror m: [t]"


def test_a_stop_that_stops_no_topic_says_what_it_did(run: Any) -> None:
    """A pattern taken back or saved, topics that were stopped before, or nothing at all."""
    taken = StopMirrorTopicsResult("m", edits=Edits(taken_back_include=("ordrs",)))
    said = "Taken back from the include patterns of mirror m: [ordrs]\n"
    assert run(taken, *STOP) == run(taken, *REMOVE) == (0, said, "")
    saved = StopMirrorTopicsResult("m", edits=Edits(saved_exclude=("x.*",)))
    out = run(saved, *STOP)[1]
    assert out.startswith("Saved as exclude pattern(s) of mirror m, so that no topic that matches is started: [x.*]. ")
    assert "out of mirror.topics.exclude (--alter)" in out
    bad = StopMirrorTopicsResult("m", failed={"t": InvalidRequest("No.")}, edits=Edits(taken_back_include=("ordrs",)))
    assert run(bad, *STOP) == (1, said, "Failed to stop topic t: No.\n")
    assert run(StopMirrorTopicsResult("m", already=("t",)), *STOP)[1] == "Already stopped in mirror m: [t]\n"
    late = StopMirrorTopicsResult("m", already=("t",), waiting_for=(TopicPartition("t", 0),))
    assert run(late, *STOP)[1] == "Told to stop before, and not STOPPED yet, in mirror m: [t]\n"
    nothing = "Nothing to stop in mirror m: none of its topics matches [t]\n"
    assert run(StopMirrorTopicsResult("m"), *STOP) == (0, nothing, "")


def test_a_stop_of_topics_remarks_on_regexes_alone(run: Any) -> None:
    """That a stopped topic's own name is taken back or excluded goes without saying."""
    edits = Edits(saved_exclude=("u", ".*"), taken_back_include=("t", "a.*"))
    code, out, err = run(StopMirrorTopicsResult("m", stopped=("t", "u"), edits=edits, live_workers=1), *STOP)
    assert (code, out) == (0, "Stopped mirroring for topics [t, u] in mirror m\n")
    first, second = err.splitlines()
    assert first == "Taken back from the include patterns of mirror m: [a.*]"
    assert "no topic that matches is started: [.*]" in second


def test_a_stop_that_nobody_has_done_yet(run: Any) -> None:
    """It is recorded, so 0, with a warning that says what is missing, and that going on is not safe."""
    waiting = tuple(TopicPartition("t", number) for number in range(12))
    code, out, err = run(StopMirrorTopicsResult("m", stopped=("t",), waiting_for=waiting), *STOP)
    assert (code, out) == (0, "Stopped mirroring for topics [t] in mirror m\n")
    assert "no worker is running, so the stop is only recorded: 12 partition(s)" in err
    code, out, err = run(StopMirrorTopicsResult("m", stopped=("t",), waiting_for=waiting, live_workers=1), *STOP)
    assert (code, out) == (0, "Stopped mirroring for topics [t] in mirror m\n")
    assert "the stop is recorded, but 12 partition(s) were not STOPPED after 30 s: t-0, t-1" in err
    assert "t-9, ..." in err
    assert "t-10" not in err


def test_pause_resume_and_recover_have_their_own_words(run: Any) -> None:
    """What was moved, what was left as it is and why, and what is not PAUSED yet."""
    waiting = (TopicPartition("t", 0),)
    result = MoveMirrorTopicsResult("m", moved=("t",), already=("u",), waiting_for=waiting)
    code, out, err = run(result, "--pause", "--topics", "t,u")
    paused = "Paused mirroring for 1 topic(s) in mirror m: [t]\nLeft as they are, already PAUSED: [u]\n"
    assert (code, out) == (0, paused)
    assert "no worker is running, so the pause is only recorded: 1 partition(s) are not PAUSED yet: t-0" in err
    alone = MoveMirrorTopicsResult("m", moved=("t",))
    assert "so the resume is only recorded" in run(alone, "--resume", "--topics", "t")[2]
    assert "so the recover is only recorded" in run(alone, "--recover", "--topics", "t")[2]
    left = MoveMirrorTopicsResult("m", already=("t",))
    assert run(left, "--resume", "--topics", "t") == (0, "Left as they are, not PAUSED: [t]\n", "")
    nothing = "Nothing to recover in mirror m: none of its topics matches [t]\n"
    assert run(MoveMirrorTopicsResult("m"), "--recover", "--topics", "t") == (0, nothing, "")
    done = MoveMirrorTopicsResult("m", moved=("t",), live_workers=1)
    assert run(done, "--resume", "--topics", "t") == (0, "Resumed mirroring for 1 topic(s) in mirror m: [t]\n", "")
    assert run(done, "--recover", "--topics", "t") == (0, "Recovering for 1 topic(s) in mirror m: [t]\n", "")


def test_a_dry_run_tells_each_topic(run: Any, fake: type[FakeAdmin]) -> None:
    """One line a topic, with the exit code that the command itself would have."""
    result = MoveMirrorTopicsResult("m", moved=("t",), already=("u",), failed={"v": InvalidRequest("No.")})
    code, out, _ = run(result, "--pause", "--topics", "t,u,v", "--dry-run")
    assert (code, out) == (1, "Would pause: t\nWould leave, already PAUSED: u\nWould fail: v: No.\n")
    assert fake.asked[2]["dry_run"]


def test_alter_and_delete(run: Any, fake: type[FakeAdmin]) -> None:
    """Configs of the command line; a change of more than filters is remarked."""
    altered = Altered("m", ("bootstrap.servers",), reconnects=True, stopped=("t",))
    code, out, err = run(altered, "--alter", "--config", "bootstrap.servers=[a:1,b:2]", "--delete-config", "x,y")
    assert (code, out) == (0, "Altered mirror m\n")
    assert "connect to the source anew" in err
    assert dict(fake.asked[1]) == {"bootstrap.servers": "a:1,b:2"}
    assert fake.asked[2]["removed"] == ["x", "y"]
    assert "Stopped, since an exclude matches now: [t]" in err
    assert "Would stop (an exclude matches now): t" in run(altered, "--alter", "--config", "a=b", "--dry-run")[1]
    same = Altered("m", (), reconnects=False)
    assert run(same, "--alter", "--config", "a=b")[1] == "Nothing to alter in mirror m: its configs are so already\n"
    assert run(Deleted("m", ("t",)), "--delete") == (0, "Deleted mirror m\n", "")
    assert run(Deleted("m", ("t",)), "--delete", "--dry-run")[1].startswith("Would delete mirror m")


def test_list_and_describe_print_tables_or_json(run: Any, fake: type[FakeAdmin]) -> None:
    """JSON without a newline at its end."""
    assert run((), "--list") == (0, "No mirrors found\n", "")
    assert run((), "--list", "--json") == (0, "[]", "")
    fresh = DescribeMirrorsResult((row(),), 1, 0, 0, {"m": 10})
    assert "MIRRORING" in run(fresh, "--describe")[1]
    code, out, err = run(fresh, "--describe", "--json")
    assert (code, err, out[-2:]) == (0, "", "}]")
    assert fake.asked == (["m"], {"failed": False, "source_cluster_id": None, "topics": ()})
    assert "RETRY" in run(fresh, "--describe", "--failed", "--topics", "t,u.*")[1]
    assert fake.asked == (["m"], {"failed": True, "source_cluster_id": None, "topics": ("t", "u.*")})
    run((), "--list", "--source-cluster-id", "S", "--states", "stopped,PAUSED")
    assert fake.asked[0] == List("m", "S", {DesiredState.STOPPED, DesiredState.PAUSED})
    assert "--states: GONE is not one of MIRRORING" in run((), "--list", "--states", "gone")[2]
    assert "RETRY" in run(fresh, "--describe", "--failed")[1]


def test_an_unknown_mirror_is_told_with_those_that_there_are(
    run: Any, fake: type[FakeAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the KIP's own sentence, which stays the last line; who may not list them is told that alone."""

    async def unknown(*_: Any, **__: Any) -> None:
        raise UnknownClusterMirror("Mirror 'm' not found")

    async def forbidden(*_: Any) -> None:
        raise AuthorizationFailed("No.")

    error = "Error while executing mirror command : Mirror 'm' not found\n"
    monkeypatch.setattr(fake, "stop_mirror_topics", unknown)
    listed = (MirrorListing("other", "a:1", "S", ()),)
    assert run(listed, *STOP) == (1, "", f"Mirrors at this destination: [other]\n{error}")
    assert run((), *STOP) == (1, "", f"Mirrors at this destination: none\n{error}")
    monkeypatch.setattr(fake, "list_mirrors", forbidden)
    assert run((), *STOP) == (1, "", error)


def test_describe_prints_configs_and_what_was_skipped(run: Any, fake: type[FakeAdmin]) -> None:
    """As tables or JSON, of one mirror or of all of a source cluster."""
    described = describe_configs(Image([MirrorRecord("m", {"mirror.topics.include": "ordrs"}, "S")]))
    code, out, err = run(described, "--describe", "--configs", "--source-cluster-id", "S")
    assert (code, err) == (0, "")
    assert "waited for: the topic is started once the source has it" in out
    assert fake.asked == (["m"], {"source_cluster_id": "S"})
    assert json.loads(run(described, "--describe", "--configs", "--json")[1])[0]["patterns"][0]["pattern"] == "ordrs"
    assert run((), "--describe", "--skipped")[1] == "Nothing was skipped\n"


@pytest.mark.parametrize(
    ("result", "warning"),
    [
        (DescribeMirrorsResult((), 1, 12_345, 0, {}), "Warning: some of these figures are 12 s old.\n"),
        (
            DescribeMirrorsResult((), 0, 12_345, 2, {}),
            "Warning: some of these figures are 12 s old. No worker is running; start one with twinlog worker.\n",
        ),
        (
            DescribeMirrorsResult((), 0, -1, 2, {}),
            "Warning: 2 partition(s) have no figures yet. No worker is running; start one with twinlog worker.\n",
        ),
        (DescribeMirrorsResult((), 1, 4_999, 2, {}), ""),
        (
            DescribeMirrorsResult((), 0, 1_500, 0, {}),
            "Warning: some of these figures are 1 s old. No worker is running; start one with twinlog worker.\n",
        ),
    ],
)
def test_old_figures_are_told_with_their_age(run: Any, result: DescribeMirrorsResult, warning: str) -> None:
    """On stderr, also beside JSON."""
    where = "--describe --configs --mirror m shows which topics the mirror waits for.\n"
    assert run(result, "--describe")[2] == where + warning
    assert run(result, "--describe", "--json")[1:] == ("[]", warning)
