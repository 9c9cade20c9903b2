"""What happens to jobs, as a stream of events, and where it goes."""
