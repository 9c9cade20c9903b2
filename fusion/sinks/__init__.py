"""Where events go: sinks (`fusion/events/sink.py`), each a thread of the relay. Import the module of the one that is wanted."""
