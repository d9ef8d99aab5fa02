"""The main process: it takes work off Redis, has device processes run it, and finishes it."""
