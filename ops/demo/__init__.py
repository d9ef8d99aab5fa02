"""The demo: a real model served, real text embedded, and how fast that was."""
