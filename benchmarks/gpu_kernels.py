"""Counts the kernels that each step of a rollout launches on a GPU, which need not be there.

    pip install --no-deps jax-cuda12-plugin jax-cuda12-pjrt    # in the version of jaxlib
    python -m benchmarks.gpu_kernels --output auto

XLA compiles for an H100 ahead of time. Up to some ten thousand instances, a step of a simple
environment takes as long as its kernels take to start, about a microsecond each.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from benchmarks import _common, forms, hlo

NUM_ENVS = 16_384
IDS = ("CartPole-v1", "Pendulum-v1", "MinAtar/Breakout-v1", "MiniGrid-DoorKey-8x8-v0")
GYMNAX = f"gymnax: {forms.USERS}"
FORMS = (forms.STATISTICS, forms.USERS, GYMNAX)  # those whose results are not a trajectory

# What XLA asks of the device, from NVIDIA's data sheet and CUDA's table of compute capabilities.
_H100 = """
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 8 }
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: 3352320000000
  device_memory_size: 84978434048
  l2_cache_size: 52428800
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("gpu_kernels", __doc__)
    parser.add_argument("--ids", type=_common.words, default=list(IDS), help="environment ids")
    parser.add_argument("--num-envs", type=int, default=NUM_ENVS)
    options = parser.parse_args(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Counts for the ids in `options`; returns the report that is written as JSON."""
    place = SingleDeviceSharding(_device())
    # The choices that jaxenvs makes for a GPU. All programs of this process are for it.
    jax.default_backend = lambda: "gpu"
    report = _common.new_report("gpu_kernels", arguments, ["gymnax", "jax-cuda12-pjrt"], 1)
    measurements = []
    for id in options.ids:
        contestants = [*forms.ours(id, options.num_envs, 256)]
        if id in forms.OURS_IN_GYMNAX:
            contestants += forms.gymnax(id, options.num_envs, 256)
        for contestant in contestants:
            if contestant.name in FORMS:
                found = kernels(contestant, place)
                measurements.append({"id": id, "form": contestant.name, "kernels": found})
                if not options.quiet:
                    print(f"{id} {contestant.name}: {found}", file=sys.stderr, flush=True)
    return report | {"num_envs": options.num_envs, "measurements": measurements}


def kernels(contestant: forms.Contestant, place: SingleDeviceSharding) -> int:
    """Returns the number of kernels on each step of a contestant's rollout."""
    key = jax.random.key(0)
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        jax.eval_shape(lambda *args: args, contestant.carry, key),
    )
    text = jax.jit(contestant.run).lower(*shapes).compile().as_text()
    assert text is not None
    return hlo.kernels_in_longest_loop(text)


def _device() -> Any:
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # CUDA need not be installed
    try:
        topology = topologies.get_topology_desc("", "cuda", topology="1x1x1", target_config=_H100)
    except NotImplementedError:
        raise SystemExit(
            "JAX cannot compile for a GPU here. Install its plugin without a GPU's libraries:"
            " `pip install --no-deps jax-cuda12-plugin jax-cuda12-pjrt`, both in the version of"
            " jaxlib."
        ) from None
    return topology.devices[0]


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    ids = list(dict.fromkeys(entry["id"] for entry in report["measurements"]))
    found = {(entry["id"], entry["form"]): entry["kernels"] for entry in report["measurements"]}
    lines = [f"| kernels per step | {' | '.join(ids)} |", "|---|" + "--:|" * len(ids)]
    for form in FORMS:
        cells = (str(found.get((id, form), "")) for id in ids)
        lines.append(f"| {form} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
