"""A shop with two apps and two databases: SQLite files in the directory SHOP_HOME; SHOP_POSTGRES is that of a server to use in place of the first.

SHOP_APPS, SHOP_ATOMIC_REQUESTS and SHOP_OUTBOX add what they are called after. Fusion's Redis comes from the environment.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import django

HOME = os.environ.get("SHOP_HOME") or os.environ.setdefault("SHOP_HOME", tempfile.mkdtemp(prefix="shop"))

SECRET_KEY = "of tests"  # noqa: S105
DEBUG = False
USE_TZ = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "tests.contrib.shop.urls"
WSGI_APPLICATION = "tests.contrib.shop.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "/static/"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "fusion.contrib.django",
    "fusion.contrib.django.outbox",
    "tests.contrib.shop.orders",
    "tests.contrib.shop.billing",
    *os.environ.get("SHOP_APPS", "").split(),
]
if django.VERSION < (6, 0):
    INSTALLED_APPS.insert(0, "django_tasks")
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def first_database(environment: Mapping[str, str]) -> dict[str, Any]:
    """What this environment says of it. SHOP_DATABASE: its name in SHOP_POSTGRES."""
    atomic = {"ATOMIC_REQUESTS": bool(environment.get("SHOP_ATOMIC_REQUESTS"))}
    if not (server := environment.get("SHOP_POSTGRES")):
        return {**in_file("default"), **atomic}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": server,
        "USER": "fusion",
        "NAME": environment.get("SHOP_DATABASE", "postgres"),
        "CONN_MAX_AGE": None,
        **atomic,
    }


def in_file(alias: str) -> dict[str, Any]:
    """A database of SQLite."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.path.join(HOME, f"{alias}.sqlite3"),
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        "TEST": {"NAME": os.path.join(HOME, f"test-{alias}.sqlite3")},
    }


DATABASES: dict[str, dict[str, Any]] = {"default": first_database(os.environ), "archive": in_file("archive")}

FUSION: dict[str, Any] = {"LEASE": 12, "QUEUES": ["default", "mail"]}
if os.environ.get("SHOP_OUTBOX"):
    FUSION["OUTBOX"] = True
if url := os.environ.get("SHOP_REDIS"):
    FUSION["REDIS_URL"] = url
if os.environ.get("SHOP_LOGGING"):  # as many projects have it: what is there already is silenced
    LOGGING = {"version": 1}
TASKS: dict[str, Any] = {
    "default": {"BACKEND": "fusion.contrib.django.tasks.FusionBackend", "QUEUES": ["default", "mail"]},
    "open": {"BACKEND": "fusion.contrib.django.tasks.FusionBackend", "QUEUES": [], "OPTIONS": {"ENQUEUE_ON_COMMIT": False}},
}
