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
    a_mutant(
        "web7",
        "every look at a page asks Redis anew",
        "dashboard/test_calls.py::test_an_answer_is_shown_again_for_twenty_times_as_long_as_it_took[0.0-1.0]",
        Edit("fusion/dashboard/calls.py", "answer.until = self._clock() + max(", "answer.until = self._clock() - max("),
    ),
    a_mutant(
        "web8",
        "a token for some queues is told what runs in others",
        "web/test_scopes.py::test_own_things_look_as_if_nobody_else_were_there",
        Edit(
            "fusion/web/fleet.py",
            "running_jobs(inspector, workers, _RUNNING) if scope.allows(job.queue)]",
            "running_jobs(inspector, workers, _RUNNING)]",
        ),
    ),
    a_mutant(
        "web9",
        "a button mends what is no longer found",
        "dashboard/test_overview.py::test_a_cause_that_is_over_is_not_mended_twice",
        Edit("fusion/dashboard/pages/findings.py", "    if found is None:\n", "    if not label:\n"),
    ),
    a_mutant(
        "web10",
        "pages show what strangers wrote as if it were theirs",
        "dashboard/test_every_page.py::test_pages_escape_texts_of_strangers_and_hide_secrets",
        Edit("fusion/dashboard/frame.py", "autoescape=True", "autoescape=False"),
    ),
    a_mutant(
        "web11",
        "a page shows who may see less what it was told for another",
        "dashboard/test_every_page.py::test_a_token_for_one_queue_finds_nothing_of_another",
        Edit("fusion/dashboard/calls.py", "actor and actor.scopes, actor and actor.scope)", "actor and actor.scopes)"),
    ),
    a_mutant(
        "web12",
        "a page of any site may press a button of the dashboard",
        "dashboard/test_access.py::test_a_request_from_a_foreign_page_changes_nothing",
        Edit("fusion/dashboard/app.py", 'if site == "same-origin" or (', 'if site != "none" or ('),
    ),
)
