"""SIGKILL and SIGSTOP at every failpoint of every process; each ends with no job lost, stuck or in two sets."""
