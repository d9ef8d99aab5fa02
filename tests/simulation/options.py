"""What a seed decides before anything happens: sizes, limits, and how often what goes wrong."""

from dataclasses import asdict, dataclass
from functools import cached_property
from random import Random

from batchfleet.service.settings import Settings
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.keys import ModelKeys

MODEL, VERSION, TENANT = "sim", "1", "default"
# Those that are rolled onto; no device process can load the last one.
OTHERS, UNLOADABLE = ("2", "3"), "3"
KEYS = ModelKeys("bf", MODEL)


@dataclass(frozen=True, kw_only=True)
class Options:
    """One simulated fleet. Times are virtual milliseconds."""

    seed: int
    routers: int
    workers: int
    requests: int
    safety_ms: float  # faults happen for so long
    fault_every_ms: float  # mean
    call_fault_share: float  # of the calls of the server
    device_crash_every_ms: float  # mean, each device process
    culprit_share: float
    short_timeout_share: float
    bytes_per_token: float
    max_batch_size: int
    backlog: int
    lease_ms: int
    roll_every_ms: float  # mean time between two things that an operator does; 0: there is none
    by_rolls: bool  # whether that operator rolls, or changes the record as he likes
    jobs: int

    @cached_property
    def settings(self):
        return Settings(
            lease_ms=self.lease_ms,
            beat_ms=self.lease_ms // 3,
            recover_ms=self.lease_ms // 3,
            grace_ms=3_000,
            no_worker_ms=10_000,
        )

    @cached_property
    def record(self):
        """The version that is stable at first."""
        return self.record_of(VERSION)

    def record_of(self, version):
        """All versions differ in nothing but their names, and buckets."""
        edges = (16, 64) if version != OTHERS[0] else (8, 64)
        limits = Limits(
            max_batch_size=self.max_batch_size,
            backlog=self.backlog,
            buckets=edges if self.bytes_per_token else (0,),
            timeout_ms=600_000,
            predict_ms=1_000,
            preprocess_ms=800,
            postprocess_ms=800,
            load_ms=5_000,
        )
        return VersionRecord(version=version, bytes_per_token=self.bytes_per_token, limits=limits)

    def lines(self):
        """One line each, for people."""
        return [f"  {name} = {value}" for name, value in asdict(self).items()]


def options_of(seed):
    """The options that a seed stands for."""
    chance = Random(seed)
    return Options(
        seed=seed,
        routers=chance.choice((1, 1, 2)),
        workers=chance.choice((1, 2, 2, 3)),
        requests=chance.randint(3, 18),
        safety_ms=chance.uniform(2_500, 6_500),
        fault_every_ms=chance.choice((500, 1_000, 2_000, 4_000)),
        call_fault_share=chance.choice((0.0, 0.005, 0.02, 0.05)),
        device_crash_every_ms=chance.choice((3_000, 20_000, 1e9)),
        culprit_share=chance.choice((0.0, 0.05, 0.3)),
        short_timeout_share=chance.choice((0.0, 0.2)),
        bytes_per_token=chance.choice((0.0, 1.0)),
        max_batch_size=chance.choice((1, 4, 8)),
        backlog=chance.choice((6, 100, 100)),
        lease_ms=chance.choice((1_500, 3_000)),
        roll_every_ms=chance.choice((0.0, 300.0, 1_000.0)),
        by_rolls=chance.random() < 0.7,
        jobs=chance.choice((1, 2)),
    )
