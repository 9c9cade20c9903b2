"""Prepared jobs that a program keeps as pickles, in an outbox say, outlive an upgrade."""

from __future__ import annotations

import base64
import pickle

import redis

from fusion import Job, Queue

#: `pickle.dumps(Queue.prepare_data("tests.jobs.basic.noop", (1,), job_id="kept", priority="high", ttl="5m"), protocol=4)` by 0.1.
OF_0_1 = base64.b64decode(
    b"gASVXgEAAAAAAACMDmZ1c2lvbi5vcHRpb25zlIwHSm9iRGF0YZSTlCmBlE59lCiMCWZ1bmNfbmFtZZSMFXRlc3RzLmpvYnMuYmFzaWMubm9vcJSMA25ld5SM"
    b"FGZ1c2lvbi5zdG9yZS5yZWNvcmRzlIwGTmV3Sm9ilJOUKYGUTn2UKIwCaWSUjARrZXB0lIwIcHJpb3JpdHmUSwKMBmZpZWxkc5R9lCiMBGRhdGGUQyVbInRl"
    b"c3RzLmpvYnMuYmFzaWMubm9vcCIsbnVsbCxbMV0se31dlIwLZGVzY3JpcHRpb26UaAaMB3RpbWVvdXSUS7SMCnJlc3VsdF90dGyUTfQBjApyZXRyeUNvdW50"
    b"lEsHjAN0dGyUTSwBdYwFZnJvbnSUiWgYR0BywAAAAAAAjANkdWWUTowFZGVsYXmUTowFbm9uY2WUjAw3MjUzODE5ZWQ4MjWUdYaUYowEc2l6ZZRNZgF1hpRi"
    b"Lg=="
)


def test_a_job_that_0_1_prepared_is_enqueued_once(conn: redis.Redis) -> None:
    for _ in range(2):
        (made,) = Queue("sms").enqueue_many([pickle.loads(OF_0_1)])
    job = Job.fetch("kept", conn)
    assert (made.id, job.func_name, job.args, job.priority) == ("kept", "tests.jobs.basic.noop", (1,), 2)
    assert conn.hget("rq:job:kept", "ttl") == b"300"
    assert Queue("sms").get_job_ids() == ["kept"]
