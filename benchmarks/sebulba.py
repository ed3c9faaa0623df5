"""Measures how much of stepping or learning an asynchronous collector hides.

The environments run in worker processes and wait for one millisecond per step, as they would for a
game, a network, or a robot. One update is timed in three ways: stepping alone, learning alone, and
both in a `Learner` with `collection=remote(1, sync=False)`. The three take turns within a
repetition, and a share is computed within a repetition. Before another turn, the collector finishes
its unroll, so it is idle then.
"""

import concurrent.futures
import functools
import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import numpy as np

import jaxenvs
from benchmarks import _common
from benchmarks.host.overlap import share_hidden
from jaxenvs.training import PPO, ActorCritic, Learner, Scheme, VTrace, remote
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.schemes import executors

NUM_ENVS, UNROLL_LENGTH = 4, 64
SECONDS = 1e-3  # wait of an environment in a step
UPDATES = 10  # per sample
TARGET = 0.8
RATIOS = (0.5, 1.0, 2.0)  # approximate time for learning, divided by that for stepping


class SleepingEnv(gymnasium.Env):
    """An environment with random observations whose step sleeps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        time.sleep(SECONDS)
        return (
            self.observation_space.sample(),
            float(action),
            self.np_random.random() < 0.02,
            False,
            {},
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _common.new_parser("sebulba", __doc__)
    parser.add_argument(
        "--repeats", type=int, default=15, help="number of repetitions (default 15)"
    )
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options.repeats, arguments), table)


def measure(repeats: int, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    report = _common.new_report("sebulba", arguments, ("flax", "optax", "gymnasium"), repeats)
    report["measurements"] = [_race(epochs, repeats) for epochs in _epochs()]
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    work = f"N = {NUM_ENVS}, T = {UNROLL_LENGTH}, {SECONDS * 1e3:g} ms per step"
    titles = "stepping, ms", "learning, ms", "both, ms", f"hidden of the shorter (≥ {TARGET:.0%})"
    rows = []
    for entry in report["measurements"]:
        times = [
            _common.quartiles(entry["seconds"][name])[1] * 1e3 for name in ("step", "learn", "both")
        ]
        rows.append([*(f"{each:.1f}" for each in times), _common.spread(entry["hidden"], ".0%")])
    return "\n".join([_common.headline(report, work), "", *_common.markdown(titles, rows)])


def _race(epochs: int, repeats: int) -> dict[str, Any]:
    with (
        Learner(_scheme(epochs), total_steps=10**9) as alone,
        Learner(_scheme(epochs, collection=remote(1, sync=False)), total_steps=10**9) as ahead,
    ):
        executor: Any = alone._executor
        sides = {
            "step": lambda: _collect(executor),
            "learn": lambda: _learn(executor),
            "both": lambda: ahead.step(),
        }
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(3):  # compiles, and starts the collectors
            for side in sides.values():
                side()
        for repeat in range(repeats):
            for name in _common.rotated(sides, repeat):
                _wait_until_idle(ahead)
                if name == "both":
                    ahead.step()  # uses the unroll that was collected before this turn
                seconds[name].append(_timed(sides[name]))
    hidden = [
        share_hidden(*each)
        for each in zip(seconds["step"], seconds["learn"], seconds["both"], strict=True)
    ]
    return {"epochs": epochs, "seconds": seconds, "hidden": hidden, "target": TARGET}


def _epochs() -> list[int]:
    """Returns the numbers of epochs for which learning takes `RATIOS` of the collection time."""
    with Learner(_scheme(8), total_steps=10**9) as learner:
        executor: Any = learner._executor
        for _ in range(3):
            _collect(executor)
            _learn(executor)
        stepping = _timed(lambda: _collect(executor))
        learning = _timed(lambda: _learn(executor))
    return [max(1, round(8 * ratio * stepping / learning)) for ratio in RATIOS]


def _timed(side: Any) -> float:
    begin = time.perf_counter()
    for _ in range(UPDATES):
        side()
    return (time.perf_counter() - begin) / UPDATES


def _wait_until_idle(ahead: Learner) -> None:
    """Waits until the collector of `ahead` has finished its unroll."""
    executor: Any = ahead._executor
    concurrent.futures.wait(executor._source._pending)


def _scheme(epochs: int, **parts: Any) -> Scheme:
    return Scheme(
        env=_env,
        algorithm=PPO(epochs=epochs, minibatches=1),
        actor=ActorCritic(hidden_sizes=(64, 64)),
        storage=VTrace(),
        unroll_length=UNROLL_LENGTH,
        **{"collection": remote(1), **parts},
    )


def _env() -> jaxenvs.HostEnv:
    pool = jaxenvs.make_pool(
        [SleepingEnv] * NUM_ENVS,
        backend="process",
        num_workers=NUM_ENVS,
        autoreset_mode="same_step",
    )
    return jaxenvs.HostEnv(pool)


def _collect(executor: Any) -> None:
    behavior = BehaviorPolicy.of(executor.learner_state)
    executor.unroll = executor._source.next_unroll(executor.train.algorithm, behavior)


def _learn(executor: Any) -> None:
    state, key = executor.learner_state, executor._spec.key(4, 0)
    learned, _ = executors._learn(
        executor.train, state.replace(storage=()), (), executor.unroll, key, False
    )
    executor.learner_state = jax.block_until_ready(learned)


if __name__ == "__main__":
    main()
