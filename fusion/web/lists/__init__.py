"""Lists and single things over HTTP that are not jobs."""
