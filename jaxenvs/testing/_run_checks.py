"""The checks that run an environment: a random rollout, and autoreset against a plain loop."""

from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys
from jaxenvs.core import Environment, TimeStep, Wrapper
from jaxenvs.multi_agent import TO_ACT
from jaxenvs.testing._report import CheckReport, find_outside, leaves_by_path
from jaxenvs.vector.vectorize import vectorize

RESET_STEPS = 16  # length of the autoreset check

# The compiler may order floating-point operations differently in a batch. Within the eight steps of
# an episode, such differences stay far below this tolerance.
TOLERANCE = 1e-4

# Each program runs only once or twice.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}


# All programs share the traces of an environment: those of a physics engine take seconds.
_reset = jax.jit(lambda env, key: env.reset(key))
_step = jax.jit(lambda env, state, action, key: env.step(state, action, key))


@chex.dataclass(frozen=True)
class RandomTruncationState:
    inner: chex.ArrayTree
    steps_left: jax.Array  # int32[], until the truncation


class RandomTruncation(Wrapper[RandomTruncationState]):
    """A wrapper that truncates each episode after a random power of 2, up to 2**max_doublings.

    Episodes therefore end often and at different times in different instances, and some are long.
    """

    max_doublings: int = 8

    def inner(self, state: RandomTruncationState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[RandomTruncationState, TimeStep]:
        inner, timestep = _reset(self.env, key)
        # The bits of a key are random, and a draw would take long to compile.
        word = jax.random.key_data(key).ravel()[-1]
        doublings = (word % (jnp.uint32(self.max_doublings) + 1)).astype(jnp.int32)
        return RandomTruncationState(inner=inner, steps_left=jnp.int32(1) << doublings), timestep

    def step(
        self, state: RandomTruncationState, action: Any, key: chex.PRNGKey
    ) -> tuple[RandomTruncationState, TimeStep]:
        inner, timestep = _step(self.env, state.inner, action, key)
        steps_left = state.steps_left - 1
        timestep = timestep.truncate(steps_left <= 0)
        return RandomTruncationState(inner=inner, steps_left=steps_left), timestep


def check_runs(
    env: Environment, seed: int, num_steps: int, num_envs: int, report: CheckReport
) -> None:
    """Checks a random rollout, and that every kind of autoreset agrees with a plain loop."""
    key = jax.random.key(seed)

    def play(env: Environment) -> tuple[Any, Any]:
        return _play(env, key, num_steps=max(num_steps, RESET_STEPS), num_envs=num_envs)

    try:
        first, second = (jax.tree.map(_to_numpy, play(RandomTruncation(env))[1]) for _ in range(2))
    except Exception as error:
        report.add_exception("rollout", f"a random rollout of {num_steps} steps", error)
        return
    _check_purity(first, second, report)
    first = jax.tree.map(lambda leaf: leaf[:num_steps], first)
    _check_values(env, first, report)
    if env.agents:
        _check_turns(first["timestep"], report)
    try:
        short = RandomTruncation(env, max_doublings=3)
        inputs, record = play(short)  # the program of the rollout, as compiling takes longest
        chunked, alone = jax.tree.map(_to_numpy, _run_others(short, inputs, num_envs))
        naive = jax.tree.map(lambda leaf: _to_numpy(leaf)[:RESET_STEPS], record["timestep"])
    except Exception as error:
        report.add_exception("autoreset", "vectorize(env)", error)
        return
    _check_autoreset("same_step", naive, alone["same_step"], report)
    _check_autoreset("next_step", chunked, alone["next_step"], report)


@partial(jax.jit, static_argnames=("num_steps", "num_envs"), compiler_options=QUICK_TO_COMPILE)
def _play(env: Environment, key: chex.PRNGKey, num_steps: int, num_envs: int) -> tuple[Any, Any]:
    """Acts at random. Returns keys and actions, and a record with validity of observations.

    Finished instances are reset in the same step, by a naive reset of all.
    """
    batch = vectorize(env, num_envs, reset_chunk=num_envs)
    inside = jax.vmap(env.observation_space.contains)
    action_key, reset_key, scan_key = jax.random.split(key, 3)

    def advance(carry: Any, xs: Any) -> Any:
        state, before = carry
        state, timestep = batch.step(state, *xs)
        record = {
            "before": before,
            "before_inside": inside(before),
            "after_inside": inside(timestep.final_observation),
            "timestep": timestep,
        }
        return (state, timestep.observation), record

    state, timestep = batch.reset(reset_key)
    actions = env.action_space.sample(action_key, (num_steps, num_envs))
    step_keys = jax.random.split(scan_key, num_steps)
    _, record = jax.lax.scan(advance, (state, timestep.observation), (actions, step_keys))
    return (reset_key, actions, step_keys), record


def _check_purity(first: Any, second: Any, report: CheckReport) -> None:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    if any(leaf.tobytes() != other.tobytes() for leaf, other in pairs):
        report.add(
            "purity",
            "the same rollout, run twice from the same key, gave two results",
            "The result depends on a callback or another side effect: keep what changes in the"
            " state, and draw from the key.",
        )


def _check_values(env: Environment, record: Any, report: CheckReport) -> None:
    """Checks observations against their space, and that rewards are finite."""
    timestep = record["timestep"]
    for when, shown in (("before", record["before"]), ("after", timestep.final_observation)):
        is_inside = record[f"{when}_inside"]
        bad = np.argwhere(~is_inside)
        if len(bad):
            t, i = map(int, bad[0])
            observation = jax.tree.map(lambda leaf: leaf[t, i], shown)  # noqa: B023
            found = find_outside(env.observation_space, observation, "the observation")
            report.add(
                "observation space",
                f"{found or 'the observation is outside its space'}, {when} step {t} of"
                f" instance {i} ({len(bad)} of {is_inside.size} are outside)",
                "Widen the space to all possible values, or clip the observation.",
            )
            break
    for reward in jax.tree.leaves(timestep.reward):
        bad = np.argwhere(~np.isfinite(reward))
        if len(bad):
            t, i = map(int, bad[0])
            report.add(
                "reward",
                f"the reward of step {t} of instance {i} is {reward[t, i]}; it must be finite",
                "Look for a division by zero, a logarithm of zero or an overflow in step.",
            )
            break


def _check_turns(timestep: Any, report: CheckReport) -> None:
    """Checks that no agent is to act after its end."""
    for agent, ended in timestep.ended.items():
        bad = np.argwhere(ended & timestep.final_info[TO_ACT][agent])
        if len(bad):
            t, i = map(int, bad[0])
            report.add(
                "turns",
                f'agent "{agent}" has ended and is to act, after step {t} of instance {i}',
                "Set flags by MultiAgentTimeStep.transition or timestep.truncate, which clear"
                " to_act of agents that have ended.",
            )
            break


def _check_autoreset(mode: str, batched: TimeStep, alone: TimeStep, report: CheckReport) -> None:
    """Checks that a batch and plain loops over its instances gave the same timesteps [T, N]."""
    difference = _first_difference(batched, alone)
    if difference is None:
        return
    t, i, path, found, expected = difference
    shows_reset = mode == "same_step" and path.startswith(("timestep.observation", "timestep.info"))
    is_before_any_reset = not alone.done[: t + shows_reset, i].any()
    report.add(
        "independence" if is_before_any_reset else "autoreset",
        f"under {mode}, instance {i} of {alone.done.shape[1]} has {path} = {found} at step {t};"
        f" stepped alone with fold_in(key, {i}) it has {expected}",
        "An instance may depend on its own state, action and key only: look for sums or draws"
        " over the batch in custom batching rules, and for callbacks.",
    )


@partial(jax.jit, static_argnames="num_envs", compiler_options=QUICK_TO_COMPILE)
def _run_others(env: Environment, inputs: Any, num_envs: int) -> tuple[Any, Any]:
    """Returns the timesteps [T, N] of next_step with compacted resets, and of the plain loops."""
    reset_key, *rest = inputs
    actions, step_keys = jax.tree.map(lambda leaf: leaf[:RESET_STEPS], rest)
    chunk = max(1, num_envs // 2 - 1)  # does not divide an even number of instances
    batch = vectorize(env, num_envs, autoreset_mode="next_step", reset_chunk=chunk)
    state, _ = batch.reset(reset_key)
    chunked = jax.lax.scan(lambda state, xs: batch.step(state, *xs), state, (actions, step_keys))[1]

    def alone(same_step: jax.Array, i: jax.Array) -> TimeStep:
        state, timestep = env.reset(jax.random.fold_in(reset_key, i))
        own_actions = jax.tree.map(lambda action: action[:, i], actions)
        step = partial(_step_alone, env, same_step, i)
        _, timesteps = jax.lax.scan(step, (state, timestep.done), (own_actions, step_keys))
        return timesteps

    # Both modes share one loop, so that its body is compiled once.
    same_step = jnp.repeat(jnp.array([True, False]), num_envs)
    instances = jnp.tile(jnp.arange(num_envs, dtype=jnp.uint32), 2)
    plain = jax.lax.map(lambda xs: alone(*xs), (same_step, instances))
    plain = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), plain)  # [T, 2 N, ...]
    return chunked, {
        "same_step": jax.tree.map(lambda leaf: leaf[:, :num_envs], plain),
        "next_step": jax.tree.map(lambda leaf: leaf[:, num_envs:], plain),
    }


def _step_alone(env: Environment, same_step: jax.Array, i: jax.Array, carry: Any, xs: Any) -> Any:
    """Steps instance i, and resets it if this step (under next_step, the last) was done."""
    state, done_before = carry
    action, key = xs
    state, stepped = env.step(state, action, jax.random.fold_in(key, i))
    new_state, new = env.reset(keys.autoreset_key(key, i))
    resets = jnp.where(same_step, stepped.done, done_before)
    state = _where(resets, new_state, state)
    shown = _where(resets, (new.observation, new.info), (stepped.observation, stepped.info))
    timestep = _where(same_step | ~resets, stepped, new)
    final = _where(same_step, (stepped.observation, stepped.info), shown)
    return (state, timestep.done), timestep.replace(
        observation=shown[0], info=shown[1], final_observation=final[0], final_info=final[1]
    )


def _where(condition: jax.Array, true: Any, false: Any) -> Any:
    return jax.tree.map(lambda t, f: jnp.where(condition, t, f), true, false)


def _first_difference(found: Any, expected: Any) -> tuple[int, int, str, Any, Any] | None:
    """Returns step, instance, path and both values where two trees of [T, N, ...] first differ."""
    differences = []
    others = leaves_by_path(expected, "timestep")
    for path, leaf in leaves_by_path(found, "timestep").items():
        other = others[path]
        if np.issubdtype(leaf.dtype, np.floating):
            equal = np.isclose(leaf, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        else:
            equal = leaf == other
        if not equal.all():
            place = tuple(int(i) for i in np.argwhere(~equal)[0])
            differences.append((place[0], place[1], path, leaf[place], other[place]))
    return min(differences, key=lambda difference: difference[:2], default=None)


def _to_numpy(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)
