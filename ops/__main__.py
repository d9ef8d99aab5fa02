"""`python -m batchfleet.ops` is the command line where the console script is not on the PATH."""

from .cli import main

main(prog_name="batchfleet")
