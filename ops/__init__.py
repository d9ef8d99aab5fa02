"""What people run: the command line, deploying, and starting a fleet."""
