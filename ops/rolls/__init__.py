"""Rolls: traffic moves from the stable version to another one step by step, and back by itself."""
