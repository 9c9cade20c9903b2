"""Loads a module that registers cron jobs, by its path or its name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys


def load(config_path: str) -> None:
    """Run the module, again if it was loaded before. ImportError names it and the error."""
    try:
        if os.path.isabs(config_path):
            _load_file(config_path)
        else:
            _load_module(config_path.removesuffix(".py").replace(os.path.sep, "."))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ImportError(f"Failed to load configuration {config_path!r}: {type(error).__name__}: {error}") from error


def _load_file(path: str) -> None:
    if not os.path.isfile(path):
        raise FileNotFoundError(f"Configuration file not found at {path!r}")
    name = f"rq_cron_config_{os.path.basename(path).replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _load_module(name: str) -> None:
    if name in sys.modules:
        importlib.reload(sys.modules[name])
    else:
        importlib.import_module(name)
