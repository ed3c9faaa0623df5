"""Measures the memory and the speed of replay storages, compared with flashbax.

Memory is the size of the arrays that `init` makes, computed from their shapes. An update adds an
unroll of CartPole's transitions, draws a batch, and, in a prioritized storage, sets priorities; 100
updates on a full storage run in one jitted scan.

flashbax's item buffers store the same transitions, each with both observations, and take [N, T] of
them at a time. The weights of the rows are computed from its probabilities; jaxenvs' samples
include them.
"""

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _common
from benchmarks._common import OURS
from jaxenvs.training import HindsightReplay, PrioritizedReplay, Replay
from jaxenvs.training.storages import ReplayStorage
from jaxenvs.training.types import Transition

NUM_ENVS, UNROLL_LENGTH = 16, 1
UPDATES = 100  # in one scan
BYTES_AT = 100_000  # capacity for which memory is computed, in transitions
PEERS = ("flashbax",)
Contestant = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]  # init, add, update
ALPHA, BETA, GAMMA = 0.6, 0.4, 0.99
CARTPOLE = np.zeros(4, np.float32)
OBSERVATIONS = {
    "CartPole-v1": CARTPOLE,
    "84x84x4 images": np.zeros((84, 84, 4), np.uint8),
    "goals": {
        "observation": np.zeros(10, np.float32),
        "achieved_goal": np.zeros(3, np.float32),
        "desired_goal": np.zeros(3, np.float32),
    },
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _common.new_parser("storages", __doc__)
    add = parser.add_argument
    add("--capacities", type=_common.numbers, default=[10_000, 100_000], help="comma-separated")
    add("--batch-sizes", type=_common.numbers, default=[32, 128, 256], help="comma-separated")
    add("--repeats", type=int, default=11, help="number of repetitions (default 11)")
    add("--min-seconds", type=float, default=0.05, help="minimum duration of a sample")
    add("--peers", type=_common.choices(PEERS), default=list(PEERS), help='"flashbax" or ""')
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    report = _common.new_report("storages", arguments, PEERS, options.repeats)
    report["bytes"] = [entry for name in OBSERVATIONS for entry in _bytes(name, options.peers)]
    report["measurements"] = [
        entry
        for kind in ("uniform", "prioritized")
        for capacity in options.capacities
        for batch_size in options.batch_sizes
        for entry in _race(kind, capacity, batch_size, options)
    ]
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    held = []
    for entry in report["bytes"]:
        each = entry["allocated"] / entry["capacity"]
        ratios = [f"{each / entry[name]:.3f}" for name in ("transition", "once")]
        held.append([entry["id"], entry["storage"], f"{each:,.1f}", *ratios])
    updates = (
        [
            entry["kind"],
            f"{entry['capacity']:,}",
            entry["batch_size"],
            entry["contestant"],
            _common.spread([1e6 * each for each in entry["seconds"]], ".1f"),
            _common.spread(entry["this_over_ours"], ".2f"),
        ]
        for entry in report["measurements"]
    )
    ratios = "ratio to the transition", "ratio with each observation once"
    sizes = "observations", "storage", f"bytes per transition, of {BYTES_AT:,}", *ratios
    times = "", "capacity", "batch", "storage", "µs per update", "this / jaxenvs"
    return "\n".join(
        [
            _common.headline(report, f"N = {NUM_ENVS}, T = {UNROLL_LENGTH}"),
            "",
            *_common.markdown(sizes, held),
            "",
            *_common.markdown(times, updates),
        ]
    )


def _bytes(name: str, peers: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the bytes that storages of `BYTES_AT` transitions allocate."""
    observation = OBSERVATIONS[name]
    unroll = jax.eval_shape(lambda: _transitions(observation, (UNROLL_LENGTH, NUM_ENVS)))
    storages = {
        f"{OURS} Replay": Replay(capacity=BYTES_AT),
        f"{OURS} Replay, n_step=3": Replay(capacity=BYTES_AT, n_step=3),
        f"{OURS} PrioritizedReplay": PrioritizedReplay(capacity=BYTES_AT),
    }
    if isinstance(observation, dict):
        storages[f"{OURS} Hindsight"] = HindsightReplay(
            capacity=BYTES_AT, compute_reward=_distance, compute_terminated=_is_reached
        )
    states = {key: jax.eval_shape(storage.init, unroll) for key, storage in storages.items()}
    for kind in ("uniform", "prioritized") if peers else ():
        buffer, item = _flashbax(kind, BYTES_AT, 1), jax.eval_shape(_transitions, observation)
        states[f"flashbax {kind}"] = jax.eval_shape(buffer.init, item)
    transition = _nbytes(unroll) // (UNROLL_LENGTH * NUM_ENVS)
    about = {"id": name, "capacity": BYTES_AT, "transition": transition}
    about["once"] = transition - _nbytes(observation)
    return [about | {"storage": key, "allocated": _nbytes(state)} for key, state in states.items()]


def _race(
    kind: str, capacity: int, batch_size: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measures a storage of jaxenvs and its peers in turn."""
    storage = {"uniform": Replay, "prioritized": PrioritizedReplay}[kind](capacity=capacity)
    updates = {OURS: _ours(storage, batch_size)}
    if options.peers:
        updates["flashbax"] = _theirs(_flashbax(kind, capacity, batch_size), kind, capacity)
    samplers = {
        name: _common.Sampler(_timed_scans(update, capacity)) for name, update in updates.items()
    }
    _common.alternate(list(samplers.values()), options.repeats, options.min_seconds)
    seconds = {
        name: [each / (sampler.calls * UPDATES) for each in sampler.seconds]
        for name, sampler in samplers.items()
    }
    about = {"kind": kind, "capacity": capacity, "batch_size": batch_size}
    return [
        about
        | {
            "contestant": name,
            "seconds": own,
            "this_over_ours": [a / b for a, b in zip(own, seconds[OURS], strict=True)],
        }
        for name, own in seconds.items()
    ]


def _timed_scans(contestant: Contestant, capacity: int) -> Callable[[int], float]:
    """Returns a function that times scans on one storage, which is full from the start."""
    init, add, update = contestant
    shape = (UPDATES, UNROLL_LENGTH, NUM_ENVS)
    unrolls = jax.jit(lambda: _transitions(CARTPOLE, shape, jax.random.key(0)))()
    keys = jax.random.split(jax.random.key(1), UPDATES)

    @functools.partial(jax.jit, donate_argnums=0)
    def scan(state: Any) -> Any:
        return jax.lax.scan(lambda state, inputs: update(state, *inputs), state, (unrolls, keys))

    @jax.jit
    def full() -> Any:
        def fill(state: Any, number: jax.Array) -> tuple[Any, None]:
            return add(state, jax.tree.map(lambda x: x[number % UPDATES], unrolls)), None

        number = jnp.arange(-(-capacity // (UNROLL_LENGTH * NUM_ENVS)))
        return jax.lax.scan(fill, init(), number)[0]

    state, read = full(), None

    def run(calls: int) -> float:
        nonlocal state, read
        jax.block_until_ready(state)
        begin = time.perf_counter()
        for _ in range(calls):
            state, read = scan(state)
        jax.block_until_ready((state, read))
        return time.perf_counter() - begin

    return run


def _ours(storage: ReplayStorage, batch_size: int) -> Contestant:
    def update(state: Any, unroll: Transition, key: jax.Array) -> Any:
        state = storage.add(state, unroll)
        sample = storage.sample(state, key, batch_size, gamma=GAMMA, steps=0.0)
        read, error = _sum_all(sample.replace(index=()))
        return storage.set_priorities(state, sample.index, error), read

    unroll = _transitions(CARTPOLE, (UNROLL_LENGTH, NUM_ENVS))
    return functools.partial(storage.init, unroll), storage.add, update


def _theirs(buffer: Any, kind: str, capacity: int) -> Contestant:
    def add(state: Any, unroll: Transition) -> Any:
        return buffer.add(state, jax.tree.map(lambda x: x.swapaxes(0, 1), unroll))

    def update(state: Any, unroll: Transition, key: jax.Array) -> Any:
        state = add(state, unroll)
        sample = buffer.sample(state, key)
        rows: Transition = sample.experience
        discount = jnp.where(rows.terminated, 0.0, GAMMA)
        weight = jnp.ones_like(discount)
        if kind == "prioritized":
            weight = (capacity * sample.probabilities) ** -BETA
            weight = weight / weight.max()
        used = (rows.observation, rows.action, rows.reward, rows.next_observation, discount, weight)
        read, error = _sum_all(used)
        if kind == "prioritized":
            state = buffer.set_priorities(state, sample.indices, jnp.abs(error) + 1e-6)
        return state, read

    return functools.partial(buffer.init, _transitions(CARTPOLE)), add, update


def _sum_all(sample: Any) -> tuple[jax.Array, jax.Array]:
    """Sums everything that was drawn, so that it must be read: float32[], and float32[B]."""
    each = [x.reshape(x.shape[0], -1).astype(jnp.float32) for x in jax.tree.leaves(sample)]
    error = sum(x.sum(axis=1) for x in each[1:]) + each[0].sum(axis=1)
    return error.sum(), error


def _flashbax(kind: str, capacity: int, batch_size: int) -> Any:
    import flashbax

    shape: dict[str, Any] = {
        "max_length": capacity,
        "min_length": 1,
        "sample_batch_size": batch_size,
        "add_sequences": True,
        "add_batches": True,
    }
    if kind == "uniform":
        return flashbax.make_item_buffer(**shape)
    device = jax.devices()[0].platform  # selects the faster of its two ways to set priorities
    return flashbax.make_prioritised_item_buffer(**shape, priority_exponent=ALPHA, device=device)


def _transitions(
    observation: Any, shape: tuple[int, ...] = (), key: jax.Array | None = None
) -> Transition:
    """Returns transitions with leading axes `shape`: zeros, or random values drawn from `key`."""
    if key is None:
        real, ends = jnp.zeros(shape), jnp.zeros(shape, bool)
    else:
        real, ends = jax.random.normal(key, shape), jax.random.bernoulli(key, 0.04, shape)

    def seen(x: np.ndarray) -> jax.Array:
        return jnp.broadcast_to(
            real.reshape(*shape, *(1,) * x.ndim).astype(x.dtype), (*shape, *x.shape)
        )

    observations = jax.tree.map(seen, observation)
    return Transition(
        observation=observations,
        action=jnp.zeros(shape, jnp.int32),
        reward=real,
        terminated=ends,
        truncated=jnp.zeros(shape, bool),
        next_observation=jax.tree.map(jnp.negative, observations),
    )


def _distance(achieved: jax.Array, desired: jax.Array) -> jax.Array:
    return -jnp.abs(achieved - desired).sum()


def _is_reached(achieved: jax.Array, desired: jax.Array) -> jax.Array:
    return (achieved == desired).all()


def _nbytes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


if __name__ == "__main__":
    main()
