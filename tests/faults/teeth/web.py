"""Mistakes about the HTTP service: what a token for some queues may see, and what leaves it as a file."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

OF_WEB = (
    a_mutant(
        "web1",
        "a token for some queues asks about all of them",
        "web/test_scopes.py::test_routes_about_all_queues_are_closed",
        Edit("fusion/web/app.py", "if not (route.by_queue or request.scope.all):", "if False:"),
    ),
    a_mutant(
        "web2",
        "a token for some queues sees jobs of others",
        "web/test_scopes.py::test_what_is_anothers_is_answered_like_what_is_not_there",
        Edit("fusion/jobs/visible.py", "    if scope.all:\n", "    if scope.all or row:\n"),
    ),
    a_mutant(
        "web3",
        "a token for some queues replaces a job of another by its unique key",
        "web/test_scopes.py::test_ids_and_unique_keys_of_others_are_taken_without_a_word_of_whose",
        Edit("fusion/web/within.py", "    if unique_key and (holder := ", "    if not unique_key and (holder := "),
    ),
    a_mutant(
        "web4",
        "a token counts after its end",
        "web/test_closed_by_default.py::test_an_expired_token_is_told_so",
        Edit("fusion/web/auth.py", "known.expires <= now()", "known.expires > now()"),
    ),
    a_mutant(
        "web5",
        "a name that begins like a formula is one in a spreadsheet",
        "web/test_export.py::test_cells",
        Edit("fusion/web/export.py", '_FORMULA = frozenset("=+-@")', '_FORMULA = frozenset("=")'),
    ),
    a_mutant(
        "web6",
        "a page of any site may ask for changes",
        "web/test_cors.py::test_others_are_told_nothing",
        Edit("fusion/web/app.py", "        if not self._cors.allows(request):\n", "        if False:\n"),
    ),
)
