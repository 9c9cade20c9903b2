"""Stock RQ, rq-scheduler and a fleet of Fusion on one Redis and one prefix, while processes are killed and ended."""
