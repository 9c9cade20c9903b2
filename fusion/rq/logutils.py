"""RQ's set-up of its worker's log, for Fusion's worker."""

from __future__ import annotations

import logging

from fusion.rq.defaults import DEFAULT_LOGGING_DATE_FORMAT, DEFAULT_LOGGING_FORMAT

_NAME = "fusion.worker"


def setup_loghandlers(
    level: str | int | None = None,
    date_format: str = DEFAULT_LOGGING_DATE_FORMAT,
    log_format: str = DEFAULT_LOGGING_FORMAT,
    name: str = _NAME,
) -> None:
    """Set the level of the worker's log, and show it on stderr if nothing shows it yet."""
    logger = logging.getLogger(name)
    if level is not None:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(log_format, date_format))
        logger.addHandler(handler)
        if level is None:
            logger.setLevel(logging.INFO)
