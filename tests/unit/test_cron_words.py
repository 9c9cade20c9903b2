"""Plans in words: from what they mean, whatever they are written like."""

from __future__ import annotations

import pytest

from fusion.cron.plan import Plan
from fusion.cron.words import expressed, in_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0,30 * * * *", "every 30 minutes"),
        ("5 * * * *", "every hour at :05"),
        ("5,20 * * * *", "every hour at :05 and :20"),
        ("0 */2 * * *", "every 2 hours"),
        ("30 */6 * * *", "every 6 hours from 00:30 on"),
        ("0 9 * * *", "every day at 09:00"),
        ("@daily", "every day at 00:00"),
        ("@weekly", "every Sunday at 00:00"),
        ("0 0 * * 7", "every Sunday at 00:00"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00"),
        ("30 4 * * 1-5", "Monday to Friday at 04:30"),
        ("0 9 * * MON,WED", "every Monday and Wednesday at 09:00"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45, Monday to Friday"),
        ("0 0 1,15 * *", "on the 1st and 15th of every month at 00:00"),
        ("0 0 L * *", "on the last day of every month at 00:00"),
        ("0 9 * * MON#2", "on the second Monday of every month at 09:00"),
        ("0 9 * * L5", "on the last Friday of every month at 09:00"),
        ("0 0 13 * 5", "on the 13th of every month and every Friday at 00:00"),  # either is enough
        ("@yearly", "on the 1st of January at 00:00"),
        ("0 0 1 */3 *", "on the 1st of January, April, July and October at 00:00"),
        ("0 3 * 7 SUN", "every Sunday in July at 03:00"),
        ("*/10 * * 6 *", "every 10 minutes, in June"),
    ],
)
def test_expressions(expression: str, words: str) -> None:
    assert expressed(expression) == words


@pytest.mark.parametrize("expression", ["*/7 * * * *", "0 0 */2 * *", "1,3,8,20,33,47,52 4,9 * * *", "0 0 1 1-11 *"])
def test_an_expression_without_a_short_description_has_none(expression: str) -> None:
    assert expressed(expression) == ""


@pytest.mark.parametrize(
    ("every", "words"),
    [(1, "every second"), (90, "every 90 seconds"), (300, "every 5 minutes"), (3600, "every hour"), ("2d", "every 2 days")],
)
def test_intervals(every: int | str, words: str) -> None:
    assert in_words(Plan.interval(every)) == words
