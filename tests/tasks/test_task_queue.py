"""The table of task types, the settings of the service, and the bundled campaign."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import pytest

import wrappers.instance
from fusion import PriorityQueue
from fusion.settings import Settings
from tasks.demo import CAMPAIGN, campaign
from tasks.email import sendEmail
from tasks.pn import sendPN
from tasks.providers.base import InvalidRecipient, ProviderRejected
from tasks.sandbox import Sandbox
from tasks.sms import sendSMS
from tasks.webhook import sendWebhook
from tasks.whatsapp import sendWhatsapp
from wrappers.task_queue import TASK_TYPES, enqueue_email, enqueue_sms, task_type_of

SENDERS = {"sms": sendSMS, "email": sendEmail, "pn": sendPN, "webhook": sendWebhook, "whatsapp": sendWhatsapp}


def test_every_type_names_a_queue_that_is_served_and_a_function_that_may_run() -> None:
    for name, known in TASK_TYPES.items():
        module, _, function = known.function.rpartition(".")
        assert getattr(import_module(module), function) is SENDERS[known.queue]
        assert known.queue in wrappers.instance.QUEUES
        assert module in wrappers.instance.TASKS
        assert known.log_tag == name
        assert name.startswith(f"{known.queue.upper()}_")


def test_each_type_of_message_has_its_priority() -> None:
    for name, known in TASK_TYPES.items():
        kind = name.partition("_")[2]
        expected = {
            "OTP": PriorityQueue.PRIORITY_HIGH,
            "REMINDER": PriorityQueue.PRIORITY_HIGH,
            "CAMPAIGN": PriorityQueue.PRIORITY_LOW,
        }
        assert known.priority == expected.get(kind, PriorityQueue.PRIORITY_MODERATE)
        assert (known.ttl is not None) == (kind == "OTP")


def test_the_callers_options_go_before_the_types() -> None:
    otp = task_type_of("SMS_OTP")
    assert otp.options({}) == {"priority": 2, "log_tag": "SMS_OTP", "ttl": 300}
    assert otp.options({"ttl": 60, "job_id": "x"}) == {"priority": 2, "log_tag": "SMS_OTP", "ttl": 60, "job_id": "x"}


def test_a_type_of_another_channel_is_refused_before_redis_is_asked() -> None:
    with pytest.raises(ValueError, match=r"'EMAIL_OTP' for sms; use one of SMS_OTP, SMS_REMINDER, SMS_NOTICE, SMS_CAMPAIGN$"):
        enqueue_sms({}, "EMAIL_OTP")
    with pytest.raises(ValueError, match="use one of EMAIL_OTP"):
        enqueue_email({}, "EMAIL")


def test_the_settings_module_is_found_by_its_short_name() -> None:
    settings = Settings.load("instance", env={})
    assert settings.tasks == tuple(wrappers.instance.TASKS)
    assert (settings.queues, settings.job_timeout, settings.slots) == (wrappers.instance.QUEUES, 60, 4)


@pytest.mark.long
def test_the_campaign_has_2000_rows_and_exactly_six_fail(sandbox: Sandbox) -> None:
    rows = list(campaign())
    assert Counter(channel for channel, _ in rows) == {"sms": 1560, "email": 160, "pn": 120, "whatsapp": 120, "webhook": 40}
    assert CAMPAIGN.stat().st_size < 120_000
    failures = []
    for channel, payload in rows:
        try:
            SENDERS[channel](payload)
        except (InvalidRecipient, ProviderRejected) as error:
            failures.append((channel, type(error).__name__, str(error)))
    assert sorted((channel, kind) for channel, kind, _ in failures) == [
        ("email", "InvalidRecipient"),
        ("email", "ProviderRejected"),
        ("pn", "ProviderRejected"),
        ("sms", "InvalidRecipient"),
        ("sms", "ProviderRejected"),
        ("whatsapp", "ProviderRejected"),
    ], failures
    assert sandbox.stats()["total"] == 1994
