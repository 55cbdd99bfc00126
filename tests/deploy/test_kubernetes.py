"""The Kubernetes manifests: against the schemas of their kinds, against each other, and against our own settings."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import trustme
import yaml
from tests.deploy.deployed import (
    MANIFESTS,
    PRODUCTS,
    container,
    deployment,
    entry_point,
    manifests,
    of_kind,
    parsed,
    pod,
)

from twinlog.cli.reo import settings_from
from twinlog.config.client import read_client_file
from twinlog.config.mirror import MirrorConfig
from twinlog.config.properties import read_properties
from twinlog.reo.settings import environment_name, from_environment

IMAGES = {"worker": "twinlog", "reo": "kafka-reo"}
VERSIONS = ("1.30", "1.33", "1.36")
PLACEHOLDER = "-----BEGIN CERTIFICATE-----"

pytestmark = pytest.mark.parametrize("product", PRODUCTS)


def maps(product: str, kind: str) -> dict[str, dict[str, str]]:
    """The entries of each ConfigMap or Secret, by its name."""
    return {found["metadata"]["name"]: found.get("data", found.get("stringData")) for found in of_kind(product, kind)}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_manifest_is_as_its_kind_wants_it(product: str, version: str) -> None:
    """No field is unknown, missing, or of another type."""
    kinds = []
    for found in manifests(product):
        kubernetes_validate.validate(found, version, strict=True)
        kinds.append(found["kind"])
    assert {"Deployment", "ConfigMap", "Secret", "PodDisruptionBudget"} <= set(kinds)


def test_the_kustomization_lists_every_file_and_the_image(product: str) -> None:
    """What stands in the folder is applied."""
    folder = MANIFESTS / product
    told = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    assert {"kustomization.yaml", *told["resources"]} == {path.name for path in folder.iterdir()}
    assert [image["name"] for image in told["images"]] == [container(product)["image"]] == [IMAGES[product]]


def test_selectors_find_the_pods(product: str) -> None:
    """Those of the Deployment, and those of the budget for disruptions."""
    labels = deployment(product)["spec"]["template"]["metadata"]["labels"]
    (budget,) = of_kind(product, "PodDisruptionBudget")
    for found in (deployment(product), budget):
        assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_a_drain_is_never_kept_from_ending(product: str) -> None:
    """At least one pod of the Deployment may be away."""
    (budget,) = of_kind(product, "PodDisruptionBudget")
    spec = budget["spec"]
    assert spec.get("maxUnavailable", deployment(product)["spec"]["replicas"] - spec.get("minAvailable", 0)) >= 1


def test_probes_ask_for_pages_that_are_served(product: str) -> None:
    """At the port that the command line serves; only readiness depends on the clusters."""
    told = container(product)
    given = parsed([*entry_point(IMAGES[product]), *told["args"]])
    (port,) = told["ports"]
    assert given.http.endswith(f":{port['containerPort']}")
    pages = {name: told[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {page["port"] for page in pages.values()} == {port["name"]}
    assert [page["path"] for page in pages.values()] == ["/healthz", "/healthz", "/readyz"]


def test_the_pod_has_no_right_that_it_does_not_need(product: str) -> None:
    """No root, no capability, no writing, no token; and memory has a bound."""
    told, inside = pod(product), container(product)
    assert told["securityContext"]["runAsNonRoot"] is True
    assert (told["securityContext"]["runAsUser"], told["automountServiceAccountToken"]) == (10001, False)
    own = inside["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= inside["resources"]["requests"].keys()
    assert "memory" in inside["resources"]["limits"]


def test_volumes_and_variables_lead_somewhere(product: str) -> None:
    """Every ConfigMap, Secret and key that a pod names is in the same folder."""
    known = maps(product, "ConfigMap"), maps(product, "Secret")
    volumes = {one["name"]: one for one in pod(product)["volumes"]}
    assert {mount["name"] for mount in container(product)["volumeMounts"]} == set(volumes)
    for one in volumes.values():
        assert one.get("configMap", {}).get("name") in known[0] or one["secret"]["secretName"] in known[1]
    for one in container(product).get("env", []):
        reference = one["valueFrom"]["configMapKeyRef"]
        assert reference["key"] in known[0][reference["name"]]
    for one in container(product).get("envFrom", []):
        assert one["secretRef"]["name"] in known[1]


def mounted(product: str, folder: Path) -> dict[str, str]:
    """Write what the pod has mounted below `folder`; returns where each of its own folders is then.

    The certificates are placeholders; one that can be read takes their place.
    """
    certificate = trustme.CA().cert_pem.bytes().decode()
    found: dict[str, str] = {}
    for mount in container(product)["volumeMounts"]:
        (volume,) = (one for one in pod(product)["volumes"] if one["name"] == mount["name"])
        secret = "secret" in volume
        entries = maps(product, "Secret" if secret else "ConfigMap")
        name = volume["secret"]["secretName"] if secret else volume["configMap"]["name"]
        found[mount["mountPath"]] = str(folder / mount["name"])
        Path(found[mount["mountPath"]]).mkdir()
        for key, value in entries[name].items():
            text = certificate if PLACEHOLDER in value else value
            Path(found[mount["mountPath"]], key).write_text(text, "utf-8")
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_text(replaced(path.read_text("utf-8"), found), "utf-8")
    return found


def replaced(text: str, folders: dict[str, str]) -> str:
    """A text with the pod's folders replaced by those where they are here."""
    for inside, here in folders.items():
        text = text.replace(inside, here)
    return text


def test_what_is_mounted_is_valid_configuration(product: str, tmp_path: Path) -> None:
    """Read as the product reads it, with passwords and certificates in their places."""
    folders = mounted(product, tmp_path)
    config = Path(folders["/etc/twinlog/config"])
    given = parsed([*entry_point(IMAGES[product]), *(replaced(word, folders) for word in container(product)["args"])])
    check = CHECKS[product]
    check(given, config)


def check_worker(given: Any, config: Path) -> None:
    """The destination's client settings, and the mirror."""
    settings = read_client_file(given.command_config, bootstrap=(config / "destination").read_text("utf-8"))
    assert not settings.unknown
    assert settings.security.sasl is not None
    mirror = MirrorConfig.from_properties(read_properties(str(config / "mirror.properties")), origin="the mirror")
    assert len(mirror.source_settings().bootstrap) == 2


def check_reo(given: Any, _config: Path) -> None:
    """The file together with the variables of the Secret, each of which is a setting."""
    variables = maps("reo", "Secret")["kafka-reo"]
    assert {environment_name(name) for name in from_environment(variables)} == set(variables)
    settings, sentences = settings_from(given, variables)
    assert sentences == ()
    assert settings.source is not None
    assert (settings.source.unknown, settings.destination.unknown) == ((), ())
    assert settings.source.security.sasl is not None


CHECKS = {"worker": check_worker, "reo": check_reo}
