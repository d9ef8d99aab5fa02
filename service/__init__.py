"""What makes a process one of ours: clock, life cycle, settings, identity, events and logs."""
