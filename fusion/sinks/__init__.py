"""Sinks (`fusion/events/sink.py`): Elasticsearch, a file, the log. The relay runs each in a thread. Import the module that you need."""
