"""The Dockerfile, as far as it can be tried without a container runtime."""

import fnmatch
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.deployed import DOCKERFILE, ROOT, entry_point, instructions, stages

HADOLINT = Path(sys.executable).with_name("hadolint")
IMAGE_FOLDER = "/opt/twinlog"
INSTALLED_WITHIN_S = 100


def test_the_linter_for_dockerfiles_finds_nothing() -> None:
    """Neither in the instructions nor in the shell commands in them."""
    if not HADOLINT.exists():
        pytest.skip("no hadolint for this platform")
    found = subprocess.run([HADOLINT, DOCKERFILE], capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


def copied_in() -> list[str]:
    """What the Dockerfile takes from the checkout."""
    return [
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]


def test_everything_that_is_copied_in_exists_and_is_sent_to_the_builder() -> None:
    """The .dockerignore keeps out all but what the Dockerfile asks for."""
    rules = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    assert rules[0] == "*"
    assert kept == set(copied_in())
    assert all((ROOT / name).exists() for name in kept)
    assert not any(fnmatch.fnmatch(name, rule) for name in kept for rule in rules[1:] if rule[0] != "!")


def test_the_last_stages_hold_no_build_tools_and_run_as_nobody_in_particular() -> None:
    """Both products come from one stage, which takes nothing but the installed package from the build."""
    found = stages()
    assert list(found) == ["build", "runtime", "kafka-reo", "twinlog"]
    runtime = found["runtime"]
    assert [rest for name, rest in runtime if name == "COPY"] == [f"--from=build {IMAGE_FOLDER} {IMAGE_FOLDER}"]
    assert dict(runtime)["USER"] == "10001:10001"
    assert not any(word in rest for name, rest in runtime for word in ("apt-get", "pip install", "gcc"))
    for product in ("kafka-reo", "twinlog"):
        assert found[product][0] == ("FROM", f"runtime AS {product}")
        assert [name for name, _ in found[product]] == ["FROM", "ENTRYPOINT"]
    assert json.loads(dict(runtime)["HEALTHCHECK"].partition("CMD ")[2])[0] == "python"


@pytest.mark.timeout(INSTALLED_WITHIN_S + 60)
def test_entry_points_run_in_what_the_build_stage_installs(tmp_path: Path) -> None:
    """Its own commands, run on its own files only, make a virtual environment in which both products answer."""
    build, target = tmp_path / "build", tmp_path / "opt"
    build.mkdir()
    for name in copied_in():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, build / name)
    (run,) = (rest for name, rest in stages()["build"] if name == "RUN")
    # The cache only saves time here; in an image it would only take room.
    command = run.replace(IMAGE_FOLDER, str(target)).replace("--no-cache-dir ", "")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=build,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        timeout=INSTALLED_WITHIN_S,
    )
    bare = {"PATH": f"{target / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    for words in ([*entry_point("twinlog"), "worker"], ["kafka-mirrors"], entry_point("kafka-reo")):
        command = shlex.join([*words, "--help"])
        said = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=tmp_path, env=bare, capture_output=True, text=True, check=False, timeout=60
        )
        assert said.returncode == 0, said.stderr
        assert "usage" in said.stdout.lower()
    assert not (target / "bin" / "pip").exists()
