"""`enqueue`, `requeue` and `empty` on a real Redis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from fusion import FailedQueue, Job, Queue
from fusion.store.read.inspector import Inspector
from fusion.trash import Trash
from tests.cli.conftest import Fail, Invoke, run_worker
from tests.cli.terminal import terminal

SMS = "tasks.sms.sendSMS"


def only_job(conn: redis.Redis, queue: str) -> Job:
    (job,) = Queue(queue, conn).get_jobs()
    return job


# -- enqueue


def test_enqueue_says_what_rq_says(invoke: Invoke, conn: redis.Redis) -> None:
    said = invoke("enqueue", SMS, "a", ":[1]", "z:=2", "b=x").stdout
    job = only_job(conn, "default")
    assert said == f"Enqueued tasks.sms.sendSMS('a', [1], b='x', z=2) with job-id '{job.id}'.\n"
    assert (job.func_name, job.args, job.kwargs) == (SMS, ("a", [1]), {"z": 2, "b": "x"})
    # The call itself may hold secrets: lists show the function alone.
    assert job.description == SMS


def test_every_option(invoke: Invoke, conn: redis.Redis) -> None:
    invoke(
        *("enqueue", SMS, "--queue", "sms", "--priority", "high", "--timeout", "2m", "--result-ttl", "60", "--ttl", "1h"),
        *("--failure-ttl", "1d", "--description", "An OTP", "--job-id", "otp-1", "--retry-max", "3"),
        *("--retry-interval", "1", "--retry-interval", "2.5", "--log-tag", "SMS_OTP", "--quiet"),
    )
    job = Job.fetch("otp-1", conn)
    assert (job.origin, job.priority, job.timeout, job.result_ttl, job.description) == ("sms", 2, 120, 60, "An OTP")
    assert job.log_tag == "SMS_OTP"
    assert job.retry is not None
    assert (job.retry.max, job.retry.intervals) == (3, [1, 2.5])
    stored = conn.hgetall("rq:job:otp-1")
    assert (stored[b"ttl"], stored[b"failure_ttl"]) == (b"3600", b"86400")


def test_the_options_that_python_has_are_flags_too(invoke: Invoke, conn: redis.Redis) -> None:
    urls = {name: f"https://hooks.example.com/{name}" for name in ("success_task_handler", "failed_task_handler", "callback_url")}
    flags = [word for name, url in urls.items() for word in ("--" + name.replace("_", "-"), url)]
    more = ("--meta", '{"order": [4711]}', "--on-lost", "fail", "--isolate", "--durability", "primary", "--job-id", "j")
    invoke("enqueue", SMS, *flags, *more)
    stored = conn.hgetall("rq:job:j")
    assert {name: stored[name.encode()].decode() for name in urls} == urls
    assert (json.loads(stored[b"meta"]), stored[b"on_lost"], stored[b"isolate"]) == ({"order": [4711]}, b"fail", b"1")


def test_enqueue_reports_that_no_replica_acknowledged(invoke: Invoke, conn: redis.Redis) -> None:
    flags = ("--durability", "replicated", "--replicas", "2", "--replicas-timeout", "0.05", "--job-id", "j")
    assert "0 of 2 replicas acknowledged within 0.05 s" in invoke("enqueue", SMS, *flags, code=1).stderr
    assert Job.fetch("j", conn).get_status() == "queued", "it is on the primary"


@pytest.mark.parametrize(("word", "number"), [("high", 2), ("MODERATE", 1), ("low", 0), ("0", 0), ("255", 255), ("7", 7)])
def test_priorities(invoke: Invoke, conn: redis.Redis, word: str, number: int) -> None:
    invoke("enqueue", SMS, "--priority", word)
    assert only_job(conn, "default").priority == number


def test_at_front(invoke: Invoke, conn: redis.Redis) -> None:
    for job_id, flags in (("a", []), ("b", []), ("c", ["--at-front"])):
        invoke("enqueue", SMS, "--job-id", job_id, *flags)
    assert Queue("default", conn).get_job_ids() == ["c", "a", "b"]


def test_quiet_prints_nothing(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("enqueue", SMS, "--quiet").output == ""


def test_pickle_on_request(invoke: Invoke, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("enqueue", SMS, "%{1, 2}", "-S", "pickle", "--job-id", "p")
    assert conn.hget("rq:job:p", "serializer") == b"pickle"
    assert "bytes of pickle" in invoke("enqueue", SMS, "-S", "pickle", "--dry-run").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Missing argument 'FUNCTION'"),
        (["sendSMS"], "'sendSMS' has no module"),
        (["tasks/sms.py"], "is not a dotted path"),
        (["os.__class__"], "two underscores"),
        ([SMS, ":nope"], "argument 1: 'nope' is not JSON"),
        ([SMS, "-q", "failed"], "is reserved"),
        ([SMS, "-q", "a b"], "use 1 to 128 of the characters"),
        ([SMS, "--priority", "300"], "use high, moderate, low, or a whole number from 0 to 255"),
        ([SMS, "--priority", "urgent"], "use high, moderate, low"),
        ([SMS, "--timeout", "soon"], "'--timeout': 'soon': use seconds"),
        ([SMS, "--timeout", "0"], "--timeout 0.0: use a duration over 0"),
        ([SMS, "--result-ttl", "x"], "'--result-ttl': 'x': use seconds"),
        ([SMS, "--ttl", "-5"], "--ttl -5.0: use a duration over 0"),
        ([SMS, "--failure-ttl", "-7"], "--failure-ttl -7.0: use seconds from 0"),
        ([SMS, "--job-id", "a b"], "job id 'a b'"),
        ([SMS, "--retry-interval", "3"], "--retry-interval needs --retry-max"),
        ([SMS, "--retry-max", "1", "--retry-interval", "1e12"], "use seconds from 0 to 1000000000"),
        ([SMS, "--timeout", "1e12"], "--timeout 1000000000000.0: use a duration over 0, up to 1000000000 s"),
        ([SMS, "--schedule-in", "1e12"], "31 years"),
        ([SMS, "--retry-max", "-1"], "--retry-max"),
        ([SMS, "--meta", "[1]"], "'--meta': use a JSON object"),
        ([SMS, "--meta", "{"], "'--meta': '{' is not JSON that can be sent"),
        ([SMS, "--on-lost", "retry"], "'--on-lost': 'retry': use requeue or fail"),
        ([SMS, "--durability", "disk"], "'--durability': 'disk': use primary or replicated"),
        ([SMS, "--replicas", "0"], "'--replicas': use a whole number from 1"),
        ([SMS, "--replicas", "2"], "--replicas 2: needs durability='replicated'"),
        ([SMS, "--durability", "replicated", "--replicas-timeout", "0"], "--replicas-timeout 0.0: use a duration over 0"),
        ([SMS, "--callback-url", "ftp://x"], "--callback-url: use a URL like https://"),
    ],
)
def test_enqueue_refuses_wrong_arguments(invoke: Invoke, conn: redis.Redis, args: list[str], message: str) -> None:
    assert message in invoke("enqueue", *args, code=2).stderr
    assert conn.keys("rq:job:*") == []


def test_an_argument_that_is_not_json_is_named(invoke: Invoke, conn: redis.Redis) -> None:
    message = invoke("enqueue", SMS, "fine", ":NaN", code=2).stderr
    assert "argument 2: 'NaN' is not JSON that can be sent" in message
    assert "argument 2 of tasks.sms.sendSMS" in invoke("enqueue", SMS, "fine", "%1e400", code=1).stderr


def test_a_payload_that_is_too_large(invoke: Invoke, conn: redis.Redis, tmp_path: Path) -> None:
    (tmp_path / "big").write_text("x" * 600_000)
    assert "the limit is" in invoke("enqueue", SMS, f"@{tmp_path / 'big'}", code=1).stderr


def test_an_id_that_is_taken(invoke: Invoke, conn: redis.Redis) -> None:
    invoke("enqueue", SMS, "--job-id", "x")
    assert "job id 'x' is taken and is queued" in invoke("enqueue", SMS, "--job-id", "x", code=1).stderr


def test_a_discarded_job_is_not_reported_as_enqueued(invoke: Invoke, conn: redis.Redis) -> None:
    key = ("--concurrency-key", "user:1", "--on-conflict", "discard")
    assert invoke("enqueue", SMS, *key).stdout.startswith("Enqueued")
    assert "Discarded tasks.sms.sendSMS()" in (said := invoke("enqueue", SMS, *key).stdout)
    assert "as many of its concurrency key run as may" in said


def test_a_duplicate_is_not_called_enqueued(invoke: Invoke, conn: redis.Redis) -> None:
    key = ("--unique-key", "report", "--job-id")
    assert invoke("enqueue", SMS, *key, "a").stdout.startswith("Enqueued")
    said = invoke("enqueue", SMS, *key, "b").stdout
    assert said == "Not enqueued: tasks.sms.sendSMS() is a duplicate of job-id 'a', which has its unique key and is queued.\n"
    said = invoke("enqueue", SMS, *key, "b", "--on-duplicate", "raise", code=1).stderr
    assert "job 'b' is a duplicate: job 'a' has the unique key 'report' and is queued" in said
    said = invoke("enqueue", SMS, *key, "b", "--on-duplicate", "replace", "--schedule-in", "5s", "--max-delay", "1m").stdout
    assert said.startswith("Enqueued tasks.sms.sendSMS() with job-id 'b' in place of 'a'")
    assert "--max-delay: needs on_duplicate" in invoke("enqueue", SMS, *key, "c", "--max-delay", "1m", code=2).stderr
    assert invoke("enqueue", SMS, "--unique").stdout.startswith("Enqueued")
    assert invoke("enqueue", SMS, "--unique", "--unique-until", "start").stdout.startswith("Not enqueued")


def test_a_full_queue(invoke: Invoke, conn: redis.Redis) -> None:
    invoke("enqueue", SMS, "--max-queue-length", "1")
    said = invoke("enqueue", SMS, "--max-queue-length", "1", code=1).stderr
    assert "queue 'default' is full: 1 of 1 wait (max_queue_length). Try again" in said
    assert conn.zcard("rq:queue:default") == 1
    assert "use a whole number from 1" in invoke("enqueue", SMS, "--max-queue-length", "0", code=2).stderr


def test_a_dry_run_needs_no_redis(invoke: Invoke) -> None:
    # No `conn` here: the environment names a server that does not exist.
    said = json.loads(invoke("enqueue", SMS, "a", "k:=1", "-q", "sms", "--priority", "high", "--job-id", "x", "--dry-run").stdout)
    assert said.pop("fields") == {
        "data": '["tasks.sms.sendSMS",null,["a"],{"k":1}]',
        "description": SMS,
        "timeout": "180",
        "result_ttl": "500",
        "retryCount": "7",
    }
    assert said == {"schema": 1, "queue": "sms", "id": "x", "priority": 2, "at_front": False}


def test_a_dry_run_shows_what_is_then_stored(invoke: Invoke, conn: redis.Redis) -> None:
    args = ["enqueue", SMS, "a", "--job-id", "x", "--ttl", "5m", "--retry-max", "2", "--log-tag", "SMS_OTP"]
    fields = json.loads(invoke(*args, "--dry-run").stdout)["fields"]
    assert conn.keys("*") == []
    invoke(*args)
    stored = {name: value.decode() for name, value in Inspector(conn).job("x").items()}
    assert {name: stored[name] for name in fields} == fields


def test_enqueue_as_a_real_process(conn: redis.Redis) -> None:
    ended = run_worker("enqueue", SMS, ':{"to": "+4915100000"}', "-q", "sms")
    assert ended.returncode == 0, ended.stderr
    assert only_job(conn, "sms").args == ({"to": "+4915100000"},)


# -- requeue


def test_requeue_all_verbatim(conn: redis.Redis, fail: Fail) -> None:
    sms, email = fail("sms", 3, priority=2), fail("email", 2)
    ended = run_worker("requeue", "--all")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Requeueing 5 jobs from failed queue\n5 jobs requeued\n", "")
    assert Queue("sms", conn).get_job_ids() == sms
    assert Queue("email", conn).get_job_ids() == email
    assert Job.fetch(sms[0], conn).priority == 2
    assert FailedQueue(conn).count == 0


def test_requeue_all_of_one_queue(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    fail("sms", 2), fail("email", 1)
    said = invoke("requeue", "-a", "--queue", "sms").stdout
    assert said == "Requeueing the jobs of sms from failed queue\n2 jobs requeued\n"
    assert (len(Queue("sms", conn)), FailedQueue(conn).count) == (2, 1)


@pytest.mark.parametrize("args", [[], ["--all"], ["--all", "--queue", "sms"], ["--queue", "sms"]], ids=" ".join)
def test_requeue_with_nothing_to_do(invoke: Invoke, conn: redis.Redis, args: list[str]) -> None:
    assert invoke("requeue", *args).stdout == "Nothing to do\n"


def test_requeue_does_what_it_can_and_names_the_rest(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    first, second = fail("sms", 2)
    waiting = Queue("pn", conn).enqueue(SMS).id
    result = invoke("requeue", first, "nobody", waiting, "a b", first, second, code=1)
    assert result.stdout == "Requeueing 5 jobs from failed queue\n2 jobs requeued\n"
    assert sorted(result.stderr.splitlines()) == sorted(
        [
            "Unable to requeue nobody: no such job",
            f"Unable to requeue {waiting}: it is queued, not failed",
            "Unable to requeue a b: no such job; job id 'a b': use 1 to 128 of the characters A-Z a-z 0-9 _ - [FUS-114]",
        ]
    )
    assert Queue("sms", conn).get_job_ids() == [first, second]


def test_requeue_of_ids_keeps_to_the_queue_that_was_named(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    (sms,), (email,) = fail("sms", 1), fail("email", 1)
    result = invoke("requeue", sms, email, "--queue", "sms", code=1)
    assert result.stderr == f"Unable to requeue {email}: it came from email, not sms\n"
    assert (len(Queue("sms", conn)), len(Queue("email", conn))) == (1, 0)


def test_requeue_json(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    (job_id,) = fail("sms", 1)
    result = invoke("requeue", job_id, "x", "--json", code=1)
    assert json.loads(result.stdout) == {"schema": 1, "requeued": 1, "refused": {"x": "no such job"}}
    assert json.loads(invoke("requeue", "--all", "--json").stdout) == {
        "schema": 1,
        "requeued": 0,
        "refused": {},
        "quarantined": 0,
    }


def test_requeue_of_a_job_without_data(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    broken, sound = fail("sms", 2)
    conn.hdel(f"rq:job:{broken}", "data")
    result = invoke("requeue", "--all", code=1)
    assert result.stderr == f"Unable to requeue {broken}: it has no data to run\n"
    assert Queue("sms", conn).get_job_ids() == [sound]


def test_requeue_usage(invoke: Invoke) -> None:
    assert "not both" in invoke("requeue", "x", "--all", code=2).stderr
    assert "reserved" in invoke("requeue", "--all", "--queue", "failed", code=2).stderr


def test_more_ids_than_one_call_takes(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    ids = fail("sms", 250)
    assert "250 jobs requeued" in invoke("requeue", *ids).stdout
    assert Queue("sms", conn).get_job_ids(0, 300) == ids


# -- empty


def test_empty(invoke: Invoke, conn: redis.Redis) -> None:
    for name, count in (("sms", 3), ("email", 1)):
        for _ in range(count):
            Queue(name, conn).enqueue(SMS)
    assert invoke("empty", "sms,email", "pn", "--dry-run").stdout == (
        "3 jobs would be removed from sms queue\n1 jobs would be removed from email queue\n0 jobs would be removed from pn queue\n"
    )
    assert invoke("empty", "--all", "--yes", "--dry-run").stdout.count("would be") == 2
    assert Queue("sms", conn).count == 3
    assert invoke("empty", "sms,email", "pn", "--yes").stdout == (
        "3 jobs removed from sms queue\n1 jobs removed from email queue\n0 jobs removed from pn queue\n"
    )
    assert conn.keys("rq:job:*") == []


def test_empty_all_leaves_failed_jobs(invoke: Invoke, conn: redis.Redis, fail: Fail) -> None:
    fail("sms", 1)
    Queue("email", conn).enqueue(SMS)
    assert invoke("empty", "--all", "--yes").stdout == "1 jobs removed from email queue\n0 jobs removed from sms queue\n"
    assert FailedQueue(conn).count == 1


def test_empty_in_a_pipe_wants_the_flag_for_what_nobody_can_undo(invoke: Invoke, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(SMS)
    said = invoke("empty", "sms", "--purge", code=1)
    assert "Forget 1 waiting jobs of sms? There is no terminal to ask on: give --yes" in said.stderr
    assert "Nothing was removed" in said.stderr
    assert Queue("sms", conn).count == 1
    assert invoke("empty", "email", "--purge").stdout == "0 jobs removed from email queue\n", "there is nothing to lose"
    assert invoke("empty", "sms", "--purge", "--yes").stdout == "1 jobs removed from sms queue\n"
    assert Trash(conn).count == 0


@pytest.mark.parametrize("names", [("sms", "email"), ("--all",), ("-a",)])
def test_a_script_for_rq_empties_as_it_did(invoke: Invoke, conn: redis.Redis, names: tuple[str, ...]) -> None:
    jobs = [Queue(name, conn).enqueue(SMS).id for name in ("sms", "email")]
    said = invoke("empty", *names)
    assert sorted(said.stdout.splitlines()) == ["1 jobs removed from email queue", "1 jobs removed from sms queue"]
    assert "2 jobs deleted; to get them back within an hour: " in said.stderr
    assert Trash(conn).restore(jobs).restored == 2


def test_empty_names_an_unknown_queue(invoke: Invoke, conn: redis.Redis) -> None:
    for _ in range(2):
        Queue("campaigns", conn).enqueue(SMS)
    sentence = "no queue campaings is known; did you mean campaigns?\n"
    for flags in ([], ["--dry-run"]):
        said = invoke("empty", "campaigns", "campaings", *flags, code=1)
        assert (said.stdout, said.stderr) == ("", f"Error: {sentence}")
    said = invoke("empty", "campaings", "--yes")
    assert (said.stdout, said.stderr) == ("0 jobs removed from campaings queue\n", sentence)
    assert len(Queue("campaigns", conn)) == 2


def test_empty_with_nothing_to_do(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("empty").stdout == "Nothing to do\n"
    assert invoke("empty", "-a").stdout == "Nothing to do\n"


def test_empty_usage(invoke: Invoke) -> None:
    assert "not both" in invoke("empty", "sms", "-a", code=2).stderr
    assert "reserved" in invoke("empty", "failed", code=2).stderr
    assert "use 1 to 128 of the characters" in invoke("empty", "sms*", code=2).stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "flags", "code", "left"), [("n", [], 1, 2), ("y", [], 0, 0), ("", ["--yes"], 0, 0), ("^C", [], 130, 2)]
)
def test_empty_asks_where_a_person_sits(conn: redis.Redis, answer: str, flags: list[str], code: int, left: int) -> None:
    for _ in range(2):
        Queue("sms", conn).enqueue(SMS)
    with terminal("empty", "sms", *flags) as tty:
        if not flags:
            tty.read_until("Forget 2 waiting jobs of sms? [y/N]: ")
            if answer != "^C":
                tty.type(f"{answer}\n")
        assert (tty.interrupt() if answer == "^C" else tty.end()) == code
    assert len(Queue("sms", conn)) == left


def test_an_id_that_fusion_makes_is_refused(invoke: Invoke, conn: redis.Redis) -> None:
    said = invoke("enqueue", SMS, "--job-id", "cron-e-20300101T000000Z", code=2)
    assert "ids that begin with 'cron-' are those of cron entries' jobs; choose another" in said.stderr
    assert conn.dbsize() == 0
