"""All deliberate faults."""

from tests.mutants.deploys import DEPLOY_MUTANTS
from tests.mutants.fleet import FLEET_MUTANTS
from tests.mutants.programs import PROGRAM_MUTANTS
from tests.mutants.requests import REQUEST_MUTANTS
from tests.mutants.rolls import ROLL_MUTANTS

MUTANTS = [*REQUEST_MUTANTS, *FLEET_MUTANTS, *PROGRAM_MUTANTS, *ROLL_MUTANTS, *DEPLOY_MUTANTS]
