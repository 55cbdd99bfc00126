"""The house rules, checked by reading the sources: sizes, docstrings, and words that do not belong here."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SKIPPED_FOLDERS = {".git", ".venv", ".hypothesis", "build", "dist", "__pycache__"}
CODE_FOLDERS = ("src", "tests", "bench")
TEXT_SUFFIXES = {".py", ".pyi", ".md", ".toml", ".txt", ".properties", ".yaml", ".yml", ".sh", ".cfg", ""}

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

# What must not stand in any text of the project, and why not. This file is exempt: it has to name them.
FORBIDDEN = {
    "an absolute path of one machine": r"(?<![\w.$}~-])/(?:work|root)/|/home/\w+/|/tmp/(?:x|plan)\b",
    "the address of a package registry": (
        r"pypi\.org|pythonhosted\.org|maven\.org|maven\.apache\.org|npmjs\.(?:org|com)|crates\.io|deb\.debian\.org|"
        r"proxy\.golang\.org"
    ),
    "a tracker's number, which means nothing here": r"(?i)\bissues? #?\d+\b|\bFC-\d+\b",
    "who or what wrote the code": (
        r"(?i)\b(?:this|by a|next|previous|another) (?:coding )?session\b|\b(?:ai |coding |helpful )assistants?\b|"
        r"\blanguage model\b|\b(?:claude|chatgpt|copilot|anthropic|openai)\b"
    ),
    "a to-do note": r"\b(?:TODO|FIXME|XXX)\b",
    "a stub": r"\bNotImplementedError\b",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files() -> Iterator[Path]:
    """All files of the project, without what tools leave behind."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS and not f.endswith(("_cache", ".egg-info"))]
        yield from (Path(folder, name) for name in names)


def code() -> list[Path]:
    """All Python files that people read."""
    return sorted(f for f in files() if f.suffix == ".py" and f.relative_to(ROOT).parts[0] in CODE_FOLDERS)


def texts() -> list[Path]:
    """All text files but this one."""
    return sorted(f for f in files() if f.suffix in TEXT_SUFFIXES and f != Path(__file__) and f.name != "LICENSE")


def functions(path: Path) -> Iterator[Function]:
    """All functions of a file, nested ones too."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def place(path: Path, line: int, what: str = "") -> str:
    """A place as editors understand it."""
    return f"{path.relative_to(ROOT)}:{line} {what}".rstrip()


def own_lines(function: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def test_no_file_is_too_long() -> None:
    """A file that needs more than 500 lines has more than one job."""
    long = [place(f, n) for f in code() if (n := len(f.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES]
    assert not long, "\n" + "\n".join(long)


def test_no_function_is_too_long() -> None:
    """A function that needs more than 60 lines has more than one job."""
    long = [
        place(f, function.lineno, f"{function.name} ({own_lines(function)} lines)")
        for f in code()
        for function in functions(f)
        if own_lines(function) > MAX_FUNCTION_LINES
    ]
    assert not long, "\n" + "\n".join(long)


def documented(node: ast.AST, *, inside: str = "") -> Iterator[tuple[int, str]]:
    """Line and name of each public class and function, methods too, that has no docstring."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | Function) or child.name.startswith("_"):
            continue
        if ast.get_docstring(child) is None and not is_overload(child):
            yield child.lineno, inside + child.name
        if isinstance(child, ast.ClassDef):
            yield from documented(child, inside=f"{child.name}.")


def is_overload(node: ast.ClassDef | Function) -> bool:
    """Whether a definition only declares types, or is a property's setter."""
    return any(ast.unparse(d).endswith(("overload", ".setter", "override")) for d in node.decorator_list)


def test_everything_public_has_a_docstring() -> None:
    """Every module, and every public class, function and method of the package, says what it is for."""
    bare: list[str] = []
    for f in code():
        tree = ast.parse(f.read_text(encoding="utf-8"))
        if ast.get_docstring(tree) is None:
            bare.append(place(f, 1, "module"))
        if f.relative_to(ROOT).parts[0] == "src":
            bare += [place(f, line, name) for line, name in documented(tree)]
    assert not bare, "\n" + "\n".join(bare)


def every_test() -> Iterator[tuple[Path, Function]]:
    """All test functions."""
    for f in code():
        if f.name.startswith("test_"):
            yield from ((f, function) for function in functions(f) if function.name.startswith("test_"))


def asserts(node: ast.AST) -> bool:
    """Whether a piece of code can fail a test: an assertion, `raises`, or a call of something that checks."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        return re.search("assert|check|expect|verify|compare|raises|fail", called) is not None
    return isinstance(node, ast.Assert)


def test_every_test_has_a_docstring_and_asserts_something() -> None:
    """A test says in one sentence what must hold, and can fail."""
    silent = [place(f, t.lineno, f"{t.name}: no docstring") for f, t in every_test() if ast.get_docstring(t) is None]
    weak = [
        place(f, t.lineno, f"{t.name}: no assertion") for f, t in every_test() if not any(map(asserts, ast.walk(t)))
    ]
    assert not silent + weak, "\n" + "\n".join(silent + weak)


def reason(line: str) -> bool:
    """Whether a line has a comment that says something, beyond the linter's marker."""
    comment = line.partition("#")[2]
    return re.search(r"\w", re.sub(r"noqa: [A-Z0-9, ]+", "", comment)) is not None


def test_a_broad_except_gives_its_reason() -> None:
    """Catching everything needs a comment on the line, beyond the linter's own marker."""
    bare: list[str] = []
    for f in code():
        lines = f.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(ast.parse("\n".join(lines))):
            broad = isinstance(node, ast.ExceptHandler) and (
                node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
            )
            if broad and not reason(lines[node.lineno - 1]):
                bare.append(place(f, node.lineno))
    assert not bare, "\n" + "\n".join(bare)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_text_holds(what: str) -> None:
    """Words that only one machine, one tracker or one moment understands stay out of the project."""
    pattern = re.compile(FORBIDDEN[what])
    found = [
        place(f, number, line.strip()[:100])
        for f in texts()
        for number, line in enumerate(f.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n" + "\n".join(found)
