"""What every fault is made with, and checked by: proxy, shims for clock, disk and names, replicas, the conservation checker."""
