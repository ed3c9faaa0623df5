"""Compares whole PPO trainings on a MuJoCo task: the same settings, in turn in one process.

- "jaxenvs": `make_train` with C MuJoCo, one jitted program;
- "pool": the same program with Gymnasium's own task in worker processes, as many as cores;
- "sb3" and "sb3-processes": Stable-Baselines3 with its `DummyVecEnv` and `SubprocVecEnv`.

The time to compile, or to make the model and the environments, is reported separately.

    python -m benchmarks.mujoco_training --output auto
"""

import argparse
import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

import jaxenvs
from benchmarks import _common
from jaxenvs.training import PPO, make_train

NUM_ENVS, UNROLL, EPOCHS, BATCH = 8, 256, 10, 64
Train = Callable[[int], Any]  # trains with this seed


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("mujoco_training", __doc__)
    add = parser.add_argument
    add("--id", default="HalfCheetah-v5", help="a task of Gymnasium's")
    add("--contestants", type=_common.words, default=list(CONTESTANTS), help="comma-separated")
    add("--steps", type=int, default=102_400, help="environment steps of a training")
    add("--repeats", type=int, default=5, help="number of repetitions (default 5)")
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    packages = ("flax", "optax", "gymnasium", "mujoco", "stable_baselines3", "torch")
    report = _common.new_report("mujoco_training", arguments, packages, options.repeats)
    seconds: dict[str, list[float]] = {name: [] for name in options.contestants}
    ready: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        trainings = {}
        for name in options.contestants:
            start = time.perf_counter()
            made = CONTESTANTS[name](options.id, options.steps)
            trainings[name] = stack.enter_context(made)
            ready[name] = time.perf_counter() - start
        for repeat in range(options.repeats):
            for name in _common.rotated(trainings, repeat):
                start = time.perf_counter()
                trainings[name](repeat)
                seconds[name].append(time.perf_counter() - start)
    report["measurements"] = [
        {
            "id": options.id,
            "contestant": name,
            "steps_per_second": [options.steps / taken for taken in seconds[name]],
            "ready_seconds": ready[name],
        }
        for name in options.contestants
    ]
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    rows = (
        [
            entry["id"],
            entry["contestant"],
            _common.spread(entry["steps_per_second"], ",.0f"),
            f"{entry['ready_seconds']:.1f}",
        ]
        for entry in report["measurements"]
    )
    lines = _common.markdown(("id", "contestant", "steps/s", "ready after, s"), rows)
    return "\n".join([_common.headline(report, "steps of whole trainings"), "", *lines])


@contextlib.contextmanager
def _ours(prefix: str, id: str, steps: int, **parameters: Any) -> Iterator[Train]:
    with contextlib.ExitStack() as stack:
        env = jaxenvs.make_vec(prefix + id, NUM_ENVS, **parameters)
        if prefix:
            stack.callback(env.close)  # pyright: ignore[reportAttributeAccessIssue]
        ppo = PPO.continuous(epochs=EPOCHS, minibatches=NUM_ENVS * UNROLL // BATCH)
        train = make_train(env, ppo, unroll_length=UNROLL, total_steps=steps)
        program = jax.jit(train).lower(jax.random.key(0)).compile()
        yield lambda seed: jax.block_until_ready(program(jax.random.key(seed)))


@contextlib.contextmanager
def _stable_baselines3(in_processes: bool, id: str, steps: int) -> Iterator[Train]:
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    kind = SubprocVecEnv if in_processes else DummyVecEnv
    envs = make_vec_env(id, NUM_ENVS, vec_env_cls=kind)

    def train(seed: int) -> Any:
        model = stable_baselines3.PPO(
            "MlpPolicy",
            envs,
            n_steps=UNROLL,
            batch_size=BATCH,
            n_epochs=EPOCHS,
            seed=seed,
            device="cpu",
        )
        return model.learn(steps, log_interval=None)  # pyright: ignore[reportArgumentType]

    with contextlib.closing(envs):
        yield train


CONTESTANTS: dict[str, Callable[[str, int], contextlib.AbstractContextManager[Train]]] = {
    "jaxenvs": functools.partial(_ours, ""),
    "pool": functools.partial(_ours, "gymnasium/", num_workers=os.cpu_count()),
    "sb3": functools.partial(_stable_baselines3, False),
    "sb3-processes": functools.partial(_stable_baselines3, True),
}


if __name__ == "__main__":
    main()
