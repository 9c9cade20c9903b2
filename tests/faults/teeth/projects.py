"""Mistakes about Django projects."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

_COMMITS = "fusion/contrib/django/commits.py"
_RESULTS = "fusion/contrib/django/results.py"

OF_PROJECTS = (
    a_mutant(
        "project1",
        "all staff of a Django project may put back and cancel",
        "contrib/test_dashboard.py::test_staff_may_look_and_change_what_its_permissions_say",
        Edit("fusion/contrib/django/dashboard.py", 'if user.has_perm(name)), "read")', 'if user.has_perm(name)), "operate")'),
    ),
    a_mutant(
        "project2",
        "an app that starts threads as it is set up keeps task modules from being loaded at all",
        "contrib/test_commands.py::test_apps_that_start_threads_are_set_up_by_each_process",
        Edit(
            "fusion/executors/generations.py",
            "self._modules if module in (self._settings.setup or ()) else (*self._late, module)",
            "(*self._late, module)",
        ),
    ),
    a_mutant(
        "project3",
        "a connection that broke between two jobs is used again",
        "contrib/test_databases.py::test_jobs_keep_their_connection_and_none_fails_for_one_that_broke",
        Edit("fusion/contrib/django/setup.py", "_register(_Connections)\n", ""),
    ),
    a_mutant(
        "shop1",
        "a row that a job has locked is not",
        "contrib/whole/test_transactions.py::test_two_workers_wait_for_each_others_row[PostgreSQL]",
        Edit("fusion/contrib/django/models.py", ".select_for_update()", ""),
    ),
    a_mutant(
        "commit1",
        "what is enqueued in a transaction is sent before its commit",
        "contrib/test_commits.py::test_jobs_are_sent_at_the_commit_in_their_order"
        " contrib/test_commits.py::test_jobs_of_a_rolled_back_savepoint_are_dropped",
        Edit(_COMMITS, "if not (aliases := _open_aliases()):", "if not (aliases := []):"),
    ),
    a_mutant(
        "commit2",
        "what a savepoint has rolled back is sent with the rest of its transaction",
        "contrib/test_commits.py::test_jobs_of_a_rolled_back_savepoint_are_dropped",
        Edit(_COMMITS, "self._parts.append(ref(part))", "self._parts.append(lambda: part)"),
    ),
    a_mutant(
        "commit3",
        "a job that waits for two databases is sent when one is committed",
        "contrib/test_commits.py::test_a_job_waits_for_each_transaction_that_is_open",
        Edit(_COMMITS, "_Wait(enqueueing.hold(), aliases)", "_Wait(enqueueing.hold(), aliases[:1])"),
    ),
    a_mutant(
        "commit4",
        "of several calls that are refused after a commit one is raised, and hides the others",
        "contrib/test_commits.py::test_a_refused_enqueue_raises_after_the_commit",
        Edit(_COMMITS, "    if len(errors) == 1:\n", "    if errors:\n"),
    ),
    a_mutant(
        "task1",
        "a task's number of priority is that of its class",
        "contrib/test_tasks.py::test_each_priority_has_its_place_and_keeps_its_number[-100-0]"
        " contrib/test_tasks.py::test_recurring_declares_an_entry_with_what_the_task_says",
        Edit(_RESULTS, '        found["priority"] = int(task.priority)\n', "        pass\n"),
    ),
    a_mutant(
        "task2",
        "what was enqueued as a task is run though it is none where the worker is",
        "contrib/test_tasks.py::test_a_worker_runs_tasks_and_their_results_say_how",
        Edit("fusion/contrib/django/running.py", "        if record.mark is not None:\n", "        if record.mark is None:\n"),
    ),
)
