"""Every setting of Fusion: defaults, a module, the environment, flags; the last one that names a setting wins."""

from __future__ import annotations

from fusion.settings.groups import default_home
from fusion.settings.masking import mask_url
from fusion.settings.settings import Settings, get_settings, use_settings

__all__ = ["Settings", "default_home", "get_settings", "mask_url", "use_settings"]
