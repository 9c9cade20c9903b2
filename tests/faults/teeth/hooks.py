"""Mistakes about middleware."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

_HOOKED = "fusion/enqueue/hooked.py"

OF_HOOKS = (
    a_mutant(
        "hook1",
        "a call that a hook has refused is sent by who holds it",
        "domain/test_middleware.py::test_a_hook_that_raises_refuses_the_call_and_is_named",
        Edit(_HOOKED, "                    self.held.dropped = True\n", "                    self.held.ready = True\n"),
    ),
    a_mutant(
        "hook2",
        "a call that was repeated is told of twice",
        "domain/test_middleware.py::test_hooks_see_a_repeated_call_once",
        Edit(_HOOKED, "        self._is_told = True\n", ""),
    ),
    a_mutant(
        "hook3",
        "held calls that share one share its refusal",
        "domain/test_middleware.py::test_held_calls_are_sent_together_each_with_its_own_error",
        Edit(
            _HOOKED,
            "        except FusionError:\n            return False\n",
            "        except FusionError as error:\n            self._found.update((nth, error) for nth in group)\n            return True\n",
        ),
    ),
    a_mutant(
        "hook4",
        "what is to come after a task does not when it failed",
        "worker/test_middleware.py::test_each_hook_is_called_and_none_changes_how_a_job_ends[process]",
        Edit("fusion/execution/hooks.py", "        while self._entered:\n", "        while self._entered and error is None:\n"),
    ),
)
