"""RQ's defaults, which hold for jobs that `fusion.rq` enqueues. FUSION_RQ_DEFAULTS=0 has Fusion's in their place."""

from __future__ import annotations

import os

DEFAULT_JOB_CLASS = "fusion.rq.job.Job"
DEFAULT_QUEUE_CLASS = "fusion.rq.Queue"
DEFAULT_WORKER_CLASS = "fusion.rq.Worker"
DEFAULT_SERIALIZER_CLASS = "fusion.rq.serializers.DefaultSerializer"
DEFAULT_CONNECTION_CLASS = "redis.Redis"
DEFAULT_WORKER_TTL = 420
DEFAULT_JOB_MONITORING_INTERVAL = 30
DEFAULT_RESULT_TTL = 500
DEFAULT_FAILURE_TTL = 31536000
DEFAULT_SCHEDULER_FALLBACK_PERIOD = 120
DEFAULT_MAINTENANCE_TASK_INTERVAL = 600
DEFAULT_LOGGING_DATE_FORMAT = "%H:%M:%S"
DEFAULT_LOGGING_FORMAT = "%(asctime)s %(message)s"
CALLBACK_TIMEOUT = 60
DEFAULT_CRON_JOB_HISTORY_LIMIT = 1000
DEFAULT_CRON_JOB_HISTORY_TTL = 31536000
DEFAULT_CRON_SCHEDULER_TTL = 120
UNSERIALIZABLE_RETURN_VALUE_PAYLOAD = "Unserializable return value"

DEFAULT_TIMEOUT = 180
#: Seconds between a job's timeout and the kill of its processes.
GRACE = 60


def of_rq() -> bool:
    """Return True if RQ's meaning holds for what this process enqueues."""
    return os.environ.get("FUSION_RQ_DEFAULTS", "1") not in ("0", "false", "no", "off")
