"""What the surrounding service imports: enqueue functions by channel, and the settings that `-c instance` names."""
