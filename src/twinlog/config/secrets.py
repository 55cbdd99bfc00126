"""Secrets by reference: what a configuration says instead of a password, and how it is looked up.

The three forms are those of Kafka's own config providers (KIP-297, KIP-421, KIP-632):

- `${env:NAME}`: an environment variable,
- `${file:/path/to/file:key}`: a key of a properties file,
- `${dir:/path/to/dir:name}`: the whole content of a file in a directory, as Kubernetes mounts secrets (a newline at
  its end is dropped).

A reference is looked up each time it is asked for, so that a changed password is found without a restart.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from twinlog.config.properties import read_properties, read_text
from twinlog.errors import BadInput

SECRET_KEYS = frozenset(
    {
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
"""Keys whose values are never stored, logged or shown in clear."""

_REFERENCE = re.compile(r"\$\{(\w+):([^{}]*)\}")
FORMS = "${env:NAME}, ${file:/path:key} or ${dir:/path:name}"


def is_reference(value: str) -> bool:
    """Say whether the whole value is one reference of a known form."""
    found = _REFERENCE.fullmatch(value.strip())
    return found is not None and found.group(1) in _PROVIDERS


def has_reference(value: str) -> bool:
    """Say whether a reference stands anywhere in the value."""
    return _REFERENCE.search(value) is not None


def resolve(value: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the value with its references replaced; BadInput names one that leads nowhere.

    What a reference leads to is taken as it is: a reference in it is not looked up. `environment` is
    that of the process unless given.
    """
    variables = os.environ if environment is None else environment
    return _REFERENCE.sub(lambda found: _look_up(found, variables), value)


def check_references(value: str) -> None:
    """Raise BadInput for a reference of an unknown or incomplete form, without looking anything up."""
    for found in _REFERENCE.finditer(value):
        provider, target = found.groups()
        if provider not in _PROVIDERS:
            raise BadInput(f"{found.group()} is no reference that twinlog knows; use {FORMS}.")
        path, colon, name = target.rpartition(":")
        if not name or (provider != "env" and not (path and colon)):
            raise BadInput(f"{found.group()} is incomplete; use {FORMS}.")


def _look_up(found: re.Match[str], environment: Mapping[str, str]) -> str:
    check_references(found.group())
    provider, target = found.groups()
    try:
        return _PROVIDERS[provider](target, environment)
    except BadInput as problem:
        raise BadInput(f"{found.group()} cannot be resolved: {problem}") from None


def _from_environment(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise BadInput(f"the environment variable {name} is not set in this process.")
    return environment[name]


def _from_file(target: str, _environment: Mapping[str, str]) -> str:
    path, _, key = target.rpartition(":")
    found = read_properties(path).get(key)
    if found is None:
        raise BadInput(f"{path} has no key {key}.")
    return found


def _from_directory(target: str, _environment: Mapping[str, str]) -> str:
    path, _, name = target.rpartition(":")
    if name in {".", ".."} or "/" in name:
        raise BadInput(f"{name} is not the plain name of a file in {path}.")
    return read_text(Path(path) / name).removesuffix("\n").removesuffix("\r")


_PROVIDERS = {"env": _from_environment, "file": _from_file, "dir": _from_directory}
