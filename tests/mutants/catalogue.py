"""All deliberate faults."""

from tests.mutants.programs import PROGRAM_MUTANTS
from tests.mutants.scripts import SCRIPT_MUTANTS

MUTANTS = [*SCRIPT_MUTANTS, *PROGRAM_MUTANTS]
