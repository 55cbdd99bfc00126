"""References to secrets: recognised, checked in form, looked up; never shown."""

from pathlib import Path

import pytest

from twinlog.config.secrets import check_references, has_reference, is_reference, resolve
from twinlog.errors import BadInput


def test_what_counts_as_a_reference() -> None:
    """Only a whole value of a known form is a reference; a part of one is merely somewhere in it."""
    assert is_reference("${env:PASSWORD}")
    assert is_reference(" ${file:/etc/s.properties:password} ")
    assert is_reference("${dir:/etc/secrets:password}")
    for value in ("secret", "x${env:A}", "${env:A}${env:B}", "${vault:a:b}", "$env:A", "${HOME}", ""):
        assert not is_reference(value)
    assert has_reference("x${env:A}")
    assert not has_reference("x${A}")


def test_each_form_is_looked_up(tmp_path: Path) -> None:
    """Environment, properties file and directory give their values; a mounted file loses its last newline only."""
    (tmp_path / "s.properties").write_text("user=u\npassword=p=w\n")
    (tmp_path / "token").write_text("line 1\nline 2\n")
    text = f"${{env:A}}|${{file:{tmp_path}/s.properties:password}}|${{dir:{tmp_path}:token}}"
    assert resolve(text, {"A": "a"}) == "a|p=w|line 1\nline 2"


def test_a_found_value_is_not_searched_again() -> None:
    """A password that happens to look like a reference is taken as it is."""
    assert resolve("${env:A}", {"A": "${env:B}", "B": "wrong"}) == "${env:B}"


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment of its own, a look-up uses the process's."""
    monkeypatch.setenv("TWINLOG_TEST_SECRET", "x")
    assert resolve("${env:TWINLOG_TEST_SECRET}") == "x"


def test_a_reference_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    """Each kind of missing secret is refused with the reference and the reason, and no content of a file."""
    (tmp_path / "s.properties").write_text("other=hidden")
    for reference, reason in (
        ("${env:NONE}", "the environment variable NONE is not set"),
        (f"${{file:{tmp_path}/s.properties:none}}", "has no key none"),
        (f"${{file:{tmp_path}/none:key}}", "does not exist"),
        (f"${{dir:{tmp_path}:none}}", "does not exist"),
        (f"${{dir:{tmp_path}:..}}", "is not the plain name"),
        (f"${{dir:{tmp_path}:a/b}}", "is not the plain name"),
    ):
        with pytest.raises(BadInput, match=reason) as problem:
            resolve(reference, {})
        assert reference in str(problem.value)
        assert "hidden" not in str(problem.value)


@pytest.mark.parametrize("value", ["${vault:a:b}", "${env:}", "${file:key}", "${file:/path:}", "${dir::name}"])
def test_a_wrong_form_is_refused_without_looking(value: str) -> None:
    """A command can refuse a reference that no worker could resolve."""
    with pytest.raises(BadInput, match=r"use \$\{env:NAME\}"):
        check_references(value)
