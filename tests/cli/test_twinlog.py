"""`twinlog` and its commands: which module runs, with which settings, and how mistakes are answered."""

import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from twinlog.cli import twinlog
from twinlog.cli.twinlog import main


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, bool]]:
    """The workers that were started, instead of running them."""
    started: list[tuple[Any, bool]] = []

    def run_worker(settings: Any, *, verbose: bool, **_rest: str | None) -> int:
        started.append((settings, verbose))
        return 0

    stand_in = ModuleType("twinlog.service.worker")
    stand_in.run_worker = run_worker  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "twinlog.service.worker", stand_in)
    return started


def test_worker_runs_with_the_settings_given(workers: list[tuple[Any, bool]], tmp_path: Path) -> None:
    """Addresses from the command line, the rest from the file."""
    file = tmp_path / "client.properties"
    file.write_text("request.timeout.ms=5\n")
    assert main(["worker", "--bootstrap-server", ":9094", "--command-config", str(file), "--verbose"]) == 0
    settings, verbose = workers[0]
    assert (settings.bootstrap, settings.request_timeout_ms, verbose) == ((("localhost", 9094),), 5, True)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["worker"], 1, "The following arguments are required: --bootstrap-server"),
        (["worker", "--bootstrap-server", "a:1", "--frobnicate"], 1, "Unrecognized arguments: --frobnicate"),
        (["worker", "--bootstrap-server", "nowhere"], 1, "Error: 'nowhere' has no port"),
        (["frobnicate"], 1, "invalid choice: 'frobnicate'"),
        (["--verbose"], 1, "Unrecognized arguments: --verbose"),
        (
            ["verify", "--frobnicate"],
            2,
            "Unrecognized arguments: --frobnicate\ntwinlog verify --help shows the flags.\n",
        ),
        (["salvage", "--save", "d"], 1, "--save needs --bootstrap-server, --topic and --from\ntwinlog salvage --help"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(
    words: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, but 2 for `verify`, where 1 means that the topics differ."""
    assert main(words) == code
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.out == ""


def test_no_command_is_answered_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, naming all commands."""
    assert main([]) == 1
    said = capsys.readouterr().err
    assert all(name in said for name in ("worker", "verify", "demo"))


def test_a_command_whose_packages_are_missing_names_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo needs more than the rest."""

    def missing(_name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'jgo'", name="jgo")

    monkeypatch.setattr(twinlog, "import_module", missing)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "Error: twinlog demo needs the Python package 'jgo', which is not installed.\n"


def test_another_command_is_loaded_only_when_it_is_meant(
    monkeypatch: pytest.MonkeyPatch, workers: list[tuple[Any, bool]]
) -> None:
    """Its module adds its own flags and runs with them."""
    loaded: list[str] = []
    module = ModuleType("twinlog.cli.verify")

    def add_parser(commands: Any) -> None:
        commands.add_parser("verify").add_argument("--topic")

    module.add_parser = add_parser  # type: ignore[attr-defined]
    module.run = lambda given: 1 if given.topic == "t" else 2  # type: ignore[attr-defined]

    def load(name: str) -> ModuleType:
        loaded.append(name)
        return module

    monkeypatch.setattr(twinlog, "import_module", load)
    assert main(["worker", "--bootstrap-server", "a:1"]) == 0
    assert (loaded, len(workers)) == ([], 1)
    assert main(["verify", "--topic", "t"]) == 1
    assert loaded == ["twinlog.cli.verify"]


def test_python_m_twinlog_is_the_same_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also its version."""
    monkeypatch.setattr(sys, "argv", ["twinlog", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("twinlog", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("twinlog ")


@pytest.mark.parametrize("module", ["twinlog.cli.kafka_mirrors", "twinlog.cli.twinlog"])
def test_starting_up_loads_no_client(module: str) -> None:
    """Help, version and mistakes come at once: neither Kafka's classes nor asyncio's servers are loaded for them."""
    code = (
        f"import sys, {module}; print([m for m in sys.modules if m.startswith(('kafka', 'confluent_kafka', 'rich'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout
    assert out == "[]\n"
