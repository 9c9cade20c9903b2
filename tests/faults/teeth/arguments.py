"""Mistakes about what tasks are given."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

_NOT_SAME = (
    '    if not same:\n        raise SerializationError(\n            f"a {_name(value)} would arrive as a plain {base.__name__}'
)
_BEFORE = "        if self._unread is not None and ("

OF_ARGUMENTS = (
    a_mutant(
        "arg1",
        "a value of a subclass goes as its base, whatever is lost of it",
        "unit/test_subclasses.py::test_one_that_would_be_another_value_is_refused_with_the_fix",
        Edit("fusion/kernel/json_types.py", _NOT_SAME, _NOT_SAME.replace("not same", "False")),
    ),
    a_mutant(
        "arg2",
        "unrelated tasks whose arguments can't be read share a failure group",
        "unit/test_subclasses.py::test_tasks_that_fail_before_they_begin_are_groups_of_their_own",
        Edit("fusion/execution/perform.py", _BEFORE, _BEFORE.replace("self._unread is not None", "False")),
    ),
)
