"""The settings of Fusion in a Django project, as a `-c` module: the values of `FUSION` in the project's settings.

`fusion worker -c fusion.contrib.django.config`, with DJANGO_SETTINGS_MODULE set; `manage.py` commands do it by themselves.
"""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

from fusion.contrib.django.conf import as_settings, where
from fusion.exceptions import ConfigurationError

try:
    globals().update(as_settings())
except ImproperlyConfigured as error:
    raise ConfigurationError(
        f"{error} (fusion.contrib.django.config reads FUSION from the project's settings)", code="FUS-203"
    ) from None

#: Where each setting comes from, for people.
__origin__ = f"module {where()} (FUSION[%r])"
