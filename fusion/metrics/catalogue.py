"""Every metric that Fusion exports: its name, type, labels and meaning. docs/metrics.md is generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Most names (of queues, tasks or error classes) that have series of their own in one metric; all others are `OTHER` together.
MOST_NAMES = 500
OTHER = "other"
#: The label `priority`, from priority 0 on; the last one is that of priority 2 and above.
PRIORITIES = ("low", "moderate", "high")

#: The processes that export a metric.
FLEET, ANY, WORKER, SCHEDULER, RELAY, SUPERVISOR = "fleet", "any", "worker", "scheduler", "relay", "supervisor"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `source`: the process that exports it. `full`: its labels need `--probe-metrics full`. `merge`: how the values of `other` are
    combined. `bounds`: the upper bounds of a histogram's buckets are those of `layout.history`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    source: str
    about: str
    labels: tuple[str, ...] = ()
    full: Literal["", "labels", "metric"] = ""
    merge: Literal["sum", "max"] = "sum"


_BY_CLASS = ("queue", "priority")


def _jobs(name: str, about: str) -> Metric:
    return Metric(name, "counter", WORKER, about, _BY_CLASS, full="labels")


# -- of the whole fleet: `/metrics` of the server, and `fusion metrics`

SAMPLE_AGE = Metric(
    "fusion_sample_age_seconds",
    "gauge",
    FLEET,
    "Seconds since the queues were sampled. A process of the fleet does it every 10 s.",
)
READ_SECONDS = Metric("fusion_read_seconds", "gauge", FLEET, "Seconds that the last read from Redis took.")
WAITING = Metric("fusion_queue_waiting", "gauge", FLEET, "Jobs that wait for their turn.", _BY_CLASS)
OLDEST = Metric(
    "fusion_queue_oldest_age_seconds",
    "gauge",
    FLEET,
    "Seconds that the first waiting job has waited; 0 if none waits.",
    _BY_CLASS,
    merge="max",
)
JOBS = Metric(
    "fusion_jobs",
    "gauge",
    FLEET,
    "Jobs by status: started, blocked, deferred; finished, canceled and stopped ones that are kept.",
    ("queue", "status"),
)
PAUSED = Metric("fusion_queue_paused", "gauge", FLEET, "1 while the queue is paused; of `other`, how many are.", ("queue",))
QUEUE_WORKERS = Metric("fusion_queue_workers", "gauge", FLEET, "Live workers that serve the queue.", ("queue",), merge="max")
CAME = Metric("fusion_queue_enqueued_per_second", "gauge", FLEET, "Jobs that came in, over the last minute.", ("queue",))
WENT = Metric("fusion_queue_ended_per_second", "gauge", FLEET, "Jobs that ended in any way, over the last minute.", ("queue",))
FAILED_RATE = Metric("fusion_queue_failed_per_second", "gauge", FLEET, "Of these, jobs that failed.", ("queue",))
FAILED = Metric("fusion_failed_jobs", "gauge", FLEET, "Failed jobs that are kept.")
SCHEDULED = Metric("fusion_scheduled_jobs", "gauge", FLEET, "Jobs that wait for a time, retries included.")
SUSPENDED = Metric("fusion_suspended", "gauge", FLEET, "1 while the fleet is suspended.")
WORKERS = Metric("fusion_workers", "gauge", FLEET, "Workers by state, as `fusion info` shows it.", ("state",))
SCHEDULERS = Metric("fusion_schedulers", "gauge", FLEET, "Live schedulers.")
DUE_LATENESS = Metric(
    "fusion_scheduler_lateness_seconds", "gauge", FLEET, "How late the first scheduled job is that should be in its queue."
)
CRON_LATENESS = Metric(
    "fusion_cron_lateness_seconds", "gauge", FLEET, "How late the first cron entry is that is not decided yet."
)
RELAYS = Metric("fusion_relays", "gauge", FLEET, "Live relays.")
BEHIND = Metric("fusion_sink_behind_events", "gauge", FLEET, "Events that the sink has not received.", ("sink",))
BEHIND_AGE = Metric("fusion_sink_oldest_age_seconds", "gauge", FLEET, "Seconds since the first of these happened.", ("sink",))
FAILING = Metric("fusion_sink_failing", "gauge", FLEET, "1 while the sink does not take events.", ("sink",))
PARKED = Metric("fusion_sink_parked_events", "gauge", FLEET, "Events that the sink refused for good.", ("sink",))
CALLBACKS = Metric("fusion_callbacks_waiting", "gauge", FLEET, "Callbacks to URLs that are not delivered yet.")
REDIS_UP = Metric("fusion_redis_up", "gauge", FLEET, "1 if Redis answered the last read; then all others are there, too.")
REDIS_MEMORY = Metric("fusion_redis_memory_bytes", "gauge", FLEET, "Memory that Redis uses.")
REDIS_LIMIT = Metric("fusion_redis_memory_limit_bytes", "gauge", FLEET, "Its `maxmemory`; 0 for none.")
REDIS_CLIENTS = Metric("fusion_redis_clients", "gauge", FLEET, "Connections to Redis.")
REDIS_CPU = Metric("fusion_redis_cpu_seconds_total", "counter", FLEET, "CPU seconds of the Redis server since its start.")
REDIS_EVICTED = Metric(
    "fusion_redis_evicted_keys_total",
    "counter",
    FLEET,
    "Keys that Redis evicted since its start. Must be 0: each may be a lost job.",
)

# -- of one process: its probe port

INFO = Metric("fusion_process_info", "gauge", ANY, "1, with the kind of process and the version of Fusion.", ("kind", "version"))
LINK_UP = Metric("fusion_process_redis_up", "gauge", ANY, "1 while Redis answers this process. Not of a supervisor.")
OUTAGES = Metric("fusion_process_redis_outages_total", "counter", ANY, "Outages of Redis that it noticed. Not of a supervisor.")
PROMOTED = Metric(
    "fusion_maintenance_promoted_jobs_total", "counter", ANY, "Due jobs that it moved to their queues. Of workers and schedulers."
)
RECOVERED = Metric(
    "fusion_maintenance_recovered_jobs_total",
    "counter",
    ANY,
    "Jobs of dead workers that it gave back. Of workers and schedulers.",
)

SLOTS = Metric("fusion_worker_slots", "gauge", WORKER, "Jobs that it may run at once.")
BUSY = Metric("fusion_worker_busy", "gauge", WORKER, "Jobs that it runs.")
TAKING = Metric(
    "fusion_worker_taking", "gauge", WORKER, "1 while it takes jobs; 0 if it is quiet, suspended, throttled or about to end."
)
MEMORY = Metric(
    "fusion_worker_memory_bytes", "gauge", WORKER, "Resident memory of its process and its fork server, without jobs. 0: unknown."
)
UNCOMMITTED = Metric("fusion_worker_uncommitted_outcomes", "gauge", WORKER, "Outcomes of jobs that Redis has not accepted yet.")
FINISHED_TOTAL = _jobs("fusion_jobs_finished_total", "Jobs that finished.")
FAILED_TOTAL = _jobs("fusion_jobs_failed_total", "Jobs that failed for good.")
RETRIED_TOTAL = _jobs("fusion_jobs_retried_total", "Runs that failed and are tried again.")
STOPPED_TOTAL = _jobs("fusion_jobs_stopped_total", "Jobs that were stopped.")
RETURNED_TOTAL = _jobs(
    "fusion_jobs_returned_total", "Claimed jobs that went back to their queue: no process, a held task, an end."
)
LOST_TOTAL = _jobs("fusion_jobs_lost_total", "Runs whose process was killed from outside, or may have been.")
WAIT = Metric(
    "fusion_job_wait_seconds",
    "histogram",
    WORKER,
    "Seconds from enqueue to start, of jobs that ended in their first run.",
    _BY_CLASS,
    full="labels",
)
RUN = Metric(
    "fusion_job_run_seconds", "histogram", WORKER, "Seconds that runs took that finished or failed.", _BY_CLASS, full="labels"
)
TASK_FINISHED = Metric(
    "fusion_task_finished_total", "counter", WORKER, "Jobs of the task that finished.", ("task",), full="metric"
)
TASK_FAILED = Metric("fusion_task_failed_total", "counter", WORKER, "Jobs of the task that failed.", ("task",), full="metric")
TASK_RETRIED = Metric(
    "fusion_task_retried_total", "counter", WORKER, "Runs of the task that are tried again.", ("task",), full="metric"
)
TASK_RUN = Metric("fusion_task_run_seconds", "histogram", WORKER, "Seconds that runs of the task took.", ("task",), full="metric")
ERRORS = Metric(
    "fusion_failures_total",
    "counter",
    WORKER,
    "Runs that failed, by the class of their error. Never its message.",
    ("error_class",),
    full="metric",
)
TELEMETRY_SENT = Metric(
    "fusion_telemetry_sent_total", "counter", WORKER, "Spans, or Sentry's envelopes, that the collector accepted.", ("collector",)
)
TELEMETRY_DROPPED = Metric(
    "fusion_telemetry_dropped_total",
    "counter",
    WORKER,
    "Spans or envelopes that were lost: a job sent too much, too many waited, or the collector refused them.",
    ("collector",),
)
TELEMETRY_WAITING = Metric(
    "fusion_telemetry_waiting", "gauge", WORKER, "Spans or envelopes that wait to be sent.", ("collector",)
)

TICKS = Metric("fusion_cron_ticks_total", "counter", SCHEDULER, "Cron ticks that it decided.")
TICK_JOBS = Metric("fusion_cron_jobs_total", "counter", SCHEDULER, "Jobs that it enqueued for them.")
TICK_MISSED = Metric("fusion_cron_missed_total", "counter", SCHEDULER, "Ticks that it found missed.")
TICK_LATENESS = Metric(
    "fusion_cron_tick_lateness_seconds", "histogram", SCHEDULER, "Seconds from the instant of a tick to its decision."
)

RELAYED = Metric("fusion_relay_events_total", "counter", RELAY, "Events that it delivered.", ("sink",))
RELAY_PARKED = Metric(
    "fusion_relay_parked_events_total", "counter", RELAY, "Of these, events that the sink refused for good.", ("sink",)
)
RELAY_FAILURES = Metric("fusion_relay_failures_total", "counter", RELAY, "Writes to the sink that failed.", ("sink",))
DELIVERED = Metric("fusion_callbacks_delivered_total", "counter", RELAY, "Callbacks that it delivered.")
CALLBACKS_RETRIED = Metric("fusion_callbacks_retried_total", "counter", RELAY, "Tries of callbacks that failed and are repeated.")
CALLBACKS_FAILED = Metric("fusion_callbacks_failed_total", "counter", RELAY, "Callbacks that it gave up.")

PROCESSES = Metric("fusion_supervisor_processes", "gauge", SUPERVISOR, "Its processes.", ("state",))
STARTED_TOTAL = Metric("fusion_supervisor_starts_total", "counter", SUPERVISOR, "Processes that it started.")
CRASHED_TOTAL = Metric("fusion_supervisor_crashes_total", "counter", SUPERVISOR, "Processes that ended otherwise than asked.")

METRICS: tuple[Metric, ...] = tuple(one for one in globals().values() if isinstance(one, Metric))
