"""What the fork server gets when it imports the tasks, and what a forked job does with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tasks.sandbox import Sandbox
from tests.tasks.conftest import ROOT

IMPORTS = "import sys, tasks.sms, tasks.email, tasks.pn, tasks.webhook, tasks.whatsapp\n"


def run(code: str, **more: str) -> str:
    command = [sys.executable, "-W", "error", "-c", IMPORTS + code]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_tasks_stays_lean_and_opens_nothing() -> None:
    heavy = "{'redis', 'asyncio', 'boto3', 'google.auth', 'tasks.sandbox'}"
    output = run(
        "import os, stat, threading\n"
        f"print(sorted({heavy} & set(sys.modules)), threading.active_count(),"
        " sum(stat.S_ISSOCK(os.stat(f'/dev/fd/{fd}').st_mode) for fd in range(3, 64) if os.path.exists(f'/dev/fd/{fd}')))"
    )
    assert output.split() == ["[]", "1", "0"]


def test_a_choice_that_can_not_work_does_not_break_the_import() -> None:
    run("", FUSION_SMS_PROVIDER="sns", FUSION_EMAIL_PROVIDER="ses", FUSION_PN_PROVIDER="fcm", FUSION_FCM_CREDENTIALS="/nowhere")
    run("", FUSION_SMS_PROVIDER="carrier-pigeon")


@pytest.mark.long
def test_every_forked_job_has_a_connection_of_its_own(sandbox: Sandbox) -> None:
    output = run(
        "import os\n"
        "children = []\n"
        "for n in range(20):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        code = 1\n"
        "        try:\n"
        "            tasks.sms.sendSMS({'to': f'+99920155512{n:02d}', 'text': 'x'})\n"
        "            tasks.email.sendEmail({'to': f'a{n}@example.com', 'subject': 's', 'text': 'x'})\n"
        "            code = 0\n"
        "        finally:\n"
        "            os._exit(code)\n"
        "    children.append(pid)\n"
        "print(sum(os.waitpid(pid, 0)[1] for pid in children))"
    )
    assert output.split() == ["0"]
    assert {one["to"] for one in sandbox.deliveries()} == {f"+99920155512{n:02d}" for n in range(20)} | {
        f"a{n}@example.com" for n in range(20)
    }
    assert sandbox.stats()["total"] == 40


@pytest.mark.parametrize("name", ["sms", "email", "pn", "webhook", "whatsapp"])
def test_every_provider_variable_is_in_the_table(name: str) -> None:
    import tasks.providers

    assert tasks.providers.__doc__ is not None
    assert f"FUSION_{name.upper()}_PROVIDER " in tasks.providers.__doc__
