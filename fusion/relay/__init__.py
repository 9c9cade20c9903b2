"""The process that brings events to their sinks."""
