"""What an outsider may write into Redis, or send: every field, name and pickle."""
