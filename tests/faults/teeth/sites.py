"""Mistakes about web applications: the worker of one, and Django projects."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant
from tests.faults.teeth.projects import OF_PROJECTS

OF_SITES = (
    a_mutant(
        "site1",
        "a forked web process keeps the worker's line open",
        "sidecar/test_server.py::test_a_forked_web_process_does_not_hold_up_the_end_of_a_worker",
        Edit("fusion/sidecar/keeper.py", "        keeper._forget()\n", "        pass\n"),
    ),
    a_mutant(
        "site2",
        "an application that a task imports starts a worker in the worker",
        "sidecar/test_embedded_worker.py::test_an_application_that_tasks_import_starts_none_in_the_worker",
        Edit("fusion/cli/child_flags.py", '    os.environ[SWITCH] = "0"\n', "    pass\n"),
        Edit("fusion/sidecar/embedded_worker.py", ', SWITCH: "0"}', "}"),
    ),
    a_mutant(
        "site3",
        "under a reloader the worker stays with the process that serves nobody",
        "sidecar/test_host_lock.py::test_a_process_started_by_the_lock_holder_requests_the_lock "
        "sidecar/test_server.py::test_under_a_reloader_the_process_that_serves_gets_the_worker",
        Edit("fusion/sidecar/host_lock.py", "if self.holder == os.getppid():", "if self.holder == 0:"),
    ),
    a_mutant(
        "site4",
        "the lock goes with the worker's last job, not with its last claim",
        "sidecar/test_server.py::test_a_successor_need_not_wait_for_the_last_job",
        Edit(
            "fusion/sidecar/keeper.py",
            "stop_by - time.monotonic()))\n        self._unlock()\n",
            "stop_by - time.monotonic()))\n",
        ),
    ),
    *OF_PROJECTS,
)
