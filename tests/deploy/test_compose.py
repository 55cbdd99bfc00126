"""compose.yaml: against the schema of such files, and every command, flag and setting in it against ours."""

import base64
import subprocess
import sys
from typing import Any

import pytest
from tests.deploy.deployed import COMPOSE, ROOT, compose, entry_point, parsed

from twinlog.config.mirror import MirrorConfig
from twinlog.config.properties import read_properties
from twinlog.reo.settings import ReoSettings, environment_name, from_environment

SERVICES: dict[str, Any] = compose()["services"]
OURS = {"worker": "twinlog", "reo": "kafka-reo"}
BROKERS = ("source", "destination")


def test_the_file_is_as_its_specification_wants_it() -> None:
    """Checked with the schema that the specification's authors publish."""
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("service", OURS)
def test_command_lines_are_understood(service: str) -> None:
    """The entry point of the image and the words behind it make one valid command line; metrics are served."""
    told = SERVICES[service]
    assert told["image"] == told["build"]["target"] == OURS[service]
    given = parsed([*entry_point(told["build"]["target"]), *told.get("command", [])])
    # The port at which the image's own health check asks, and which is published.
    assert given.http == "0.0.0.0:9404"
    assert told["ports"][0].endswith(":9404")


def test_the_lines_that_make_the_mirror_are_understood() -> None:
    """Each of them, with the variable in front replaced."""
    variable, *lines = [line for line in SERVICES["mirror"]["command"][0].splitlines() if line]
    prefix = variable.partition('"')[2].rstrip('"')
    words = [line.replace("$$mirrors", prefix).partition(" > ")[0].split() for line in lines]
    actions = [parsed(one) for one in words]
    assert [given.create for given in actions] == [False, True, False]
    assert actions[1].mirror_config in SERVICES["mirror"]["volumes"][0]


def test_the_mirror_that_is_mounted_is_valid() -> None:
    """And exists, with the source's address in it."""
    path = SERVICES["mirror"]["volumes"][0].partition(":")[0]
    config = MirrorConfig.from_properties(read_properties(str(ROOT / path)), origin=path)
    assert config.source_settings().bootstrap == (("source", 9092),)


def test_the_environment_is_a_valid_copy() -> None:
    """Every variable is a setting, and together they suffice."""
    told = SERVICES["reo"]["environment"]
    values = from_environment(told)
    assert {environment_name(name) for name in values} == set(told)
    settings = ReoSettings.read(values, "compose.yaml")
    assert settings.target(settings.source_topic) == "payments-copy"


def test_what_is_waited_for_can_become_true() -> None:
    """A healthy service has a health check, of its own or its image's; one that completes is not restarted."""
    for name, told in SERVICES.items():
        for other, waits in told.get("depends_on", {}).items():
            if waits["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other] or other in OURS, name
            else:
                assert SERVICES[other]["restart"] == "no", name


@pytest.mark.parametrize("name", BROKERS)
def test_brokers_are_told_apart_and_can_be_reached(name: str) -> None:
    """Each has an id of a cluster as Kafka writes it, and advertises the name that others know it by."""
    told = SERVICES[name]["environment"]
    raw = base64.urlsafe_b64decode(told["CLUSTER_ID"] + "==")
    assert (len(raw), base64.urlsafe_b64encode(raw).decode().rstrip("=")) == (16, told["CLUSTER_ID"])
    assert told["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
    assert len({SERVICES[other]["environment"]["CLUSTER_ID"] for other in BROKERS}) == 2
