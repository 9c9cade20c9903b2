"""A rolling restart: each post gets a new process, one after the other. An old process ends only once its successor is ready."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusion.supervisor.post import Post

#: Seconds in which a successor must become ready, or the restart is called off.
_READY_LIMIT = 120.0
#: Seconds between QUIT and KILL for a successor that is called off.
_QUIT_LIMIT = 10.0


class Rolling:
    """Runs one restart at a time. A restart requested meanwhile follows it, as the processes it replaced first may be outdated then."""

    def __init__(self, start_child: Callable[[Post], None], shutdown_timeout: float, log: logging.Logger) -> None:
        self._start_child, self._shutdown_timeout, self._log = start_child, shutdown_timeout, log
        self._posts: Sequence[Post] = ()
        self._left: list[Post] = []
        self._begun = self._again = False
        self._until = 0.0

    @property
    def under_way(self) -> bool:
        """True while posts wait for their new process."""
        return bool(self._left)

    def start(self, posts: Sequence[Post], now: float) -> None:
        """Begin to replace the processes of these posts."""
        if self._left:
            self._again = True
            return
        self._posts, self._left, self._begun = posts, [post for post in posts if not post.done], False
        self._log.info("rolling restart of %d process(es)", len(self._left))
        self.tick(now)

    def tick(self, now: float) -> None:
        """Do the next step if it is due."""
        if not self._left:
            return
        post = self._left[0]
        if not self._begun:
            self._replace(post, now)
        elif post.child is not None and post.child.ready:
            for old in post.leaving:
                old.release(now + self._shutdown_timeout)
            if not post.leaving:
                self._left.pop(0)
                self._begun = False
                self._next_round(now)
        elif now > self._until:
            self._call_off(post, now)

    def _replace(self, post: Post, now: float) -> None:
        if post.child is not None:
            post.leaving.append(post.child)
            post.child = None
        self._start_child(post)
        self._begun, self._until = True, now + _READY_LIMIT

    def _next_round(self, now: float) -> None:
        if self._left:
            self.tick(now)
            return
        self._log.info("rolling restart is complete")
        if self._again:
            self._again = False
            self.start(self._posts, now)

    def _call_off(self, post: Post, now: float) -> None:
        self._log.error("rolling restart called off: %s is not ready after %.0f s; the old ones go on", post.label, _READY_LIMIT)
        self._left.clear()
        self._again = False
        # The old one may have been the reason for the restart, but it works.
        kept = next((old for old in reversed(post.leaving) if not old.told), None)
        if kept is None:
            return
        post.leaving.remove(kept)
        failed, post.child = post.child, kept
        if failed is not None:
            post.leaving.append(failed)
            failed.signal(signal.SIGQUIT, now + _QUIT_LIMIT)
