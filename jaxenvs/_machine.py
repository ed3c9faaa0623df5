"""The processors and the cache folder that this process may use."""

import os
import re
import shutil
import subprocess
from pathlib import Path


def num_cores() -> int:
    """Returns the number of cores that this process may use, at least 1.

    The operating system may restrict it to some cores, and a container to a share of their time.
    """
    limit = cpu_limit()
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return cores if limit is None else max(1, min(cores, int(limit)))


def cpu_limit(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """Returns the CPU quota of this process's cgroups, in cores; None without a limit.

    Args:
        root: the folder of the cgroup file system.
        own: the file that lists the cgroups of this process.
    """
    group = re.search(r"^0::(.*)$", _read(own), re.MULTILINE)
    parts = [part for part in group[1].split("/") if part] if group else []
    folders = [os.path.join(root, *parts[:depth]) for depth in range(len(parts) + 1)]
    pairs = [_read(os.path.join(folder, "cpu.max")).split() for folder in folders]
    old = os.path.join(root, "cpu", "cpu.cfs_")
    pairs.append([*_read(f"{old}quota_us").split(), *_read(f"{old}period_us").split()])
    limits = [int(pair[0]) / int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0].isdigit()]
    return min(limits, default=None)


def accelerator() -> str | None:
    """Returns "gpu" or "tpu" if the machine has one, whether or not JAX sees it.

    notebooks/install.py has this, too, which runs before jaxenvs is there.
    """
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        if "GPU" in listed.stdout:
            return "gpu"
    is_tpu = any(name in os.environ for name in ("COLAB_TPU_ADDR", "TPU_ACCELERATOR_TYPE"))
    return "tpu" if is_tpu or Path("/dev/accel0").exists() else None


def cache_folder() -> Path:
    """Returns the folder for this user's tuning results and other files that can be made again."""
    if base := os.environ.get("JAXENVS_CACHE"):
        return Path(base)
    home = os.path.expanduser("~")
    if not os.path.isabs(home):  # a user without a home folder has no cache
        home = os.devnull
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(home, ".cache"), "jaxenvs")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
