"""What a device process is told of its worker's environment and settings."""

from dataclasses import fields

import pytest

from batchfleet.consumer.link.device_command import device_command
from batchfleet.consumer.link.device_environment import device_environment
from batchfleet.service.settings import SETTING_ROWS, Settings

HARMLESS = {
    "PATH": "/bin",
    "HOME": "/nowhere",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "TZ": "UTC",
    "TMPDIR": "/tmp",
    "LD_LIBRARY_PATH": "/lib",
    "PYTHONPATH": "/lib/python",
    "CUDA_VISIBLE_DEVICES": "0",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "TORCH_HOME": "/torch",
    "HF_HOME": "/hf",
    "TOKENIZERS_PARALLELISM": "false",
}


def test_what_libraries_need_may_pass():
    assert device_environment(HARMLESS, "") == HARMLESS


@pytest.mark.parametrize(
    "name",
    [
        *(SETTING_ROWS[item.name].variable for item in fields(Settings)),
        *("BATCHFLEET_JOBS_REDIS_URL", "BATCHFLEET_CONFIG", "BATCHFLEET_FAULT_POINTS"),
        *("REDIS_URL", "REDISCLI_AUTH", "DATABASE_URL", "PGPASSWORD", "MY_PASSWORD", "GIT_ASKPASS"),
        *(
            "AWS_SECRET_ACCESS_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "HTTPS_PROXY",
            "SSH_AUTH_SOCK",
        ),
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "XDG_SECRET", "TORCH_API_KEY", "path"),
    ],
)
def test_what_might_be_a_secret_passes_only_by_name(name):
    """X2, T18: an address with a password, credentials of storage, tokens in harmless families."""
    environ = {**HARMLESS, name: "hidden"}
    assert device_environment(environ, "") == HARMLESS
    assert device_environment(environ, "OTHER") == HARMLESS
    assert device_environment(environ, f"OTHER, {name}") == environ


def test_an_operator_may_name_families():
    environ = {"AWS_REGION": "x", "AWS_PROFILE": "y", "MY_KEY": "z"}
    assert device_environment(environ, "AWS_*") == {"AWS_REGION": "x", "AWS_PROFILE": "y"}


def test_a_command_line_tells_nothing_of_the_server():
    """X2: everybody on the machine can read it."""
    settings = Settings(redis_url="redis://user:hidden@secret-host:1234/5")
    command = " ".join(device_command(settings))
    assert "--allow-code" in command
    assert not any(part in command for part in ("hidden", "secret-host", "redis:", "1234"))
