"""Reads `sasl.jaas.config`: `LoginModuleClass controlFlag name=value ... ;`, exactly one entry.

Follows `org.apache.kafka.common.security.JaasConfig`: values may be bare words or quoted with " or ', with
backslash escapes in quotes, and comments of both Java kinds are skipped. No message quotes a value.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<sign>[=;])
      | (?P<word>[^\s=;"'/]+(?:/(?![/*])[^\s=;"'/]*)*)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}
Token = tuple[str, str]
_END: Token = ("sign", ";")
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One entry: the module's class name without its package, and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """Parse the value of `sasl.jaas.config`; ValueError ends the sentence "sasl.jaas.config ..."."""
    tokens = _tokens(text)
    if len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        raise ValueError('must read: <login module class> required name="value" ... ;')
    if tokens[-1] != _END:
        raise ValueError("must end with a semicolon")
    if _END in tokens[:-1]:
        raise ValueError("must hold one entry only, and no semicolon outside of quotes but the last")
    return JaasEntry(tokens[0][1].rpartition(".")[2], _options(tokens[2:-1]))


def _tokens(text: str) -> list[Token]:
    """Split into (kind, text): kind `sign` is punctuation, `text` a word or the inside of quotes."""
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"cannot be read from character {position + 1} on; is a quote not closed?")
        position = found.end()
        match found.lastgroup:
            case "sign":
                tokens.append(("sign", found.group()))
            case "word":
                tokens.append(("text", found.group()))
            case "double" | "single" as quoted:
                tokens.append(("text", _ESCAPE.sub(_character, found.group(quoted))))
    return tokens


def _character(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape.group(1), escape.group(1))


def _options(tokens: list[Token]) -> dict[str, str]:
    options: dict[str, str] = {}
    for at in range(0, len(tokens), 3):
        match tokens[at : at + 3]:
            case [("text", name), ("sign", "="), ("text", value)]:
                options[name] = value
            case _:
                raise ValueError(f'must give its options as name="value"; option {at // 3 + 1} is not of that form')
    return options
