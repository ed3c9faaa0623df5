"""The checks that run: a random rollout, and every way of resetting beside a loop by hand."""

from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys
from jaxenvs.core import Environment, TimeStep, Wrapper
from jaxenvs.testing._findings import Findings, leaves_by_path, outside
from jaxenvs.vector.vectorize import vectorize

RESET_STEPS = 16  # steps in which the ways of resetting are compared

# Alone and in a batch the compiler may order a float's operations differently. An episode of up
# to eight steps lets that grow; anything systematic is larger by far.
TOLERANCE = 1e-4

# Each program runs once or twice, for a moment.
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}


@chex.dataclass(frozen=True)
class InterruptedState:
    inner: chex.ArrayTree
    left: jax.Array  # int32[], steps until the interruption


class Interrupted(Wrapper[InterruptedState]):
    """Truncates each episode after 1, 2, 4, ... or 2**doublings steps, drawn at its reset.

    So every environment finishes often, at different times in different instances, and some
    episodes still run long.
    """

    doublings: int = 8

    def inner(self, state: InterruptedState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[InterruptedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        # A key is the outcome of a hash already: another draw would be dear to compile.
        word = jax.random.key_data(key).ravel()[-1]
        doublings = word % (jnp.uint32(self.doublings) + 1)
        return InterruptedState(
            inner=inner, left=jnp.int32(1) << doublings.astype(jnp.int32)
        ), timestep

    def step(
        self, state: InterruptedState, action: Any, key: chex.PRNGKey
    ) -> tuple[InterruptedState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        left = state.left - 1
        timestep = timestep.replace(truncated=timestep.truncated | (left <= 0))
        return InterruptedState(inner=inner, left=left), timestep


def check_rollout(
    env: Environment, seed: int, num_steps: int, num_envs: int, findings: Findings
) -> None:
    """Observations stay in their space, rewards are finite, and a repetition gives the same."""
    key = jax.random.key(seed)
    try:
        first, second = (
            jax.tree.map(_numpy, _play(env, key, num_steps, num_envs)) for _ in range(2)
        )
    except Exception as error:
        findings.crash("rollout", f"a random rollout of {num_steps} steps", error)
        return
    named = leaves_by_path(second, "")
    for path, leaf in leaves_by_path(first, "").items():
        if leaf.tobytes() != named[path].tobytes():
            findings.add(
                "purity",
                "the same rollout, run twice from the same key, gave two results",
                "A callback or another side effect decides the outcome: keep what changes in the"
                " state, and draw from the key.",
            )
            break
    for source in ("before", "after"):
        bad = np.argwhere(~first[f"{source}_inside"])
        if len(bad):
            t, i = map(int, bad[0])
            observation = jax.tree.map(lambda leaf: leaf[t, i], first[source])  # noqa: B023
            found = outside(env.observation_space, observation, "the observation")
            findings.add(
                "observation space",
                f"{found or 'the observation is outside its space'}, {source} step {t} of"
                f" instance {i} ({len(bad)} of {num_steps * num_envs} are outside)",
                "Widen the space to what can occur, or clip the observation.",
            )
            break
    bad = np.argwhere(~np.isfinite(first["reward"]))
    if len(bad):
        t, i = map(int, bad[0])
        findings.add(
            "reward",
            f"the reward of step {t} of instance {i} is {first['reward'][t, i]}; it must be finite",
            "Look for a division by zero, a logarithm of zero or an overflow in step.",
        )


@partial(jax.jit, static_argnames=("num_steps", "num_envs"), compiler_options=QUICK_TO_COMPILE)
def _play(env: Environment, key: chex.PRNGKey, num_steps: int, num_envs: int) -> dict[str, Any]:
    """Random actions: what was seen before and after each step, and whether it was in the space."""
    batch = vectorize(Interrupted(env), num_envs, reset_chunk=num_envs)
    inside = jax.vmap(env.observation_space.contains)
    action_key, reset_key, scan_key = jax.random.split(key, 3)

    def advance(carry: Any, xs: Any) -> Any:
        state, before = carry
        state, timestep = batch.step(state, *xs)
        after = timestep.final_observation
        record = {
            "before": before,
            "before_inside": inside(before),
            "after": after,
            "after_inside": inside(after),
            "reward": timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
        }
        return (state, timestep.observation), record

    state, timestep = batch.reset(reset_key)
    actions = env.action_space.sample(action_key, (num_steps, num_envs))
    step_keys = jax.random.split(scan_key, num_steps)
    return jax.lax.scan(advance, (state, timestep.observation), (actions, step_keys))[1]


def check_autoreset(env: Environment, seed: int, num_envs: int, findings: Findings) -> None:
    """Each way of resetting agrees with a loop over one instance, written by hand."""
    key = jax.random.key(seed)
    try:
        batched, alone = jax.tree.map(_numpy, _reset_ways(env, key, num_envs))
    except Exception as error:
        findings.crash("autoreset", "vectorize(env)", error)
        return
    for way, timesteps in batched.items():
        by_hand = alone["next_step" if way == "next_step" else "same_step"]
        difference = _first_difference(timesteps, by_hand)
        if difference is None:
            continue
        t, i, path, found, expected = difference
        shows_reset = way != "next_step" and path.startswith(
            ("timestep.observation", "timestep.info")
        )
        fresh = not by_hand.done[: t + shows_reset, i].any()
        findings.add(
            "independence" if fresh else "autoreset",
            f"under {way}, instance {i} of {num_envs} has {path} = {found} at step {t};"
            f" stepped alone with fold_in(key, {i}) it has {expected}",
            "An instance may depend on its own state, action and key only: look for sums or draws"
            " over the batch in custom batching rules, and for callbacks.",
        )


@partial(jax.jit, static_argnames="num_envs", compiler_options=QUICK_TO_COMPILE)
def _reset_ways(env: Environment, key: chex.PRNGKey, num_envs: int) -> tuple[Any, Any]:
    """The timesteps [T, N] of each way of resetting, and of the loops that they should equal."""
    env = Interrupted(env, doublings=3)
    action_key, reset_key, scan_key = jax.random.split(key, 3)
    actions = env.action_space.sample(action_key, (RESET_STEPS, num_envs))
    step_keys = jax.random.split(scan_key, RESET_STEPS)

    def batched(**how: Any) -> TimeStep:
        batch = vectorize(env, num_envs, **how)
        state, _ = batch.reset(reset_key)
        return jax.lax.scan(lambda state, xs: batch.step(state, *xs), state, (actions, step_keys))[
            1
        ]

    def alone(same_step: jax.Array, i: jax.Array) -> TimeStep:
        state, timestep = env.reset(jax.random.fold_in(reset_key, i))
        own_actions = jax.tree.map(lambda action: action[:, i], actions)
        return jax.lax.scan(
            partial(_by_hand, env, same_step, i), (state, timestep.done), (own_actions, step_keys)
        )[1]

    chunk = max(1, num_envs // 2 - 1)  # does not divide an even number of instances
    ways = {
        "same_step with naive resets": batched(reset_chunk=num_envs),
        f"same_step with resets {chunk} at a time": batched(reset_chunk=chunk),
        "next_step": batched(autoreset_mode="next_step"),
    }
    # Both modes go through one loop, hence one compiled body.
    same_step = jnp.repeat(jnp.array([True, False]), num_envs)
    instances = jnp.tile(jnp.arange(num_envs, dtype=jnp.uint32), 2)
    by_hand = jax.lax.map(lambda xs: alone(*xs), (same_step, instances))
    by_hand = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), by_hand)  # [T, 2 N, ...]
    return ways, {
        "same_step": jax.tree.map(lambda leaf: leaf[:, :num_envs], by_hand),
        "next_step": jax.tree.map(lambda leaf: leaf[:, num_envs:], by_hand),
    }


def _by_hand(env: Environment, same_step: jax.Array, i: jax.Array, carry: Any, xs: Any) -> Any:
    """One step of instance i, and a reset if this step (or, under next_step, the last) ended it."""
    state, done_before = carry
    action, key = xs
    state, stepped = env.step(state, action, jax.random.fold_in(key, i))
    new_state, new = env.reset(keys.autoreset_key(key, i))
    resets = jnp.where(same_step, stepped.done, done_before)
    state = _either(resets, new_state, state)
    shown = _either(resets, (new.observation, new.info), (stepped.observation, stepped.info))
    timestep = _either(same_step | ~resets, stepped, new)
    final = _either(same_step, (stepped.observation, stepped.info), shown)
    return (state, timestep.done), timestep.replace(
        observation=shown[0], info=shown[1], final_observation=final[0], final_info=final[1]
    )


def _either(condition: jax.Array, true: Any, false: Any) -> Any:
    return jax.tree.map(lambda t, f: jnp.where(condition, t, f), true, false)


def _first_difference(found: Any, expected: Any) -> tuple[int, int, str, Any, Any] | None:
    """Where two trees of [T, N, ...] first differ: step, instance, path and the two values."""
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


def _numpy(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)
