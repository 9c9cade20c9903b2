"""deploy/kubernetes: what its objects name is there: flags, settings, probes, files, labels, metrics. tests/deploy/test_kubernetes_real.py
has the schemas and the processes."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from click.testing import CliRunner

from fusion.cli.main import cli
from fusion.kernel import defaults
from fusion.settings.settings import Settings
from fusion.web.api import Api
from tests.deploy.manifests import CONFIG, FILES, KEDA, OBJECTS, PLACE, PODS, Pod, documents
from tests.kit.process import ROOT
from tests.metrics.queries import metric_of, named

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
each_pod = pytest.mark.parametrize("pod", PODS.values(), ids=list(PODS))


def test_the_kustomization_lists_every_file_and_changes_nothing_but_the_image() -> None:
    (found,) = documents("kustomization.yaml")
    assert set(found) == {"apiVersion", "kind", "resources", "images"}
    assert {*found["resources"], "kustomization.yaml", "keda.yaml"} == {file.name for file in FILES}
    assert {one["name"] for one in found["images"]} == {pod.container["image"] for pod in PODS.values()}


@each_pod
def test_the_program_knows_its_command_and_flags(pod: Pod) -> None:
    result = CliRunner().invoke(cli, [*pod.args, "--help"])
    assert result.exit_code == 0, result.output


def test_every_variable_is_a_setting() -> None:
    names = {f"FUSION_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert set(CONFIG) <= names
    assert Settings.load(env=CONFIG).log_json, "all values are of their kinds"
    assert all(pod.container["envFrom"] == [{"configMapRef": {"name": "fusion"}}] for pod in PODS.values())


@each_pod
def test_a_kubelet_reaches_its_probes(pod: Pod) -> None:
    (port,) = pod.container["ports"]
    assert str(port["containerPort"]) == pod.flag(pod.port_flag)
    assert pod.flag(pod.port_flag.replace("port", "host")) == "0.0.0.0"
    paths = {kind: probe.get("httpGet", {}).get("path") for kind, probe in pod.probes.items()}
    assert {(probe.get("httpGet") or probe["tcpSocket"])["port"] for probe in pod.probes.values()} == {port["name"]}
    if pod.name == "fusion-server":
        assert paths == {"liveness": None, "readiness": "/readyz"}
        assert "/readyz" in {route.path for route in Api(cast(Any, None), ()).probes()}
    else:
        assert paths == {"liveness": "/livez", "readiness": "/readyz"}
    assert all(probe["timeoutSeconds"] >= 3 for probe in pod.probes.values())


def test_a_worker_gets_the_time_that_it_asks_for_and_its_jobs_theirs() -> None:
    pod = PODS["fusion-worker"]
    asked = float(pod.flag("--shutdown-timeout"))
    assert pod.spec["terminationGracePeriodSeconds"] >= asked + 20
    assert asked >= defaults.JOB_TIMEOUT + defaults.TIMEOUT_GRACE


@each_pod
def test_labels_choose_the_pods_that_they_are_meant_for(pod: Pod) -> None:
    labels = pod.deployment["spec"]["template"]["metadata"]["labels"]
    assert pod.deployment["spec"]["selector"]["matchLabels"] == labels == pod.deployment["metadata"]["labels"]
    (budget,) = [one for one in OBJECTS if one["kind"] == "PodDisruptionBudget" and one["metadata"]["name"] == pod.name]
    assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    assert pod.deployment["spec"]["replicas"] >= 2, "or a drain of a node leaves none, or waits for ever"
    assert sum(one["spec"]["template"]["metadata"]["labels"] == labels for one in OBJECTS if one["kind"] == "Deployment") == 1


def test_the_service_leads_to_the_server_and_the_server_answers_to_its_name() -> None:
    (service,) = [one for one in OBJECTS if one["kind"] == "Service"]
    server = PODS["fusion-server"]
    assert service["spec"]["selector"] == server.deployment["metadata"]["labels"]
    ((port,), (there,)) = service["spec"]["ports"], server.container["ports"]
    assert (port["targetPort"], port["port"]) == (there["name"], there["containerPort"])
    assert service["metadata"]["name"] in CONFIG["FUSION_SERVER_ALLOWED_HOSTS"].split(",")


@each_pod
def test_secrets_are_files_that_the_script_makes_and_the_page_hands_over(pod: Pod) -> None:
    mounts = {one["name"]: one["mountPath"] for one in pod.container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod.spec["volumes"]}
    assert set(mounts) == set(volumes) == {"secrets", "tmp"}
    used = re.findall(rf"{mounts['secrets']}/(\w+)", " ".join([*pod.args, *CONFIG.values()]))
    made = re.findall(r"secrets/(\w+)", (ROOT / "deploy" / "secrets.sh").read_text())
    assert used and set(used) <= set(made)
    assert all(f"--from-file=secrets/{name}" in PAGE for name in used)
    assert f"create secret generic {volumes['secrets']['secret']['secretName']} " in PAGE


@each_pod
def test_a_pod_is_closed_as_far_as_it_can_be(pod: Pod) -> None:
    (uid,) = re.findall(r"^USER (\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert pod.spec["securityContext"]["runAsUser"] == int(uid)
    assert pod.spec["securityContext"]["runAsNonRoot"] is True
    assert (pod.spec["automountServiceAccountToken"], pod.spec["enableServiceLinks"]) == (False, False)
    closed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert pod.container["securityContext"] == closed
    assert set(pod.container["resources"]) == {"requests", "limits"}


def test_keda_scales_the_workers_by_a_query_of_the_metrics() -> None:
    assert KEDA["spec"]["scaleTargetRef"]["name"] in PODS
    (trigger,) = KEDA["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    assert all(metric_of(name) for name in named(query))
    inner = re.fullmatch(r"sum\((.*)\)", query)  # KEDA takes one number, not one for each queue
    assert inner and f"`{inner[1]}`" in (ROOT / "docs" / "metrics.md").read_text()
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert KEDA["spec"]["minReplicaCount"] >= 2 and query in PAGE


def test_the_page_names_each_object_and_only_files_that_exist() -> None:
    for name in {one["metadata"]["name"] for one in OBJECTS}:
        assert f"`{name}`" in PAGE, name
    assert [path for path in re.findall(r"(?<!exec )\bdeploy/[\w./-]+\w", PAGE) if not (ROOT / path).exists()] == []
    assert "kubectl apply -k deploy/kubernetes" in PAGE
    assert re.search(r"never (been )?run", PAGE)
    assert {file.name for file in PLACE.iterdir()} == {file.name for file in FILES}
