"""The default log of a process: lines of text on stderr. Lines about jobs bypass `logging`; those of one turn go out in one write."""

from __future__ import annotations

import logging
import select
import time
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from fusion.runtime.membership import Membership

LOG_FORMAT = "%(asctime)s %(message)s"
DATE_FORMAT = "%H:%M:%S"


class TerminalHandler(logging.StreamHandler[TextIO]):
    """Writes lines to the stderr of the time it was made. It also takes finished lines; they go out together, before the next record."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[str] = []
        self._size = 0

    def hold(self, text: str) -> None:
        """Take a line, without its end. It is written with those that follow, up to what a pipe takes in one piece, see `write_held`."""
        lock = self.lock
        assert lock is not None
        line = text + self.terminator
        size = len(line) if line.isascii() else len(line.encode("utf-8", "backslashreplace"))
        with lock:
            if self._size + size > select.PIPE_BUF:
                self.write_held()
            self._held.append(line)
            self._size += size

    def write_held(self) -> None:
        """Write what is held, in one piece."""
        lock = self.lock
        assert lock is not None
        with lock:
            if not self._held:
                return
            lines, self._held, self._size = self._held, [], 0
            try:
                self.stream.write("".join(lines))
                super().flush()
                return
            except OSError:  # a part may have been written
                self._complain(lines[-1])
                return
            except RecursionError:
                raise
            except Exception:
                pass  # nothing was written: the encoding lacks a character, or the stream is closed
            for line in lines:
                self._write(line)

    def _write(self, line: str) -> None:
        try:
            self.stream.write(line)
            super().flush()
        except RecursionError:
            raise
        except Exception:
            self._complain(line)

    def _complain(self, line: str) -> None:
        """Report on stderr why this line could not be written, as `logging` does for a record."""
        record = logging.LogRecord("fusion", logging.INFO, __file__, 0, line.removesuffix(self.terminator), (), None)
        self.handleError(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Write what is held, then the record."""
        self.write_held()
        super().emit(record)

    def flush(self) -> None:
        """Write what is held, and have the stream write what it has."""
        self.write_held()
        super().flush()


class WorkerNames(logging.Filter):
    """Adds the worker's name to each record. It drops none."""

    def __init__(self, membership: Membership) -> None:
        super().__init__()
        self._membership = membership

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the worker's name to a record."""
        record.worker = self._membership.name
        return True


class LineBatch:
    """Writes INFO lines of one logger to the default log: the same text as `logging` would, at a fraction of its cost.

    - while it is open (`with`) lines are held; they are written at its end, or before any record to the same log;
    - it takes lines only while no other handler would get the record and the default format is in use. It checks that for each line;
      otherwise the caller logs the line.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._terminal: TerminalHandler | None = None
        self._is_open = False
        #: True if no part of `logging` was replaced; None if this batch has not checked it yet.
        self._is_stock: bool | None = None
        #: The last line's second, and as text.
        self._second, self._clock = -1, ""

    def __enter__(self) -> LineBatch:
        self._is_open, self._is_stock = True, None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_open = False
        self._write()

    def add(self, message: str) -> bool:
        """Write a line at INFO, soon. False if it has to go through `logging`; what was held is written before that."""
        if self._is_stock is None:
            self._is_stock = _functions() == _STOCK
        terminal = self._default_handler() if self._is_open and self._is_stock else None
        if terminal is not self._terminal:
            self._write()
            self._terminal = terminal
        if terminal is None:
            return False
        second = int(time.time())
        if second != self._second:
            self._second, self._clock = second, time.strftime(DATE_FORMAT, time.localtime(second))
        terminal.hold(f"{self._clock} {message}")
        return True

    def _write(self) -> None:
        if self._terminal is not None:
            self._terminal.write_held()

    def _default_handler(self) -> TerminalHandler | None:
        """Return the default handler if a record at INFO would go only there, in the default format."""
        log = self._log
        if not log.isEnabledFor(logging.INFO) or logging.getLogRecordFactory() is not logging.LogRecord:
            return None
        for wanted in log.filters:
            if type(wanted) is not WorkerNames:
                return None
        found: logging.Handler | None = None
        logger: logging.Logger | None = log
        while logger is not None:
            if logger.handlers:
                if found is not None or len(logger.handlers) > 1:
                    return None
                found = logger.handlers[0]
            logger = logger.parent if logger.propagate else None
        if type(found) is not TerminalHandler or found.level > logging.INFO or found.filters:
            return None
        return found if _is_default(found.formatter) else None


def _is_default(formatter: logging.Formatter | None) -> bool:
    """Return True if lines of this formatter are a time and the message."""
    if type(formatter) is not logging.Formatter or formatter.datefmt != DATE_FORMAT:
        return False
    style = formatter._style
    # A program may set this for times in UTC, on one formatter or on all.
    return type(style) is logging.PercentStyle and style._fmt == LOG_FORMAT and formatter.converter is time.localtime


def _functions() -> tuple[FunctionType, ...]:
    """Return all functions that a record passes on its way to the default log. Libraries that collect records replace some of them."""
    logger, handler, formatter, style = logging.Logger, logging.StreamHandler, logging.Formatter, logging.PercentStyle
    return (  # type: ignore[return-value]
        *(logger.info, logger.isEnabledFor, logger._log, logger.makeRecord, logger.handle, logger.filter, logger.callHandlers),
        *(handler.handle, handler.filter, handler.format, handler.acquire, handler.release, handler.emit, handler.flush),
        *(formatter.format, formatter.formatTime, formatter.formatMessage, formatter.usesTime),
        *(style.format, style.usesTime, logging.LogRecord.__init__, logging.LogRecord.getMessage),
    )


#: These functions at import, if they are all `logging`'s own; otherwise empty, so that no comparison succeeds.
_STOCK = _functions() if all(getattr(one, "__globals__", None) is vars(logging) for one in _functions()) else ()
