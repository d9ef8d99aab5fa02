"""The worker: a main process that owns Redis and batching, and device processes that run models."""
