"""Metrics for Prometheus: what each process counts, and what the samples in Redis say of the fleet."""
