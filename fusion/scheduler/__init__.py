"""The process that makes due jobs and cron ticks happen."""
