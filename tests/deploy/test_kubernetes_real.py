"""deploy/kubernetes against the schemas of Kubernetes and KEDA, in a venv of their own, and its commands against a real Redis."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from fusion.web.auth import digest_of
from tests.deploy.compose import Process
from tests.deploy.manifests import CONFIG, KEDA, OBJECTS, PODS, Pod
from tests.jobs import basic
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

#: 108 MB of schemas, and models that are made from KEDA's own. Both in no venv of the project's.
PACKAGES = ("kubernetes-validate>=1.37,<2", "cloudcoil.models.keda>=2.16")
_CHECK = """
import json, sys
import kubernetes_validate
from cloudcoil.models.keda.v1alpha1 import ScaledObject

faults = []
for found in json.load(sys.stdin):
    name = f"{found['kind']} {found['metadata']['name']}"
    try:
        if found["kind"] == "ScaledObject":
            # The model ignores names that it does not know: they are missing in what it gives back.
            read = ScaledObject.model_validate(found).model_dump(mode="json", by_alias=True, exclude_none=True)
            assert read == found, f"unknown: {read} != {found}"
        else:
            for version in sys.argv[1:]:
                kubernetes_validate.validate(found, version, strict=True)
    except Exception as error:
        faults.append(f"{name}: {str(error).splitlines()[0]}")
print(json.dumps(faults))
"""
VERSIONS = ("1.29", "1.33", "1.37")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has them."""
    home = tmp_path_factory.mktemp("schemas")
    subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=60)
    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *PACKAGES]
    had = subprocess.run(pip, capture_output=True, text=True, timeout=200, check=False)
    if had.returncode:
        pytest.skip(f"the schemas can't be installed here: {had.stderr.strip().splitlines()[-1]}")
    return home / "bin" / "python"


def faults(python: Path, objects: list[dict[str, Any]]) -> list[str]:
    done = subprocess.run(
        [python, "-c", _CHECK, *VERSIONS], input=json.dumps(objects), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_every_object_follows_the_schema_of_its_kind(schemas: Path) -> None:
    assert faults(schemas, OBJECTS) == []


def changed(found: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy = whole = json.loads(json.dumps(found))
    *parents, last = path.split("/")
    for name in parents:
        copy = copy[int(name)] if name.isdigit() else copy[name]
    copy[last] = value
    return dict(whole)


def test_the_schemas_refuse_wrong_objects(schemas: Path) -> None:
    worker = PODS["fusion-worker"].deployment
    (budget,) = [one for one in OBJECTS if one["kind"] == "PodDisruptionBudget" and one["metadata"]["name"] == "fusion-worker"]
    container = "spec/template/spec/containers/0"
    wrong = [
        changed(worker, "spec/replica", 2),
        changed(worker, "spec/template/spec/terminationGracePeriodSeconds", "215s"),
        changed(worker, f"{container}/livenessProbe/httpGet/paths", "/livez"),
        changed(worker, f"{container}/args", "start"),
        changed(budget, "spec/maxUnavailabe", 1),
        changed(KEDA, "spec/minReplicaCont", 1),
        changed(KEDA, "spec/triggers/0/metadata/threshold", {"of": 50}),
        changed(KEDA, "spec/scaleTargetRef", {"kind": "Deployment"}),
    ]
    found = faults(schemas, wrong)
    assert len(found) == len(wrong), found


class Started:
    """A container's process, at a port of this machine."""

    def __init__(self, pod: Pod, directory: Path, redis_url: str) -> None:
        secrets = directory / "secrets"
        secrets.mkdir(exist_ok=True)
        (secrets / "server_tokens").write_text(f"operator:admin:{digest_of('fusion_' + '0' * 64)}\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        args = [word.replace("/run/secrets/fusion", str(secrets)) for word in pod.args]
        args[args.index(pod.port_flag) + 1] = str(self.port)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("FUSION_", "RQ_", "REDIS_"))}
        # This Redis has no password; the image has tasks of its own.
        given = {**CONFIG, "FUSION_REDIS_URL": redis_url, "FUSION_TASKS": "tests.jobs.basic"}
        del given["FUSION_REDIS_PASSWORD_FILE"]
        command = [sys.executable, "run_worker.py", *args]
        self.pod, self.process = pod, Process(directory / f"{pod.name}.log", command, clean | given)

    def answer(self, kind: str) -> int:
        """The status that a kubelet gets; 0 for no connection. It sends the pod's address as Host."""
        probe = self.pod.probes[kind]
        connection = HTTPConnection("127.0.0.1", self.port, timeout=probe["timeoutSeconds"])
        try:
            if "tcpSocket" in probe:
                connection.connect()
                return 200
            connection.request("GET", probe["httpGet"]["path"], headers={"Host": f"10.1.2.3:{self.port}"})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("name", list(PODS))
def test_each_command_answers_its_probes_and_ends_by_term(
    name: str, stack: ExitStack, tmp_path: Path, conn: redis.Redis, redis_url: str
) -> None:
    started = Started(PODS[name], tmp_path, redis_url)
    stack.callback(started.process.stop)
    for kind in ("liveness", "readiness"):
        started.process.until(lambda kind=kind: started.answer(kind) == 200, 120, kind)  # type: ignore[misc]
    job = None
    if name == "fusion-worker":
        job = Queue("sms", conn).enqueue(basic.sleep, 3)
        eventually(lambda: job.get_status() == "started", 30, why="the job runs")  # type: ignore[union-attr]
    started.process.signal(signal.SIGTERM)
    if job:
        eventually(lambda: started.answer("readiness") in (0, 503), 5, why="no longer ready")
    assert started.process.wait(started.pod.spec["terminationGracePeriodSeconds"]) == 0, started.process.output
    assert job is None or Job.fetch(job.id, conn).get_status() == "finished", "TERM is the warm end"
    assert not re.search(r'"level": "(ERROR|CRITICAL)"', started.process.output)
