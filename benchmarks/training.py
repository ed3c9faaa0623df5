"""Compares whole training runs with PureJaxRL and rejax: the same settings, in turn in one process.

PPO on CartPole-v1 with PureJaxRL's network and hyperparameters at three sizes, and with vmapped
seeds; DQN on CartPole-v1 and SAC on Pendulum-v1 with rejax's settings. The time to trace and
compile is reported separately, as a median of three. Returns are means over the last tenth of each
training and over 16 vmapped seeds, with standard errors.

    python -m benchmarks.training --cases ppo-4x128 --repeats 5
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _common
from benchmarks import _training_peers as peers

SIZES = {"ppo-4x128": (4, 128), "ppo-64x64": (64, 64), "ppo-512x32": (512, 32)}
CASES = (*SIZES, "ppo-64x64-8seeds", "ppo-64x64-32seeds", "dqn-cartpole", "sac-pendulum")
SEEDS = 16  # for the returns; five are too few to show that two programs learn equally well


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("training", __doc__)
    add = parser.add_argument
    add(
        "--cases",
        type=_common.words,
        default=list(CASES),
        help=f"comma-separated: {', '.join(CASES)}",
    )
    add("--steps", type=int, default=524_288, help="environment steps of each PPO training")
    add("--repeats", type=int, default=5, help="number of repetitions (default 5)")
    add("--returns", action="store_true", help=f"also compare returns over {SEEDS} seeds")
    add("--purejaxrl", type=Path, default=peers.PUREJAXRL, help=f"folder of {peers.WHERE}")
    options = parser.parse_args(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None) -> dict[str, Any]:
    """Returns the report. The contestants run in turn."""
    peers.install()
    packages = ("gymnax", "rejax", "flax", "optax", "distrax")
    report = _common.new_report("training", arguments, packages, options.repeats)
    report["measurements"], report["returns"] = [], []
    for case in options.cases:
        contestants = programs(case, options)
        compiled, compile_seconds = _compiled(contestants, min(3, options.repeats))
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for repeat in range(options.repeats):
            for name in _common.rotated(contestants, repeat):
                seconds[name].append(_seconds(compiled[name], contestants[name][1](repeat)))
        for name in contestants:
            entry = {"case": case, "contestant": name, "seconds": seconds[name]}
            report["measurements"].append(entry | {"compile_seconds": compile_seconds[name]})
            if not options.quiet:
                print(f"{case} {name}: {statistics.median(seconds[name]):.2f} s", flush=True)
        if options.returns and case in SIZES:
            report["returns"] += _returns(case, options)
    return report


def programs(case: str, options: argparse.Namespace) -> dict[str, tuple[Any, Callable[[int], Any]]]:
    """Returns, by contestant, a training run and a function that makes the key of a repetition."""
    import jax
    import jax.numpy as jnp

    from jaxenvs.training import DQN, PPO, SAC, ActorTwinQ, QNetwork, Replay, make_train

    if case == "dqn-cartpole":
        dqn = DQN(
            learning_rate=1e-3,
            batch_size=100,
            learning_starts=1_000,
            exploration_steps=50_000,
            replay_ratio=0.1,
            target_update_every=20,  # gradient steps, one per 10 environment steps
            max_gradient_norm=10.0,
        )
        return _with_rejax(
            "CartPole-v1",
            dqn,
            actor=QNetwork(hidden_sizes=(64, 64), activation="silu"),
            storage=Replay(10_000),
            num_envs=10,
            total_steps=100_000,
            theirs={
                "target_update_freq": 200,  # environment steps
                "exploration_fraction": 0.5,
                "max_grad_norm": dqn.max_gradient_norm,
            },
        )
    if case == "sac-pendulum":
        sac = SAC(learning_rate=1e-3, batch_size=256, learning_starts=1_000)
        return _with_rejax(
            "Pendulum-v1",
            sac,
            actor=ActorTwinQ(hidden_sizes=(64, 64)),
            storage=Replay(50_000),
            num_envs=1,
            total_steps=6_000,
            theirs={"polyak": 1 - sac.tau},
        )

    size, _, seeds = case.removesuffix("seeds").partition("-")[2].partition("-")
    num_envs, unroll_length = SIZES[f"ppo-{size}"]
    settings = {"num_envs": num_envs, "unroll_length": unroll_length, "total_steps": options.steps}
    made = {
        "jaxenvs": (make_train("CartPole-v1", PPO(), **settings), jax.random.key),
        "purejaxrl": (peers.purejaxrl_ppo(options.purejaxrl, settings), jax.random.PRNGKey),
        "rejax": (
            peers.rejax_train(
                "PPO",
                "CartPole-v1",
                options.steps,
                num_envs=num_envs,
                num_steps=unroll_length,
                num_epochs=4,
                num_minibatches=4,
                learning_rate=2.5e-4,
                gae_lambda=0.95,
                ent_coef=0.01,
                max_grad_norm=0.5,
                agent_kwargs={"activation": "tanh"},
            ),
            jax.random.PRNGKey,
        ),
    }
    if not seeds:
        return made
    number = int(seeds)

    def keys(make: Callable[[int], Any]) -> Callable[[int], Any]:
        return lambda repeat: jnp.stack([make(number * repeat + i) for i in range(number)])

    return {name: (jax.vmap(train), keys(make)) for name, (train, make) in made.items()}


def _with_rejax(
    id: str,
    algorithm: Any,
    *,
    actor: Any,
    storage: Any,
    num_envs: int,
    total_steps: int,
    theirs: dict[str, Any],
) -> dict[str, tuple[Any, Callable[[int], Any]]]:
    """Returns an off-policy algorithm and rejax's, with one gradient step per vector step.

    Both have the same networks, batches, memory, and warm-up. rejax's implementation differs: it
    draws without replacement, for which it sorts the whole memory each time; it treats a time limit
    as a termination; it clips gradients element by element; and its SAC acts with its policy during
    the warm-up and updates the critics after the policy.
    """
    import jax

    from jaxenvs.training import make_train

    train = make_train(
        id,
        algorithm,
        actor=actor,
        storage=storage,
        num_envs=num_envs,
        unroll_length=1,
        total_steps=total_steps,
        report_every=100,
    )
    rejax = peers.rejax_train(
        type(algorithm).__name__,
        id,
        total_steps,
        num_envs=num_envs,
        learning_rate=algorithm.learning_rate,
        gamma=algorithm.gamma,
        batch_size=algorithm.batch_size,
        buffer_size=storage.capacity,
        fill_buffer=algorithm.learning_starts,
        **theirs,
    )
    return {"jaxenvs": (train, jax.random.key), "rejax": (rejax, jax.random.PRNGKey)}


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown: seconds, ratios, seconds to compile, and any returns."""
    ours = {e["case"]: e["seconds"] for e in report["measurements"] if e["contestant"] == "jaxenvs"}
    rows = []
    for entry in report["measurements"]:
        both = zip(entry["seconds"], ours[entry["case"]], strict=True)
        ratio = statistics.median(theirs / own for theirs, own in both)
        rows.append(
            [
                entry["case"],
                entry["contestant"],
                _common.spread(entry["seconds"], ".2f"),
                "" if entry["contestant"] == "jaxenvs" else f"{ratio:.2f}",
                f"{statistics.median(entry['compile_seconds']):.1f}",
            ]
        )
    titles = "case", "contestant", "s", "this / jaxenvs", "compile, s"
    lines = [_common.headline(report, "whole training runs"), "", *_common.markdown(titles, rows)]
    if report["returns"]:
        titles = "case", "contestant", f"mean return of {SEEDS} seeds", "standard error"
        returns = (
            [
                entry["case"],
                entry["contestant"],
                *(f"{x:.1f}" for x in _common.mean_and_error(np.array(entry["returns"]))),
            ]
            for entry in report["returns"]
        )
        lines += ["", *_common.markdown(titles, returns)]
    return "\n".join(lines)


def _compiled(
    contestants: dict[str, tuple[Any, Callable[[int], Any]]], repeats: int
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Compiles the training runs in turn, without caches; returns them and the seconds of each."""
    import jax

    compiled: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats):
        for name in _common.rotated(contestants, repeat):
            train, key = contestants[name]
            first = key(0)
            jax.clear_caches()
            start = time.perf_counter()
            compiled[name] = jax.jit(train).lower(first).compile()
            seconds[name].append(time.perf_counter() - start)
    for name, program in compiled.items():
        jax.block_until_ready(program(contestants[name][1](0)))  # warm
    return compiled, seconds


def _seconds(program: Any, key: Any) -> float:
    import jax

    start = time.perf_counter()
    jax.block_until_ready(program(key))
    return time.perf_counter() - start


def _returns(case: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the mean return of the last tenth of each seed's training; rejax records none."""
    import jax

    entries = []
    for name, (train, key) in programs(case, options).items():
        if name == "rejax":
            continue
        keys = jax.numpy.stack([key(1000 + i) for i in range(SEEDS)])
        result: Any = jax.jit(jax.vmap(train))(keys)
        if name == "jaxenvs":
            values, weights = (
                np.asarray(result.metrics[f"episode_{what}"]) for what in ("return", "count")
            )
        else:
            values = np.asarray(result["metrics"]["returned_episode_returns"])
            weights = np.asarray(result["metrics"]["returned_episode"], np.float64)
            values, weights = (x.reshape((SEEDS, len(x[0]), -1)) for x in (values, weights))
        last = slice(-max(1, values.shape[1] // 10), None)
        values, weights = values[:, last].reshape(SEEDS, -1), weights[:, last].reshape(SEEDS, -1)
        means = np.nansum(values * weights, axis=1) / weights.sum(axis=1)
        entries.append({"case": case, "contestant": name, "returns": means.tolist()})
    return entries


if __name__ == "__main__":
    main()
