"""The import of the measured stack, torch first, in every process that trains, and the variables that control the
stack."""

from __future__ import annotations

import contextlib
import importlib
import locale
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from .. import models
from ..console import INSTALLED, ROOT, one_line
from ..installation import installed
from . import nvml, packages
from .build_cache import build_cache, is_awkward, packaged_compiler
from .devices import Device
from .host import instructions


def preloaded() -> tuple[str, ...]:
    """Return all that trials import: a trial forked from a process that has loaded it starts in milliseconds."""
    return (
        "torch._dynamo",
        "torch._inductor.compile_fx",
        "torch._inductor.lowering",
        "torch.distributed.fsdp",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
        "torch.distributed.fsdp.sharded_grad_scaler",
        *models.modules(),
        "transformers.loss.loss_utils",
        "deepspeed",
        "deepspeed.runtime.zero.stage3",
        "deepspeed.runtime.zero.muon.muon_optimizer",
    )


def declare_torchvision_operators() -> None:
    """Declare the operators of torchvision, so that its CUDA build can be imported beside a CPU torch. It has no CPU
    build on PyPI, and its CUDA build cannot load them there: its import, which timm and transformers need, would fail
    with `torchvision::nms does not exist`. Nothing here calls them, so that declaring their schemas is enough."""
    import torch

    found = installed("torchvision")
    if torch.version.cuda is not None or found is None or "+cpu" in found or hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declare_torchvision_operators.library = library  # type: ignore[attr-defined]  # kept alive


def load(modules: Iterable[str] = ()) -> dict[str, str]:
    """Import torch, work around torchvision, then import `modules`; return those that do not import, each with the
    error: some versions lack them, and some packages are broken."""
    # The driver is asked through NVML: a CUDA context made here would be broken in every forked trial.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # The compiler's worker processes start in the trial that needs them, not in every process that imports torch.
    os.environ.setdefault("TORCH_WARM_POOL", "0")
    os.environ.setdefault("TORCH_TNT_IN_USE", "1")  # does so in torch 2.3, whose workers would start CUDA here
    # transformers and its hub client stay offline: models are built from numbers in their recipes.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not _on_gpus():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    declare_torchvision_operators()
    broken = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken package may raise anything
            broken[module] = one_line(error)
    return broken


def _on_gpus() -> bool:
    """Return whether what is imported here will run on GPUs. Asks NVML: torch would start CUDA to see a MIG slice."""
    import torch

    return torch.backends.cuda.is_built() and bool(nvml.visible_devices())


@contextlib.contextmanager
def answers_of_the_driver() -> Iterator[None]:
    """Let torch answer questions about the GPU from NVML, without starting CUDA. On import, DeepSpeed 0.14 and the
    compiler of torch 2.3 ask for its compute capability, and more modules ask whether there is a GPU, for which torch
    would start CUDA with a MIG slice. A function that a module keeps from here calls torch's own once this context has
    ended."""
    import torch

    devices = nvml.visible_devices()
    if not devices:
        yield
        return
    major, minor = devices[0].compute_capability
    answers: dict[str, Any] = {
        "get_device_properties": SimpleNamespace(major=major, minor=minor),
        "current_device": 0,
    }
    if devices[0].sliced:
        answers |= {"device_count": len(devices), "is_available": torch.backends.cuda.is_built()}
    own = {name: getattr(torch.cuda, name) for name in answers}
    importing = True

    def in_place_of(name: str) -> Callable[..., Any]:
        return lambda *asked, **named: answers[name] if importing else own[name](*asked, **named)

    for name in answers:
        setattr(torch.cuda, name, in_place_of(name))
    try:
        yield
    finally:
        importing = False
        for name, function in own.items():
            setattr(torch.cuda, name, function)
        interface = sys.modules.get("torch._dynamo.device_interface")
        getattr(interface, "caching_worker_device_properties", {}).clear()  # trials need all real properties


def preload(modules: Sequence[str]) -> dict[str, str]:
    """Import what trials use, without touching the device; return what does not import, as `load` does."""
    load()
    with answers_of_the_driver():
        broken = load(modules)
    import torch

    if "deepspeed" in modules and "deepspeed" not in broken and not _on_gpus():
        import deepspeed

        # DeepSpeed then uses gloo on a CPU: its shared-memory collectives would have to be compiled first.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    with contextlib.suppress(AttributeError):
        if torch.cuda.is_initialized():
            raise RuntimeError("importing the stack initialised CUDA, and a trial cannot be forked after that")
    return broken


_AUTHORS = {"OMP_NUM_THREADS": "1", "NCCL_P2P_LEVEL": "NVL"}
# Variables that mpirun, srun, torchrun, accelerate and cloud services set for the processes that they start. DeepSpeed
# and accelerate would take them for the ranks' own, which measure/rank.py sets.
_LAUNCHERS = (
    *("OMPI_", "PMI_", "PMIX_", "PRTE_", "HYDRA_", "MPI_", "MV2_", "SLURM_", "TORCHELASTIC_", "PET_", "ACCELERATE_"),
    *("AZUREML_", "AZ_BATCH", "SM_TRAINING_ENV", "DLTS_"),
)
_RANKS = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "CROSS_RANK", "CROSS_SIZE", "NODE_RANK"),
    *("GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    "DS_ACCELERATOR",  # the run's devices decide
}
_BY_TORCHRUN = "TORCH_NCCL_ASYNC_ERROR_HANDLING"  # torchrun sets it to 1, which is not torch's default


_UTF_8 = "PYTHONUTF8"
LIBRARY_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD")  # take precedence over the libraries that the stack brings
# Prefixes of variables that affect speed or numbers.
_STEERING = (
    *("ATEN_", "BLIS_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "DS_", "GLIBC_TUNABLES", "GLOO_", "GOMP_", "KMP_"),
    *(
        "MALLOC_",
        "MKL_",
        "NCCL_",
        "NVIDIA_TF32",
        "OMP_",
        "ONEDNN_",
        "OPENBLAS_",
        "PYTORCH_",
        "TCMALLOC_",
        "TORCH",
        "TRITON_",
    ),
)
_STEERING_TOO = {"CC", "CXX", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONPATH", *LIBRARY_PATHS}
# Values that may be private paths or secrets are recorded as "set".
_PRIVATE_NAME = re.compile(r"_(FILE|HOME|PATH|ROOT)$|AUTH|CREDENTIAL|KEY|PASSW|SECRET|TOKEN")
_PRIVATE_VALUE = re.compile(r"[/\\~@]|^[.]")


def inherited_environment() -> dict[str, str]:
    """Return this process's variables without those by which launchers number its ranks."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS) and name not in _RANKS}
    if "TORCHELASTIC_RUN_ID" in os.environ and ours.get(_BY_TORCHRUN) == "1":
        del ours[_BY_TORCHRUN]
    return ours


def process_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a fork server and what it forks, with its `own`. Python finds this checkout before the
    caller's PYTHONPATH, and no module in the current folder, and takes files for UTF-8, whatever the locale."""
    # Python finds an installed repro, and PYTHONPATH would put all that is installed before Python's own library.
    paths = os.pathsep.join([*([] if INSTALLED else [str(ROOT)]), *_python_path()])
    return {**inherited_environment(), **own, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", _UTF_8: "1"}


def restart_in_utf8() -> None:
    """Start this program again where Python takes files for the locale's encoding and that is not UTF-8: torch's
    compiler cannot read its own templates then."""
    if os.environ.get(_UTF_8) != "1" and locale.getencoding().lower() not in ("utf-8", "utf8"):
        os.environ[_UTF_8] = "1"
        os.execv(sys.executable, sys.orig_argv)


def recorded_variables(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `process_environment` that affect speed or numbers. A value that may be a path or a
    secret is replaced by "set"."""
    found = process_environment(own)
    if not callers_python_path():
        del found["PYTHONPATH"]
    recorded = {}
    for name, value in sorted(found.items()):
        # The location of a cache, which a name ending in _DIR has, does not affect what runs.
        if not name.endswith("_DIR") and (name.startswith(_STEERING) or name in _STEERING_TOO):
            paths = name in ("PYTHONPATH", *LIBRARY_PATHS)
            private = paths or _PRIVATE_NAME.search(name) or _PRIVATE_VALUE.search(value)
            recorded[name] = "set" if private else os.fsencode(value).decode(errors="backslashreplace")
    return recorded


def callers_python_path() -> list[str]:
    """Return the folders on PYTHONPATH that neither this checkout nor an image added."""
    ours = {str(ROOT), packages.IMAGE_KERNELS} if packages.image_target() is not None else {str(ROOT)}
    return [path for path in _python_path() if os.path.realpath(path) not in map(os.path.realpath, ours)]


def _python_path() -> list[str]:
    """Return the entries of PYTHONPATH, except empty ones, which mean the current folder."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def trial_environment(devices: Sequence[Device], torch: str | None = None) -> dict[str, str]:
    """Return all variables of a trial of the paper's recipes; `torch` is another stack's version."""
    return server_environment(devices, torch) | authors_environment(devices)


def authors_environment(devices: Sequence[Device]) -> dict[str, str]:
    """Return what the authors' release sets on GPUs (its .env, tag v1.0.0): one host thread per rank, which updates
    offloaded states, and no peer-to-peer between GPUs except by NVLink. The user's own values take precedence."""
    return {name: os.environ.get(name, value) for name, value in _AUTHORS.items()} if devices else {}


def server_environment(devices: Sequence[Device], torch: str | None = None) -> dict[str, str]:
    """Return the variables for lasting build caches, build tools and the GPUs; `torch` is another stack's version."""
    caches = build_cache()
    found = {
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        # For one torch and one kind of processor: torch loads an existing build as it is, and DeepSpeed's Adam is
        # compiled for the processor at hand.
        "TORCH_EXTENSIONS_DIR": str(caches / f"extensions-torch-{torch or installed('torch')}-{instructions()}"),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(device.cuda_name for device in devices),
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]),
    }
    own = torch in (None, installed("torch"))
    if devices and own and (compiler := packaged_compiler()) is not None:
        found["CUDA_HOME"] = str(compiler)
    if is_awkward(tempfile.gettempdir()):  # torch compiles some files there
        found["TMPDIR"] = str(caches / "tmp")
        os.makedirs(found["TMPDIR"], mode=0o700, exist_ok=True)
    if any("GeForce RTX 40" in device.driver_name for device in devices):
        # These have no peer-to-peer links; the authors also disabled NCCL's for them.
        found |= {name: os.environ.get(name, "1") for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")}
    return found
