"""Integrations with frameworks. Each has its own extra; nothing else in Fusion imports them."""
