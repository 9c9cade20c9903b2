"""Mistakes about deleted jobs, and about who changed what."""

from __future__ import annotations

from tests.faults.teeth.edits import LUA, Edit, a_mutant

OF_TRASH = (
    a_mutant(
        "trash1",
        "the trash keeps as many as come",
        "store/test_trash.py::test_full_by_count_and_by_bytes",
        Edit(LUA + "include/trash/trash.lua", " or trash_count >= MOST_TRASH then", " then"),
    ),
    a_mutant(
        "trash2",
        "what comes back takes the place of a job that lives",
        "store/test_trash.py::test_a_job_that_cannot_be_restored_says_why",
        Edit(LUA + "restore.lua", "  if redis.call('EXISTS', key) == 1 then return 'taken' end\n", ""),
    ),
    a_mutant(
        "trash3",
        "a job that others kept from being forgotten comes back for ever",
        "store/test_trash.py::test_one_that_others_kept_from_being_forgotten_has_its_time_when_it_comes_back[its-batch]",
        Edit(LUA + "restore.lua", " or score == 'inf' and seconds >= 0 then", " then"),
    ),
    a_mutant(
        "audit1",
        "a change that can not be written down is not made",
        "cli/test_audit.py::test_a_change_is_made_though_it_cant_be_written_down",
        Edit(
            "fusion/audit.py",
            "            if isinstance(error, FusionError) and reply_code(cause) not in _REFUSED:\n                raise\n",
            "            raise\n",
        ),
    ),
    a_mutant(
        "audit2",
        "who may append to the audit may shorten it",
        "store/test_acl_audit.py::test_a_user_of_the_audit_can_only_append",
        Edit("fusion/store/layout/acl.py", "(~{prefix}audit +xadd)", "(~{prefix}audit +xadd +xtrim)"),
    ),
)
