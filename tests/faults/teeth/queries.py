"""Mistakes about finding jobs by a query."""

from __future__ import annotations

from tests.faults.teeth.edits import Edit, a_mutant

OF_QUERIES = (
    a_mutant(
        "query1",
        "a page goes on behind all that have the score of its last job",
        "store/test_search.py::test_each_that_stays_is_met_once_while_others_come_and_go",
        Edit(
            "fusion/store/read/walk.py",
            "return place < other if self._descending else place > other",
            "return place[0] < other[0] if self._descending else place[0] > other[0]",
        ),
    ),
    a_mutant(
        "query2",
        "whoever asks for failed jobs means Fusion's own deliveries as well",
        "store/test_query.py::test_fusions_own_queues_are_meant_only_by_their_name_or_a_jobs_id",
        Edit(
            "fusion/store/query/grammar.py",
            'if not self._tells_queues and self._reserved(row.get("origin"), row.get("original_queue")):',
            "if False:",
        ),
    ),
    a_mutant(
        "query3",
        "that a search ended before the last job is not said",
        "store/test_search.py::test_a_search_without_an_index_reads_the_newest_jobs",
        Edit("fusion/store/read/search_inspector.py", "cut, goes_on = behind and not stage.exact, ", "cut, goes_on = False, "),
    ),
    a_mutant(
        "query4",
        "an answer tells a restricted token how many jobs of others were passed",
        "store/test_search.py::test_a_search_tells_nothing_of_queues_outside_its_scope",
        Edit("fusion/store/read/search_inspector.py", "            total = looked\n", "            pass\n"),
    ),
    a_mutant(
        "query5",
        "a page whose time is over goes on behind what it had found, not behind what it had looked at",
        "store/test_search_time.py::test_a_search_without_an_index_is_bounded_over_all_pages",
        Edit(
            "fusion/store/read/search_inspector.py",
            "                looked, seen = looked + 1, member.place\n                if self._fits(state, member):\n",
            "                looked = looked + 1\n                if self._fits(state, member):\n                    seen = member.place\n",
        ),
    ),
    a_mutant(
        "query6",
        "a restricted token is told the place of another's job where the time of a page was over",
        "store/test_search_time.py::test_the_next_page_tells_nothing_of_jobs_outside_the_scope",
        Edit(
            "fusion/store/read/search_inspector.py",
            "                passed += 1\n",
            "                passed, seen = passed + 1, member.place\n",
        ),
    ),
    a_mutant(
        "query7",
        "of a search that goes on the next page looks at 10,000 jobs more",
        "store/test_search_time.py::test_a_search_without_an_index_is_bounded_over_all_pages",
        Edit("fusion/store/read/search_inspector.py", "else LOOKED - looked\n", "else LOOKED\n"),
    ),
    a_mutant(
        "query8",
        "wildcards look through the whole of a text, however long it is",
        "store/test_query.py::test_no_job_is_matched_for_long_whatever_it_is_called[3]",
        Edit("fusion/store/query/patterns.py", "one.match(text, 0, SEEN)", "one.match(text)"),
    ),
    a_mutant(
        "query9",
        "a name that is too long is refused where it comes in, and not where a worker meets it",
        "forkserver/test_horse.py::test_a_name_that_is_too_long_fails_where_it_is_met[67]",
        Edit("fusion/kernel/importing.py", "    check_length(path)\n", ""),
    ),
)
