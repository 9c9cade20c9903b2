"""Whatever strangers wrote into Redis, and whatever secrets jobs were given: every command that reads, in both its forms, is clean of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
import redis
from click.testing import CliRunner

from fusion import Queue, Retry
from fusion.cli.main import COMMANDS, cli
from fusion.store.write.broker import Broker
from tests.cli.conftest import Hands
from tests.cli.outbox_hands import database
from tests.cli.test_output import BAD, EVIL, plant
from tests.jobs import basic
from tests.store.batch_hands import begin

#: Alphabetic, so that no rule finds it by its form.
SECRET = "zqxjkvsecret"
#: Run for ever, change something, print a script or a token: they have no document to give.
NO_DOCUMENT = {
    *(
        "worker",
        "start",
        "scheduler",
        "relay",
        "server",
        "dashboard",
        "metrics",
        "server token",
        "enqueue",
        "empty",
        "completion",
    ),
    *("suspend", "resume", "pause", "unpause", "quiet", "unquiet", "queue set", "redis start", "redis stop"),
    *("limit set", "limit pause", "limit resume", "limit release", "cron run", "cron pause", "cron resume", "cron remove"),
    *("debug script", "events replay", "events forget", "events setup", "trash empty"),
}
#: Change something, and tell what as a document if that is asked for; so do subcommands of such names.
CHANGES = {"requeue", "quarantine", "cancel", "stop", "reschedule", "delete", "reprioritise"}
VERBS = {"cancel", "retry", "run", "restore", "copy", "remove", "delete", "purge"}
#: What stands for the arguments of a command.
ARGUMENTS = {
    "job show": ["secret"],
    "tree": ["secret"],
    "batch show": ["batch"],
    "batch graph": ["batch"],
    "limit show": ["k"],
    "cron next": ["e"],
    "cron history": ["e"],
    "cron validate": ["tests.jobs.basic"],
    "health": ["--worker", "nobody"],
    "outbox status": ["--database", database()],
}


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for one, below in command.commands.items():
            yield from leaves(f"{name} {one}", below)
        if not command.invoke_without_command:
            return
    yield name, command


def commands() -> dict[str, click.Command]:
    """All, by what is typed."""
    found = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        found |= dict(leaves(name, command))
    return found


def reading() -> dict[str, click.Command]:
    return {
        name: command
        for name, command in commands().items()
        if name not in NO_DOCUMENT | CHANGES and not (" " in name and name.split()[-1] in VERBS)
    }


def arguments_of(name: str, command: click.Command) -> list[str]:
    """Those of the table; else ids that nobody has."""
    required = [one for one in command.params if isinstance(one, click.Argument) and one.required]
    return ARGUMENTS.get(name, ["nobody"] * len(required))


def _has(command: click.Command, flag: str) -> bool:
    return any(flag in option.opts for option in command.params)


def plant_more(conn: redis.Redis, hands: Hands) -> None:
    """Besides what `plant` has: what is no UTF-8, what is very long, and secrets."""
    given = {"password": SECRET, "headers": {"Authorization": f"Bearer {SECRET}"}, "nested": [{"api_key": SECRET}]}
    url = f"https://hooks.invalid/{SECRET}?token={SECRET}"
    for job_id in ("secret", "waiting"):
        Queue("sms").enqueue_call(
            basic.noop,
            (),
            given,
            job_id=job_id,
            retry=Retry(max=0),
            success_task_handler=url,
            failed_task_handler=url,
            concurrency_key="k",
            max_concurrent=1,
        )
    worker = hands("sms", name="failing.1").register()
    worker.end("failed", worker.turn(slots=1))
    conn.hset("rq:job:secret", mapping={"exc_info": "x" * 1_000_000 + EVIL, "error_frame": b"\xff\xfe" + EVIL.encode()})
    begin(Broker(conn), "batch")
    plant(conn)
    conn.delete("rq:schema")
    conn.hset("rq:job:j", mapping={"description": b"\xff\xfe" + EVIL.encode(), "log_tag": b"\xff" + EVIL.encode()})
    conn.zadd("rq:queue:failed", {b"\xff\xfe": 3})
    conn.sadd("rq:queues", b"rq:queue:\xff")


def test_every_command_that_reads_has_a_document() -> None:
    assert NO_DOCUMENT | ARGUMENTS.keys() <= commands().keys(), "no row of a command that there is not"
    assert [name for name, command in reading().items() if not _has(command, "--json")] == []
    assert [name for name in CHANGES & commands().keys() if not _has(commands()[name], "--json")] == []


def test_no_command_that_reads_shows_what_steers_a_terminal_or_was_to_stay_secret(
    conn: redis.Redis, redis_url: str, hands: Hands
) -> None:
    plant_more(conn, hands)
    wrong = []
    for name, command in reading().items():
        for more in ([], ["--json"], *([["--utc"]] if _has(command, "--utc") else [])):
            if name == "top" and "--json" not in more:
                continue  # needs a terminal: tests/cli/test_top.py
            args = [*name.split(), *arguments_of(name, command), *more]
            result = CliRunner().invoke(cli, args, prog_name="run_worker.py")
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                wrong.append(f"{args}: {result.exception!r}")
                continue
            said = result.stdout + result.stderr
            wrong += [
                f"{args}: {one!r} in {said[max(0, said.find(one) - 60) :][:120]!r}" for one in (*BAD, SECRET) if one in said
            ]
            if not said.strip() or len(said) > 400_000:
                wrong.append(f"{args}: says {len(said)} characters")
            if result.exit_code and "nobody" in args:
                continue  # nobody has it, in one clean line
            if "--json" in more and result.exit_code != 2:
                wrong += [f"{args}: {fault}" for fault in _faults_of(name, result.stdout)]
            elif result.exit_code == 2:
                wrong.append(f"{args}: {said[:200]}")
    assert not wrong, "\n".join(wrong)


def _faults_of(name: str, stdout: str) -> list[str]:
    """What is no document of ours; `events tail` writes a line for each event."""
    try:
        documents = [json.loads(line) for line in stdout.splitlines()] if name == "events tail" else [json.loads(stdout)]
    except ValueError as error:
        return [f"no JSON: {error}: {stdout[:100]!r}"]
    if name != "events tail" and documents[0].get("schema") != 1:
        return [f"no schema: {list(documents[0])}"]
    return []


@pytest.mark.parametrize("text", [EVIL.partition("\n")[0], "\u202e\u2066", "\udcff"])
def test_an_unknown_name_is_printed_safely(conn: redis.Redis, redis_url: str, text: str) -> None:
    for name in ("job show", "tree", "batch show", "batch graph", "limit show", "failures", "queue show", "cron history", "jobs"):
        result = CliRunner().invoke(cli, [*name.split(), text], prog_name="run_worker.py")
        assert result.exception is None or isinstance(result.exception, SystemExit), (name, result.exception)
        said = result.stdout + result.stderr
        assert [one for one in BAD if one in said] == [], name
        assert len(said) < 20_000, name
