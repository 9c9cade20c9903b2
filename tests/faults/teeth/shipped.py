"""Mistakes in the demo and in what is shipped for containers."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

OF_WHAT_IS_SHIPPED = (
    a_mutant(
        "ship1",
        "the demo leaves its dashboard behind",
        "cli/test_demo.py::test_it_ends_by_itself_and_its_table_adds_up",
        Edit(
            "tools/demo/demo.py",
            "looking = stack.enter_context(parts.child(server, env, served))",
            "looking = parts.spawn(server, env, served)",
        ),
    ),
    a_mutant(
        "ship2",
        "Docker kills workers before their jobs had the time to end",
        "deploy/test_compose.py::test_workers_get_the_time_that_they_ask_for",
        Edit("docker-compose.yml", "stop_grace_period: 215s", "stop_grace_period: 200s"),
    ),
    a_mutant(
        "ship3",
        "everybody in the network gets to an Elasticsearch without logins",
        "deploy/test_compose.py::test_each_service_is_closed_as_far_as_it_can_be",
        Edit(
            "docker-compose.yml",
            'volumes: ["elasticsearch:/usr/share/elasticsearch/data"]\n    networks: [elastic]',
            'volumes: ["elasticsearch:/usr/share/elasticsearch/data"]\n    networks: [default, elastic]',
        ),
    ),
    a_mutant(
        "ship4",
        "a worker that can't load its tasks is shown as idle",
        "doctor/test_incidents.py::test_a_worker_can_not_load_its_tasks",
        Edit("fusion/worker/worker.py", 'self.membership.note("unloaded", self.executors.unloaded[:_NOTE])', "pass"),
    ),
    a_mutant(
        "ship5",
        "a default task module that can't be imported stops a worker that has others",
        "worker/test_task_modules.py::test_a_default_module_that_can_not_be_imported_stops_no_worker_that_has_its_own",
        Edit("fusion/executors/generations.py", "if self._goes_on_without(session):", "if False:"),
    ),
)
