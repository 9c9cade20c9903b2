"""Settings of this service, named on the command line: `run_worker.py worker -c instance --customq all`.

Any setting of `fusion.settings` may stand here in capitals. The environment (FUSION_<NAME>) and flags go first, so what differs
between machines, above all the Redis (FUSION_REDIS_URL or REDIS_URL), does not belong here.
"""

from __future__ import annotations

#: What `--customq all` serves.
QUEUES = ("sms", "email", "pn", "webhook", "whatsapp", "scheduler")

#: Modules whose functions jobs may name; they are imported before the first job runs. Nothing else of `tasks` can be called.
TASKS = ("tasks.sms", "tasks.email", "tasks.pn", "tasks.webhook", "tasks.whatsapp", "tasks.maintenance")

#: Modules that say what runs again and again; `run_worker.py scheduler -c instance` takes it up.
SCHEDULE = ("wrappers.scheduler_task",)

#: Seconds one job may run. A delivery takes at most its own timeout (10 s; webhooks 15 s): a job that is longer at it is stuck.
JOB_TIMEOUT = 60

#: Jobs one worker runs at a time. Deliveries wait for the network most of their time.
SLOTS = 4
