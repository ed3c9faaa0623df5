"""The cell that installs jaxenvs in the runtime of a notebook keeps its accelerator."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "notebooks" / "install.py"


@pytest.fixture
def runtime(tmp_path):
    """Returns a function that runs the cell as on a machine with other hardware."""

    def run(gpu=False, **variables):
        if gpu:
            tool = tmp_path / "nvidia-smi"
            tool.write_text('#!/bin/sh\necho "GPU 0: NVIDIA T4"\n')
            tool.chmod(0o755)
        own = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "JAX_PLATFORMS": ""}
        return subprocess.run(
            [sys.executable, INSTALL],
            env=os.environ | own | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_runtime_with_a_cpu_alone_is_ready(runtime):
    done = runtime()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("jaxenvs ") and done.stdout.endswith("on CPU\n")


@pytest.mark.parametrize(
    ("machine", "name"),
    [({"gpu": True}, "GPU"), ({"TPU_ACCELERATOR_TYPE": "v5litepod-1"}, "TPU")],
)
def test_an_accelerator_that_jax_misses_is_an_error(runtime, machine, name):
    done = runtime(**machine)
    assert done.returncode == 1
    assert f"has a {name}" in done.stderr and "sees a CPU only" in done.stderr
    assert "restart the runtime" in done.stderr
    assert runtime(**machine, JAX_PLATFORMS="cpu").returncode == 0  # which the user asked for


@pytest.mark.parametrize(
    ("found", "jax", "extras", "kept"),
    [
        ("gpu", "0.8.2", "all", ["jax==0.8.2", "jaxlib==0.8.2"]),
        ("tpu", "0.12.0.1", "all", ["jax==0.12.0.1", "jaxlib==0.12.0.1"]),
        ("cpu", "0.10.2", "all", ["jax==0.10.2", "jaxlib==0.10.2"]),
        ("gpu", "0.7.2", "all,cuda", []),  # too old, as its plugin is
        ("tpu", "0.8.1", "all,tpu", []),
        ("cpu", None, "all", []),
    ],
)
def test_a_runtime_keeps_its_jax_if_it_is_new_enough(found, jax, extras, kept):
    cell = runpy.run_path(str(INSTALL))
    first, *rest = cell["requirements"](found, jax, jax)
    assert first.startswith(f"jaxenvs[{extras}] @ git+https://") and rest == kept
