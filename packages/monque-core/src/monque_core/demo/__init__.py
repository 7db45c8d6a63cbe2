"""A demonstration that runs and checks itself: `python -m monque_core.demo`."""
