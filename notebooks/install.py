"""Installs jaxenvs in the runtime of a notebook, such as one of Colab, whatever processor it has.

    import urllib.request
    source = "https://raw.githubusercontent.com/jaxenvs/jaxenvs/main/notebooks/install.py"
    exec(urllib.request.urlopen(source).read())

The runtime's JAX stays if it is new enough, because a newer one may not fit the plugin through
which it sees a GPU or TPU. Otherwise JAX is installed with such a plugin, and the runtime has to
start again. It is an error if there is an accelerator that JAX does not see.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = "git+https://github.com/jaxenvs/jaxenvs"
OLDEST = 0, 8, 2  # of the releases of JAX that jaxenvs needs
TO_JAX = {"gpu": "all,cuda", "tpu": "all,tpu", "cpu": "all"}  # extras


def hardware():
    """Returns "gpu", "tpu", or "cpu": what the machine has, and not what JAX sees of it."""
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        if "GPU" in listed.stdout:
            return "gpu"
    is_tpu = any(name in os.environ for name in ("COLAB_TPU_ADDR", "TPU_ACCELERATOR_TYPE"))
    return "tpu" if is_tpu or pathlib.Path("/dev/accel0").exists() else "cpu"


def version(package):
    """Returns the installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements(found, jax, jaxlib):
    """Returns what pip installs on this hardware, beside these versions of JAX, or None."""
    numbers = tuple(map(int, re.findall(r"\d+", jax or "0.0")[:3]))
    if jaxlib is None or numbers < OLDEST:
        return [f"jaxenvs[{TO_JAX[found]}] @ {SOURCE}"]
    return [f"jaxenvs[all] @ {SOURCE}", f"jax=={jax}", f"jaxlib=={jaxlib}"]


def what_jax_sees():
    """Returns "gpu", "tpu", or "cpu", by another process: this one may have loaded an older JAX."""
    program = "import jax; print(jax.default_backend())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemError(f"JAX does not start:\n{done.stderr[-2000:]}")
    return done.stdout.split()[-1]


def install():
    """Installs jaxenvs unless it is there, and says what JAX sees.

    Raises:
        SystemError: JAX does not see the accelerator, or the runtime has to start again.
    """
    found, before = hardware(), version("jax")
    if importlib.util.find_spec("jaxenvs") is None:
        wanted = requirements(found, before, version("jaxlib"))
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)
    importlib.invalidate_caches()
    seen, now = what_jax_sees(), version("jax")
    if found != seen and os.environ.get("JAX_PLATFORMS", "") == "":
        raise SystemError(
            f"this runtime has a {found.upper()}, but JAX {now} sees a {seen.upper()} only."
            f'  Run pip install --upgrade "jaxenvs[{TO_JAX[found]}] @ {SOURCE}", restart the'
            " runtime, and run this cell again.  To go on without it, set JAX_PLATFORMS=cpu."
        )
    if "jax" in sys.modules and before != now:
        raise SystemError(
            f"JAX {now} replaced {before}, which this runtime has loaded.  Restart the runtime"
            " (Runtime, Restart session), and run this cell again."
        )
    print(f"jaxenvs {version('jaxenvs')}, JAX {now} on {seen.upper()}")


install()
