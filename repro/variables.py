"""The environment variables that trials get: this process's without a launcher's, and some on top."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence

from .build_cache import build_cache
from .devices import Device
from .host import instructions
from .packages import installed

_AUTHORS = {"OMP_NUM_THREADS": "1", "NCCL_P2P_LEVEL": "NVL"}
# What mpirun, srun, torchrun, accelerate and cloud services tell the processes that they start. DeepSpeed and
# accelerate take them for the ranks' own, which measure/rank.py sets.
_LAUNCHERS = (
    *("OMPI_", "PMI_", "PMIX_", "PRTE_", "HYDRA_", "MPI_", "MV2_", "SLURM_", "TORCHELASTIC_", "PET_", "ACCELERATE_"),
    *("AZUREML_", "AZ_BATCH", "SM_TRAINING_ENV", "DLTS_"),
)
_RANKS = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "CROSS_RANK", "CROSS_SIZE", "NODE_RANK"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    "DS_ACCELERATOR",  # the run's devices decide
}


def inherited_environment() -> dict[str, str]:
    """Return this process's variables without those by which launchers number its ranks."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS) and name not in _RANKS}


def trial_environment(devices: Sequence[Device], torch: str | None = None) -> dict[str, str]:
    """All that a trial of the paper's recipes gets; `torch` is another stack's."""
    return server_environment(devices, torch) | authors_environment(devices)


def authors_environment(devices: Sequence[Device]) -> dict[str, str]:
    """What the authors' release sets on GPUs (its .env, tag v1.0.0): one thread of the host for each rank, by which it
    updates what is offloaded, and no peer-to-peer between GPUs but by NVLink. What a person has set stands."""
    return {name: os.environ.get(name, value) for name, value in _AUTHORS.items()} if devices else {}


def server_environment(devices: Sequence[Device], torch: str | None = None) -> dict[str, str]:
    """Build caches that outlive the run, the build tools of this Python, and the GPUs; `torch` is another stack's."""
    caches = build_cache()
    found = {
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCH_EXTENSIONS_DIR": str(caches / _extensions(torch or installed("torch"))),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(device.cuda_name for device in devices),
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]),
    }
    if any("GeForce RTX 40" in device.driver_name for device in devices):
        # These have no peer-to-peer links; the authors turned NCCL's off for them, too.
        found |= {name: os.environ.get(name, "1") for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")}
    return found


def _extensions(torch: str | None) -> str:
    """A folder for one torch and one kind of processor: torch loads what was built by the same command as it is, and
    DeepSpeed's Adam is compiled for the processor that it is compiled on."""
    return f"extensions-torch-{torch}-{instructions()}"
