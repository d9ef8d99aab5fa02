"""What a process in which users' code runs gets of our environment.

Ours holds the server's address with its password, and whatever else an operator put there for us;
a process that had it could act as this worker. So names are listed that may pass, not those that
may not.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

_ALLOWED = (
    # Where programs, people's folders and temporary files are, and how people write.
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TMP", "TEMP", "XDG_*"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR"),
    # What a debugger and colours at a terminal need.
    *("TERM", "TERMINFO", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
    # How Python and libraries are found; which certificates are believed.
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_*"),
    # How numeric libraries and devices are used.
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NCCL_*", "NVIDIA_*", "ROCR_*", "HIP_*", "HSA_*"),
    *("OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "VECLIB_*", "NUMEXPR_*"),
    *("TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*", "ATEN_*", "TF_*", "XLA_*", "JAX_*"),
    *("HF_*", "TRANSFORMERS_*", "TOKENIZERS_*", "SAFETENSORS_*", "RAYON_*", "MALLOC_*"),
)
# Of the families above, what is a secret by its name.
_SECRETS = ("*TOKEN", "*TOKEN_*", "*PASSWORD*", "*SECRET*", "*API_KEY*", "*CREDENTIAL*")


def device_environment(environ: Mapping[str, str], more: str) -> dict[str, str]:
    """The variables that may pass.

    Args:
        environ: ours.
        more: the setting `device_environment`, names that the operator lets pass besides.
    """
    named = [pattern.strip() for pattern in more.split(",") if pattern.strip()]
    return {
        name: value
        for name, value in environ.items()
        if _fits(name, named) or (_fits(name, _ALLOWED) and not _fits(name, _SECRETS))
    }


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
