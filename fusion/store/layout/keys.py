"""Every Redis key of Fusion is named here and nowhere else (the Lua side: `lua/include/lib/keys.lua`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fusion.kernel.states import STATES
from fusion.store.layout.failure_keys import FailureKeys
from fusion.store.layout.names import LIST_QUEUES
from fusion.store.layout.operation_keys import OperationKeys
from fusion.store.layout.outbox_keys import OutboxKeys


@dataclass(frozen=True)
class Keys(OperationKeys, FailureKeys, OutboxKeys):
    """Names of keys under one prefix. docs/keys.md lists them; a test compares the two."""

    # -- jobs and queues
    def dependents(self, job_id: str) -> str:
        """The ids of jobs that wait, or waited, for this one, the first thousand of them."""
        return f"{self.prefix}job:{job_id}:dependents"

    def log(self, job_id: str) -> str:
        """The last lines that a job's last run printed and logged."""
        return f"{self.prefix}log:{job_id}"

    @property
    def logs(self) -> str:
        return f"{self.prefix}logs"

    @property
    def log_sizes(self) -> str:
        return f"{self.prefix}logs:sizes"

    def queue(self, name: str) -> str:
        """The ids that wait in a queue, best score first."""
        return f"{self.prefix}queue:{name}"

    def fifo(self, name: str) -> str:
        """The ids that wait in a queue whose own key is, or once was, a LIST."""
        return f"{self.prefix}fifo:{name}"

    def inbox(self, name: str) -> str:
        """Ids in a LIST queue's inbox that lead to no job any more."""
        return f"{self.prefix}inbox:{name}"

    def ready(self, name: str) -> str:
        """The ZSET a claim reads: the queue itself, or what was taken over from a LIST queue's inbox. Of a queue in `fifos` it is `fifo`."""
        return self.fifo(name) if name in LIST_QUEUES else self.queue(name)

    def wake(self, name: str) -> str:
        """The doorbell of a queue: one token at most, which wakes one idle worker."""
        return f"{self.prefix}wake:{name}"

    def wake_high(self, name: str) -> str:
        """The doorbell of workers that take only HIGH jobs now."""
        return f"{self.prefix}wake:{name}:high"

    def wake_closed(self, name: str) -> str:
        """While it exists the doorbells of a queue are silent: its gate is closed, and somebody will open it."""
        return f"{self.prefix}wake:{name}:closed"

    def gate(self, name: str) -> str:
        """The state of a queue's gate."""
        return f"{self.prefix}gate:{name}"

    def fair(self, name: str) -> str:
        """The fair turns of a queue: the clock of each class, and the last turn of each fair key."""
        return f"{self.prefix}fair:{name}"

    def paused(self, name: str) -> str:
        """While it exists nothing of the queue is claimed."""
        return f"{self.prefix}paused:{name}"

    def set_of(self, status: str, name: str) -> str:
        """The ids of a state, of a queue if the state has a set for each. KeyError for no state."""
        return f"{self.prefix}{STATES[status].set_of(name)}"

    def wip(self, name: str) -> str:
        """The running ids of a queue by the end of their lease, in milliseconds."""
        return f"{self.prefix}wip:{name}"

    def finished(self, name: str) -> str:
        """The finished ids of a queue by the time at which they are forgotten."""
        return f"{self.prefix}finished:{name}"

    def deferred(self, name: str) -> str:
        """The ids that wait for other jobs."""
        return f"{self.prefix}deferred:{name}"

    def canceled(self, name: str) -> str:
        """The canceled and expired ids of a queue by the time at which they are forgotten."""
        return f"{self.prefix}canceled:{name}"

    def stopped(self, name: str) -> str:
        """The stopped ids of a queue by the time at which they are forgotten."""
        return f"{self.prefix}stopped:{name}"

    @property
    def failed(self) -> str:
        return f"{self.prefix}queue:failed"

    @property
    def scheduled(self) -> str:
        return f"{self.prefix}scheduler:scheduled_jobs"

    @property
    def expiring(self) -> str:
        return f"{self.prefix}expiring"

    @property
    def queues(self) -> str:
        return f"{self.prefix}queues"

    @property
    def queues_idle(self) -> str:
        return f"{self.prefix}queues:idle"

    @property
    def clean(self) -> str:
        return f"{self.prefix}clean"

    @property
    def leases(self) -> str:
        return f"{self.prefix}leases"

    @property
    def wildcards(self) -> str:
        return f"{self.prefix}wildcards"

    @property
    def survey(self) -> str:
        return f"{self.prefix}survey"

    @property
    def sample(self) -> str:
        return f"{self.prefix}sample"

    def work(self, wildcard: str) -> str:
        """The queues of a wildcard that have work, by the best priority that may wait there."""
        return f"{self.prefix}work:{wildcard}"

    @property
    def fifos(self) -> str:
        return f"{self.prefix}fifos"

    @property
    def gates(self) -> str:
        return f"{self.prefix}gates"

    @property
    def gates_settings(self) -> str:
        return f"{self.prefix}gates:settings"

    @property
    def dropped(self) -> str:
        return f"{self.prefix}dropped"

    def blocked(self, name: str) -> str:
        """The ids of a queue that wait for neither a time nor their turn."""
        return f"{self.prefix}blocked:{name}"

    @property
    def waits(self) -> str:
        return f"{self.prefix}waits"

    def waiting(self, waits_in: str) -> str:
        """The set in which blocked jobs wait: `held:<queue>:<task>`, `probation:<queue>`."""
        return f"{self.prefix}waits:{waits_in}"

    def limit(self, key: str) -> str:
        """The hash of a concurrency key: its limit."""
        return f"{self.prefix}limit:{key}"

    def limit_held(self, key: str) -> str:
        """The jobs of a concurrency key that have a slot, by their place; `+inf` once they have started."""
        return f"{self.prefix}limits:held:{key}"

    def limit_waiting(self, key: str) -> str:
        """The blocked jobs of a concurrency key by their place."""
        return f"{self.prefix}limits:waiting:{key}"

    def limit_locks(self, key: str) -> str:
        """The jobs whose runs have the lock of a key, or wait for it, in their order."""
        return f"{self.prefix}limits:locks:{key}"

    @property
    def limits(self) -> str:
        return f"{self.prefix}limits"

    @property
    def limits_due(self) -> str:
        return f"{self.prefix}limits:due"

    @property
    def limits_audit(self) -> str:
        return f"{self.prefix}limits:audit"

    def unique(self, key: str) -> str:
        """The id of the job that has a unique key."""
        return f"{self.prefix}unique:{key}"

    @property
    def uniques(self) -> str:
        return f"{self.prefix}uniques"

    @property
    def uniques_audit(self) -> str:
        return f"{self.prefix}uniques:audit"

    def batch(self, batch_id: str) -> str:
        """The hash of a batch."""
        return f"{self.prefix}batch:{batch_id}"

    def batch_open(self, batch_id: str) -> str:
        """The members of a batch that have not ended."""
        return f"{self.prefix}batch:{batch_id}:open"

    def batch_members(self, batch_id: str) -> str:
        """All members of a batch, in the order in which they came."""
        return f"{self.prefix}batch:{batch_id}:members"

    def batch_ended(self, batch_id: str) -> str:
        """The ends of those members of a batch that did not finish."""
        return f"{self.prefix}batch:{batch_id}:ended"

    @property
    def batches(self) -> str:
        return f"{self.prefix}batches"

    @property
    def batches_due(self) -> str:
        return f"{self.prefix}batches:due"

    @property
    def batches_audit(self) -> str:
        return f"{self.prefix}batches:audit"

    def probation(self, host: str) -> str:
        """The incarnation of the one worker of a host that may run jobs on probation."""
        return f"{self.prefix}probation:{host}"

    @property
    def totals_kept(self) -> str:
        return f"{self.prefix}totals"

    def totals(self, name: str) -> str:
        """The lifetime counters of a queue: the jobs that came in and how they left, by priority."""
        return f"{self.prefix}totals:{name}"

    def flow(self, queue: str) -> str:
        """The last samples of the lifetime counters of a queue, with their times."""
        return f"{self.prefix}flow:{queue}"

    def history(self, series: str) -> str:
        """The history of a queue or task: `<tier>:<scope>:<name>:<number of the hour or day>`, or `keyless`."""
        return f"{self.prefix}history:{series}"

    def history_names(self, scope: str) -> str:
        """The queues, or tasks, that have a history of their own."""
        return f"{self.prefix}history:{scope}s"

    @property
    def seq(self) -> str:
        return f"{self.prefix}seq"

    @property
    def seq_front(self) -> str:
        return f"{self.prefix}seq:front"

    @property
    def schema(self) -> str:
        return f"{self.prefix}schema"

    @property
    def callbacks_gone(self) -> str:
        return f"{self.prefix}callbacks:gone"

    @property
    def callbacks_verdicts(self) -> str:
        """Hash: what `doctor --watch --notify` told last: digest of the URL and level -> 1 (bad) or 0, nonce, id of the callback."""
        return f"{self.prefix}callbacks:verdicts"

    @property
    def callbacks_secret(self) -> str:
        return f"{self.prefix}callbacks:secret"

    @property
    def callbacks_dropped(self) -> str:
        return f"{self.prefix}callbacks:dropped"

    @property
    def callbacks_refused(self) -> str:
        return f"{self.prefix}callbacks:refused"

    @property
    def callback_errors(self) -> str:
        return f"{self.prefix}callback_errors"

    @property
    def callbacks_open(self) -> str:
        return f"{self.prefix}callbacks:open"

    # -- workers
    def worker(self, name: str) -> str:
        """The hash of a worker: its entry in the fleet."""
        return f"{self.prefix}worker:{name}"

    def worker_jobs(self, name: str) -> str:
        """The executions that a worker holds, by job id."""
        return f"{self.prefix}worker:{name}:jobs"

    def pubsub(self, worker: str) -> str:
        """The channel of commands to a worker."""
        return f"{self.prefix}pubsub:{worker}"

    @property
    def due(self) -> str:
        """The channel that tells of a job that is due before anybody would look."""
        return f"{self.prefix}pubsub:_due"

    def duties(self, database: int) -> str:
        """The channel that tells which work for the whole fleet is done. All databases of a server share their channels."""
        return f"{self.prefix}pubsub:_duties:{database}"

    @property
    def workers(self) -> str:
        return f"{self.prefix}workers"

    @property
    def fleet(self) -> str:
        return f"{self.prefix}fleet"

    @cached_property  # each turn names it
    def suspended(self) -> str:
        return f"{self.prefix}suspended"

    @property
    def reap(self) -> str:
        return f"{self.prefix}reap"

    # -- what programs for RQ show of themselves
    def rq_cron_scheduler(self, name: str) -> str:
        """The hash of a running CronScheduler."""
        return f"{self.prefix}cron_scheduler:{name}"

    @property
    def rq_cron_schedulers(self) -> str:
        return f"{self.prefix}cron_schedulers"

    @property
    def rq_cron_jobs(self) -> str:
        return f"{self.prefix}cron_jobs"

    def rq_cron_job(self, name: str) -> str:
        """The jobs of a cron job, by the time at which they were enqueued."""
        return f"{self.prefix}cron_job:{name}:jobs"

    def rq_group(self, name: str) -> str:
        """The ids of a group's jobs."""
        return f"{self.prefix}group:{name}"

    @property
    def rq_groups(self) -> str:
        return f"{self.prefix}groups"

    # -- schedulers and cron
    @property
    def schedulers(self) -> str:
        return f"{self.prefix}schedulers"

    def scheduler(self, name: str) -> str:
        """The hash of a scheduler."""
        return f"{self.prefix}scheduler:process:{name}"

    def cron_entry(self, entry: str) -> str:
        """The hash of a cron entry."""
        return f"{self.prefix}cron:entry:{entry}"

    def cron_history(self, entry: str) -> str:
        """The last decisions about a cron entry, the newest last."""
        return f"{self.prefix}cron:history:{entry}"

    @property
    def cron_due(self) -> str:
        return f"{self.prefix}cron:due"

    @property
    def cron_marks(self) -> str:
        return f"{self.prefix}cron:marks"

    @property
    def cron_apps(self) -> str:
        return f"{self.prefix}cron:apps"

    # -- events
    @property
    def events(self) -> str:
        return f"{self.prefix}events"

    @property
    def events_meta(self) -> str:
        return f"{self.prefix}events:meta"

    @property
    def trash(self) -> str:
        return f"{self.prefix}trash"

    @property
    def trash_sizes(self) -> str:
        return f"{self.prefix}trash:sizes"

    def trash_job(self, job_id: str) -> str:
        """The record of a job in the trash."""
        return f"{self.prefix}trash:job:{job_id}"

    @property
    def audit(self) -> str:
        return f"{self.prefix}audit"

    def session(self, digest: str) -> str:
        """A session at the dashboard, by the hash of what the browser holds."""
        return f"{self.prefix}session:{digest}"

    def said(self, nonce: str) -> str:
        """The answer to a `log_event`, for a resend."""
        return f"{self.prefix}events:said:{nonce}"

    def parked(self, sink: str) -> str:
        """The stream of events that a sink refused for good."""
        return f"{self.prefix}events:parked:{sink}"

    def sink(self, name: str) -> str:
        """The hash of a sink: how far it is."""
        return f"{self.prefix}sink:{name}"

    @property
    def relays(self) -> str:
        return f"{self.prefix}relays"

    def relay(self, name: str) -> str:
        """The hash of a relay."""
        return f"{self.prefix}relay:{name}"

    def name_of_queue(self, key: str) -> str:
        """`sms` for `rq:queue:sms`."""
        return key.removeprefix(f"{self.prefix}queue:")

    def name_of_wake(self, key: str) -> str:
        """`sms` for `rq:wake:sms` and `rq:wake:sms:high`."""
        return key.removeprefix(f"{self.prefix}wake:").removesuffix(":high")

    def name_of_scheduler(self, key: str) -> str:
        """A scheduler for the key of its hash."""
        return key.removeprefix(f"{self.prefix}scheduler:process:")

    def name_of_worker(self, key: str) -> str:
        """A worker for the key of its hash."""
        return key.removeprefix(f"{self.prefix}worker:")
