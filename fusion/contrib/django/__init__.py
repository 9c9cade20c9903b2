"""Fusion in Django: put `fusion.contrib.django` into INSTALLED_APPS. Guide: docs/django.md."""

from __future__ import annotations

try:
    import django as _django
except ModuleNotFoundError as error:
    if error.name != "django":
        raise
    raise ModuleNotFoundError("fusion.contrib.django needs Django: pip install 'fusion-queue[django]'", name="django") from None

if _django.VERSION < (5, 2):
    raise ImportError(f"fusion.contrib.django needs Django 5.2 or newer; here is {_django.__version__}: pip install -U django")
