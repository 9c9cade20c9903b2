"""For the surrounding service to import: enqueue functions by channel, and the settings that `-c instance` names."""
