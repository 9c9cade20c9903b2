"""The command of an enqueue of one job, encoded once: per call only an id and the arguments are put in."""

from __future__ import annotations

from time import time
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from fusion.kernel import failpoints
from fusion.kernel.compression import THRESHOLD, compressed
from fusion.store.client.adapter import client_of
from fusion.store.client.wire import ask, is_ours, pack
from fusion.store.layout.compact import compact
from fusion.store.layout.records import NewJob
from fusion.store.scripting import minutes
from fusion.store.scripting.scripts import Script
from fusion.store.write.queue_calls import QueueCalls, accepted, arguments

#: Characters of an id, which is its job's nonce as well.
ID_LENGTH = 22
#: What stands for the arguments while a command is made: those of a call without any.
NO_ARGUMENTS = b"[[],{}]"


class Own:
    """The parts of one call besides its arguments: fields as texts, the same as they are stored, and maybe the id that it gives."""

    __slots__ = ("job_id", "texts", "words")

    def __init__(self, job_id: str | None, texts: dict[str, str], words: tuple[bytes, ...]) -> None:
        """`words`: names and values of the fields."""
        self.job_id, self.texts, self.words = job_id, texts, words


class EnqueueCommand:
    """A command, for jobs that differ in nothing but their ids, their arguments, and the fields that are each one's own. It never changes, and
    holds no value of a call."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_call",
        "_client",
        "_is_ours",
        "_queue",
        "_script",
        "_size",
        "_start",
        "_without",
        "_words",
    )

    def __init__(
        self, script: Script, words: tuple[tuple[Any, ...], ...], call: bytes, queue: str, client: Any, is_ours: bool, own: int
    ) -> None:
        """`words`: those before the minute, those between nonce and arguments, and those after them. `call`: how a whole call begins. `client`: one
        that `is_ours`, or any of which only the methods are used. `own`: how many fields each job has of its own."""
        self._script, self._call, self._queue, self._client = script, call, queue, client
        self._words, self._is_ours = words, is_ours
        first, middle, last = words
        count = 2 + len(first) + 2 + len(middle) + len(last) + 3 + 2 * own
        self._start = b"*%d\r\n%b" % (count, _encoded(("EVALSHA", script.sha, *first)))
        self._size = b"$%d\r\n" % ID_LENGTH
        self._between = b"\r\n" + self._size
        self._before = b"\r\n%b$" % _encoded(middle)
        self._after = b"\r\n" + _encoded(last)
        self._without = b"%b%d\r\n%b%b" % (self._before, len(NO_ARGUMENTS), NO_ARGUMENTS, self._after)

    def call_of(self, data: bytes) -> bytes:
        """Return the whole call of these arguments, as a record has it in full."""
        return self._call + data[1:]

    def stored(self, data: bytes, limit: int) -> bytes | None:
        """Return arguments in their stored form: compressed if that is shorter. None if the call is over the limit of bytes."""
        size = len(self._call) + len(data) - 1
        if size < THRESHOLD:
            return data if size <= limit else None
        if size > limit:
            return None
        call = self.call_of(data)
        found = compressed(call)
        return data if found is call else found

    def send(self, nonce: bytes, stored: bytes, own: Own | None = None) -> Any:
        """Enqueue a job; returns the server's reply. Its id is the nonce, unless it has one of its `own`. Raises what redis-py raises."""
        try:
            if self._is_ours:
                minute = minutes.kept
                if minute.number != time() // 60:
                    minute = minutes.present()
                if own is None and stored is NO_ARGUMENTS:
                    parts = [self._start, minute.encoded, self._size, nonce, self._between, nonce, self._without]
                elif own is None:
                    size = b"%d\r\n" % len(stored)
                    parts = [self._start, minute.encoded, self._size, nonce, self._between, nonce, self._before, size, stored]
                    parts.append(self._after)
                else:
                    size = b"%d\r\n" % len(stored)
                    job_id = nonce if own.job_id is None else own.job_id.encode()
                    parts = [self._start, minute.encoded, b"$%d\r\n%b" % (len(job_id), job_id), self._between, nonce]
                    parts += (
                        self._before,
                        size,
                        stored,
                        self._after,
                        *(b"$%d\r\n%b\r\n" % (len(word), word) for word in own.words),
                    )
                return ask(self._client, b"".join(parts))
            return self._client.execute_command("EVALSHA", self._script.sha, *self._of_job(nonce, stored, own))
        except NoScriptError:
            return self._script.send_whole(*self._of_job(nonce, stored, own))

    async def send_awaited(self, nonce: bytes, stored: bytes, own: Own | None = None) -> Any:
        """Do what `send` does, by a client for asyncio."""
        words = self._of_job(nonce, stored, own)
        try:
            return await self._client.execute_command("EVALSHA", self._script.sha, *words)
        except NoScriptError:
            return await self._client.execute_command("EVAL", self._script.text, *words)

    def _of_job(self, nonce: bytes, stored: bytes, own: Own | None) -> tuple[Any, ...]:
        first, middle, last = self._words
        minute = minutes.kept
        if minute.number != time() // 60:
            minute = minutes.present()
        first = (*first, *minute.texts)
        if own is None:
            return (*first, nonce, nonce, *middle, stored, *last)
        return (*first, own.job_id or nonce, nonce, *middle, stored, *last, *own.words)

    def accepted(self, reply: Any) -> str:
        """Read the server's time of enqueueing from a reply, see `queue_calls.accepted`."""
        return accepted(reply, self._queue)

    def refusal(self, error: Exception) -> Exception:
        """Return what to raise for an error of `send`."""
        return self._script.refusal(error) if isinstance(error, ResponseError) else error


def command_of(calls: QueueCalls, queue: str, job: NewJob, own: int = 0) -> EnqueueCommand | None:
    """Return the command for jobs like this one, with this many more fields that are each one's own. None if each is to be made in the ordinary
    way: in a process with failpoints, or of a record that holds more of its call than those, id and arguments."""
    if failpoints.armed or job.nonce != job.id or len(job.id) != ID_LENGTH or job.due is not None or job.delay is not None:
        return None
    fields = compact(job.fields)
    if fields is None or not fields["func"].isascii():  # its JSON might be escaped with some arguments, and not with others
        return None
    call = b'["%b",null,' % fields["func"].encode()
    like = NewJob(job.id, job.priority, {**job.fields, "data": call + NO_ARGUMENTS[1:]}, job.front, job.ttl, nonce=job.nonce)
    args, rest = arguments(queue, [like], "", None)
    if rest[6:10:2] != ["func", "data"] or rest[9] != NO_ARGUMENTS:
        return None
    rest[5] = str(int(rest[5]) + 2 * own)
    script, words = calls.enqueue_script(args)
    client: Any = client_of(calls.connection)
    ours = isinstance(client, Redis) and is_ours(client)
    return EnqueueCommand(
        script, (words[:-2], tuple(rest[2:9]), tuple(rest[10:])), call, queue, client if ours else calls.connection, ours, own
    )


def _encoded(words: tuple[Any, ...]) -> bytes:
    """Return the words as they are sent, without their number."""
    packed = pack(words) if words else b""
    if packed is None:
        raise TypeError("a word that only redis-py can encode")
    return packed.partition(b"\r\n")[2]
