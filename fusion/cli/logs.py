"""Set up logging: where lines go, and their format, text for people or one JSON object per line."""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Callable
from typing import Any

import click

from fusion.exceptions import ConfigurationError
from fusion.kernel.json_lines import MORE, JobContext, JSONFormatter
from fusion.runtime.terminal_log import DATE_FORMAT, LOG_FORMAT, TerminalHandler
from fusion.settings import Settings

__all__ = ["JSONFormatter", "long_running", "set_up_logging"]

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: Options of every long-running command; see `long_running`.
LOGGING = (
    click.option("--logging_level", "--logging-level", type=click.Choice(LEVELS, case_sensitive=False), help="[default: INFO]"),
    click.option("--log-format", default=LOG_FORMAT, metavar="FORMAT", help="Of log lines.", show_default=True),
    click.option("--date-format", default=DATE_FORMAT, metavar="FORMAT", help="Of their times.", show_default=True),
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors.")
PID = click.option("--pid", metavar="FILE", help="Write the process id to FILE while it runs.")


def long_running(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a command's pid file and its log."""
    for option in reversed((PID, *LOGGING, QUIET)):
        function = option(function)
    return function


def set_up_logging(settings: Settings, level: str | None, log_format: str, date_format: str) -> None:
    """Set up logging by DICT_CONFIG of the settings, else on stderr. A level from the flags overrides both, and so does `log_json`."""
    if settings.dict_config:
        try:
            logging.config.dictConfig(dict(settings.dict_config))
        except (ValueError, TypeError, AttributeError, ImportError) as error:
            raise ConfigurationError(
                f"dict_config (from {settings.origin_of('dict_config')}) is not valid: {error}", code="FUS-226"
            ) from error
        for name in (None, *logging.root.manager.loggerDict):
            for each in logging.getLogger(name).handlers:
                each.addFilter(JobContext())
    logger = logging.getLogger("fusion")
    formatter = _formatter(log_format, date_format)
    if not logger.hasHandlers():
        handler = TerminalHandler()
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    if settings.log_json:
        logging.captureWarnings(True)
        for each in (*logger.handlers, *logging.getLogger().handlers):
            each.setFormatter(JSONFormatter())
        if not logging.getLogger().handlers:
            logging.getLogger("py.warnings").handlers = list(logger.handlers)
    if level or not settings.dict_config:
        logger.setLevel(level or "INFO")


def _formatter(log_format: str, date_format: str) -> logging.Formatter:
    try:
        formatter = logging.Formatter(log_format, date_format, defaults=dict.fromkeys(MORE, "-"))
        formatter.format(logging.makeLogRecord({}))
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"--log-format {log_format!r}: {error}; use e.g. {LOG_FORMAT!r}") from None
    return formatter
