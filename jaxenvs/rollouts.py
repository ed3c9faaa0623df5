"""Rollouts and evaluations of policies, each in one jitted program.

N is the number of instances and T the number of steps.
"""

import contextlib
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp

from jaxenvs import loops, prng
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import RolloutError, check_integer, missing_extra

Outputs = Literal["trajectory", "statistics"]
_PROGRESS_UPDATES = 100  # updates of the progress bar per rollout


@chex.dataclass(frozen=True)
class EpisodeStatistics:
    """Statistics of the finished episodes, accumulated per instance to keep sums small."""

    count: jax.Array  # int32[N]; -1 until the partial episode of a staggered start is over
    mean: jax.Array  # float32[R + 1, N], of R returns, one for each agent, and of lengths
    squares: jax.Array  # float32[R + 1, N], sums of squared deviations from the mean

    def total(self, reward: chex.ArrayTree) -> dict[str, Any]:
        """Returns the statistics over all instances.

        The keys are count, int32[], and return_mean, return_std, length_mean and length_std,
        float32[], which are NaN if no episode has finished. With several agents, those of returns
        are dicts. `reward` is a tree like the rewards.
        """
        weight = jnp.maximum(self.count, 0).astype(jnp.float32)
        count = jnp.sum(weight)
        # Both branches must be finite, because gradients pass through the unused one too.
        some = jnp.maximum(count, 1)
        mean = jnp.sum(self.mean * weight[None], axis=-1) / some
        deviation = self.mean - mean[:, None]
        variance = jnp.sum(self.squares + deviation**2 * weight[None], axis=-1) / some
        varies = variance > 0
        std = jnp.where(varies, jnp.sqrt(jnp.where(varies, variance, 1)), 0)
        mean, std = (jnp.where(count > 0, value, jnp.nan) for value in (mean, std))
        return {
            "count": jnp.sum(jnp.maximum(self.count, 0), dtype=jnp.int32),
            "return_mean": _like_rewards(reward, mean),
            "return_std": _like_rewards(reward, std),
            "length_mean": mean[-1],
            "length_std": std[-1],
        }


@chex.dataclass(frozen=True)
class RolloutState:
    """Everything needed to continue a rollout: environment states, keys and statistics."""

    env_state: chex.ArrayTree
    timestep: TimeStep  # [N, ...], the last one, without final_observation and final_info
    policy_carry: chex.ArrayTree
    running: jax.Array  # float32[R + 1, N], returns and length of the current episodes so far
    statistics: EpisodeStatistics
    key: chex.PRNGKey
    steps: jax.Array  # int32[], taken so far


@chex.dataclass(frozen=True)
class Trajectory:
    """T steps of N instances, time first. Row t has the observation, the action and the result."""

    observation: chex.ArrayTree  # [T, N, ...], before the action
    action: chex.ArrayTree  # [T, N, ...]
    reward: chex.ArrayTree  # float32[T, N]; with several agents a dict, like the flags
    terminated: chex.ArrayTree  # bool[T, N]
    truncated: chex.ArrayTree  # bool[T, N]
    final_observation: chex.ArrayTree  # [T, N, ...], after the action, before any reset
    info: chex.ArrayTree  # [T, N, ...], after the action, before any reset


@chex.dataclass(frozen=True)
class Rollout:
    """The result of `rollout`."""

    trajectory: Trajectory | None  # None with outputs="statistics"
    statistics: dict[str, Any]  # see `EpisodeStatistics.total`; since the start
    state: RolloutState  # pass it to continue: rollout(env, policy, T, state=...)


@chex.dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`; k is the number of episodes per instance."""

    episode_return: Any  # float32[k, N]; NaN if not finished; with several agents a dict
    episode_length: jax.Array  # int32[k, N]; 0 if not finished
    finished: jax.Array  # bool[k, N], false only if `max_steps` ended the evaluation

    @property
    def mean(self) -> Any:
        """float32[], the mean return of the finished episodes; with several agents a dict."""
        return jax.tree.map(jnp.nanmean, self.episode_return)

    @property
    def std(self) -> Any:
        """float32[], the standard deviation of these returns; with several agents a dict."""
        return jax.tree.map(jnp.nanstd, self.episode_return)


@dataclasses.dataclass(frozen=True)
class _Numbers:
    """Parameters of an environment that are numbers: XLA makes better programs with constants."""

    treedef: Any
    leaves: tuple[tuple[type, Any] | None, ...]  # with types, because 1 equals 1.0 and True

    @classmethod
    def split(cls, env: VectorEnv) -> tuple["_Numbers", list[Any]]:
        """Returns the numbers of an environment, and its arrays."""
        leaves, treedef = jax.tree.flatten(env)
        numbers = tuple((type(x), x) if isinstance(x, (bool, int, float)) else None for x in leaves)
        arrays = [x for x, number in zip(leaves, numbers, strict=True) if number is None]
        return cls(treedef, numbers), arrays

    def join(self, arrays: list[Any]) -> VectorEnv:
        """Returns the environment."""
        rest = iter(arrays)
        leaves = [next(rest) if number is None else number[1] for number in self.leaves]
        return jax.tree.unflatten(self.treedef, leaves)


def rollout(
    env: VectorEnv,
    policy: Callable[..., Any] | None,
    num_steps: int,
    key: chex.PRNGKey | None = None,
    *,
    state: RolloutState | None = None,
    policy_carry: chex.ArrayTree = None,
    outputs: Outputs = "trajectory",
    unroll: int = 1,
    progress: bool = False,
) -> Rollout:
    """Takes `num_steps` steps in every instance, as one compiled scan.

    A rollout that continues from another one's `state` takes the same steps as one long rollout.

    Args:
        env: N instances. Parameters that are numbers are constants of the program, which makes it
            up to twice as fast, and is compiled again for other numbers; it is not for arrays.
        policy: `policy(observation, key) -> action`, called on the batch; None acts at random. With
            `policy_carry` it is `policy(carry, timestep, key) -> (carry, action)`, and a recurrent
            policy should clear its memory where `timestep.done`. Each new function object is
            compiled separately. A callable that is a pytree, such as
            `jax.tree_util.Partial(function, weights)`, is not recompiled for other weights.
        num_steps: T; 0 only resets.
        key: starts new episodes. Pass either `key` or `state`.
        state: continues where another rollout ended.
        policy_carry: the initial memory of a recurrent policy. None calls
            `policy.initial_carry(num_envs)` if the policy has that method.
        outputs: "trajectory" returns everything. "statistics" only returns the number of finished
            episodes and the mean and standard deviation of their returns and lengths, in constant
            memory. The partial episodes of a staggered start are not counted.
        unroll: steps per iteration of the compiled loop.
        progress: show a progress bar, in a terminal or a notebook (needs the extra `cli`).

    Returns:
        The trajectory (or None), the statistics, and the state to continue from.

    Raises:
        RolloutError: both or neither of `key` and `state` are given, or an argument is invalid.

    Example:
        >>> env = jaxenvs.make_vec("CartPole-v1", 16)
        >>> result = jaxenvs.rollout(env, None, 100, jax.random.key(0))
        >>> result.trajectory.reward.shape
        (100, 16)
    """
    _check_arguments("rollout", env, policy)
    num_steps = check_integer(RolloutError, "rollout got num_steps", num_steps, 0)
    unroll = check_integer(RolloutError, "rollout got unroll", unroll)
    if outputs not in ("trajectory", "statistics"):
        raise RolloutError(
            f'rollout got outputs="{outputs}"; expected "trajectory" (the default) or "statistics".'
        )
    if (key is None) == (state is None):
        given = "neither" if key is None else "both"
        raise RolloutError(
            f"rollout got {given} of key and state.  Pass a key to start, or a state to continue."
        )
    if state is not None and policy_carry is not None:
        raise RolloutError(
            "rollout got both state and policy_carry, but the state contains the policy's carry."
            "  Omit policy_carry."
        )
    if state is None:
        policy_carry = _initial_carry("rollout", env, policy, policy_carry)
    run = functools.partial(_rollout, num_steps=num_steps, outputs=outputs, unroll=unroll)
    if key is not None:
        key = prng.as_typed_key(key)
    with _progress_bar(num_steps) if progress else contextlib.nullcontext() as bar:
        result = _run_with_policy(run, policy, env, key, state, policy_carry, bar)
        return jax.block_until_ready(result) if progress else result


def evaluate(
    env: VectorEnv,
    policy: Callable[..., Any] | None,
    num_episodes: int,
    key: chex.PRNGKey,
    *,
    policy_carry: chex.ArrayTree = None,
    max_steps: int | None = None,
) -> Evaluation:
    """Plays exactly the first `num_episodes` episodes of every instance.

    Counting all episodes that finish within a number of steps would favor short ones. Here every
    instance plays the same number of episodes, however long they are. The partial episodes of a
    staggered start are finished first and not counted.

    Args:
        env: N instances, as in `rollout`; with autoreset disabled, `num_episodes` must be 1.
        policy: as in `rollout`.
        num_episodes: k, the number of episodes per instance.
        key: a random key.
        policy_carry: the initial memory of a recurrent policy, as in `rollout`.
        max_steps: stop after this many steps, even if episodes are unfinished. None waits for all
            episodes, which may take forever without a time limit.

    Returns:
        The return and length of each episode, float32[k, N] and int32[k, N].

    Raises:
        RolloutError: an argument is invalid.

    Example:
        >>> env = jaxenvs.make_vec("CartPole-v1", 100)
        >>> float(jaxenvs.evaluate(env, None, 1, jax.random.key(0)).mean) < 40
        True
    """
    _check_arguments("evaluate", env, policy)
    num_episodes = check_integer(RolloutError, "evaluate got num_episodes", num_episodes)
    if max_steps is not None:
        max_steps = check_integer(RolloutError, "evaluate got max_steps", max_steps)
    if env.autoreset_mode == "disabled" and num_episodes > 1:
        raise RolloutError(
            f'evaluate got num_episodes={num_episodes} and an env with autoreset_mode="disabled",'
            " which plays one episode each.  Use another mode, or num_episodes=1."
        )
    policy_carry = _initial_carry("evaluate", env, policy, policy_carry)
    run = functools.partial(_evaluate, num_episodes=num_episodes, max_steps=max_steps)
    return _run_with_policy(run, policy, env, prng.as_typed_key(key), policy_carry)


def _start(env: VectorEnv, key: chex.PRNGKey, policy_carry: chex.ArrayTree) -> RolloutState:
    reset_key, key = jax.random.split(key)
    env_state, timestep = env.reset(reset_key)
    rows = len(jax.tree.leaves(timestep.reward)) + 1
    zeros = jnp.zeros((rows, env.num_envs), jnp.float32)
    # A staggered start begins in the middle of episodes, so the first return is a partial one.
    first = -1 if env.is_staggered else 0
    return RolloutState(
        env_state=env_state,
        timestep=_without_final(timestep),
        policy_carry=policy_carry,
        running=zeros,
        statistics=EpisodeStatistics(
            count=jnp.full(env.num_envs, first, jnp.int32), mean=zeros, squares=zeros
        ),
        key=key,
        steps=jnp.int32(0),
    )


def _advance(
    policy: Callable[..., Any] | None, env: VectorEnv, state: RolloutState
) -> tuple[RolloutState, Any, TimeStep, jax.Array]:
    """Takes one step. Returns the state, action, timestep, and `running` before it is cleared."""
    before = state.timestep
    action_key, step_key = _step_keys(state)
    carry, action = prng.call_with_fast_key(lambda key: _act(policy, env, state, key), action_key)
    carry = prng.as_standard_keys(carry)  # it may hold a key
    env_state, timestep = env.step(state.env_state, action, step_key)

    # Under next_step the step after an episode only resets; under disabled no later step counts.
    counts = jnp.ones_like(before.done) if env.autoreset_mode == "same_step" else ~before.done
    finished = timestep.done & counts
    one = counts.astype(jnp.float32)
    rewards = [reward.astype(jnp.float32) * one for reward in jax.tree.leaves(timestep.reward)]
    old = state.statistics
    count = old.count + finished.astype(jnp.int32)
    if jax.default_backend() != "cpu":
        # The sums are a kernel of their own. Without the barrier, XLA computes these again in it,
        # and copies the state that they depend on.
        rewards, finished, count = jax.lax.optimization_barrier((rewards, finished, count))
    running = state.running + jnp.stack([*rewards, one])
    deviation = running - old.mean
    weight = finished.astype(jnp.float32)
    mean = old.mean + deviation * (weight / jnp.maximum(count, 1).astype(jnp.float32))[None]
    squares = old.squares + deviation * (running - mean) * weight[None]
    state = dataclasses.replace(
        state,
        env_state=env_state,
        timestep=_without_final(timestep),
        policy_carry=carry,
        running=jnp.where(finished[None], 0.0, running),
        statistics=EpisodeStatistics(count=count, mean=mean, squares=squares),
        steps=state.steps + 1,
    )
    return state, action, timestep, running


def _act(
    policy: Callable[..., Any] | None, env: VectorEnv, state: RolloutState, key: chex.PRNGKey
) -> tuple[chex.ArrayTree, Any]:
    """Returns the policy's carry and the action."""
    if policy is None:
        return state.policy_carry, env.action_space.sample(key)
    if state.policy_carry is None:
        return None, policy(state.timestep.observation, key)
    return policy(state.policy_carry, state.timestep, key)


@functools.partial(
    jax.jit, static_argnames=("static_policy", "numbers", "num_steps", "outputs", "unroll")
)
def _rollout(
    policy_tree: Any,
    arrays: list[Any],
    key: chex.PRNGKey | None,
    state: RolloutState | None,
    policy_carry: chex.ArrayTree,
    bar: int | None,  # the number of the progress bar
    *,
    static_policy: Callable[..., Any] | None,
    numbers: _Numbers,
    num_steps: int,
    outputs: Outputs,
    unroll: int,
) -> Rollout:
    env = numbers.join(arrays)
    policy = static_policy if policy_tree is None else policy_tree
    if state is None:
        state = _start(env, key, policy_carry)  # pyright: ignore[reportArgumentType] see rollout
    first = state.steps

    def step(state: RolloutState, _: Any) -> tuple[RolloutState, Any]:
        before = state.timestep.observation
        state, action, timestep, _ = _advance(policy, env, state)
        if bar is not None:
            _report_progress(bar, state.steps - first, num_steps)
        if outputs == "statistics":
            return state, None
        return state, Trajectory(
            observation=before,
            action=action,
            reward=timestep.reward,
            terminated=timestep.terminated,
            truncated=timestep.truncated,
            final_observation=timestep.final_observation,
            info=timestep.final_info,
        )

    # At random, nobody reads an observation but the last one. With the last step by itself, XLA
    # removes all others from the loop.
    by_itself = int(policy is None and outputs == "statistics" and num_steps > 0)
    state, trajectory = loops.scan(step, state, None, num_steps - by_itself, unroll=unroll)
    if by_itself:
        state, _ = step(state, None)
    if trajectory is not None and num_steps > 0:
        # Read from the last row, these need no place in the loop beside the trajectory.
        last = {name: getattr(trajectory, name) for name in ("reward", "terminated", "truncated")}
        last = jax.tree.map(lambda rows: rows[-1], last)
        state = dataclasses.replace(state, timestep=state.timestep.replace(**last))
    statistics = state.statistics.total(state.timestep.reward)
    return Rollout(trajectory=trajectory, statistics=statistics, state=state)


@functools.partial(
    jax.jit, static_argnames=("static_policy", "numbers", "num_episodes", "max_steps")
)
def _evaluate(
    policy_tree: Any,
    arrays: list[Any],
    key: chex.PRNGKey,
    policy_carry: chex.ArrayTree,
    *,
    static_policy: Callable[..., Any] | None,
    numbers: _Numbers,
    num_episodes: int,
    max_steps: int | None,
) -> Evaluation:
    env = numbers.join(arrays)
    policy = static_policy if policy_tree is None else policy_tree
    episodes = jnp.arange(num_episodes, dtype=jnp.int32)[:, None]
    start = _start(env, key, policy_carry)
    empty = jnp.zeros((start.running.shape[0], num_episodes, env.num_envs), jnp.float32)

    def unfinished(carry: tuple[RolloutState, jax.Array]) -> jax.Array:
        state, _ = carry
        is_pending = jnp.any(state.statistics.count < num_episodes)
        return is_pending if max_steps is None else is_pending & (state.steps < max_steps)

    def step(carry: tuple[RolloutState, jax.Array]) -> tuple[RolloutState, jax.Array]:
        state, record = carry
        episode = state.statistics.count
        state, _, _, running = _advance(policy, env, state)
        finished = state.statistics.count > episode
        # Episodes after the k-th have no row. A scatter would be simpler, but cannot be sharded.
        row = finished[None] & (episodes == episode[None])
        return state, jnp.where(row[None], running[:, None], record)

    state, record = loops.while_loop(unfinished, step, (start, empty))
    finished = episodes < state.statistics.count[None]
    returns = jnp.where(finished[None], record[:-1], jnp.nan)
    return Evaluation(
        episode_return=_like_rewards(state.timestep.reward, returns),
        episode_length=record[-1].astype(jnp.int32),
        finished=finished,
    )


def _like_rewards(reward: chex.ArrayTree, rows: jax.Array) -> Any:
    """Returns the first rows as a tree like `reward`, which has a leaf for each."""
    treedef = jax.tree.structure(reward)
    return jax.tree.unflatten(treedef, [rows[i] for i in range(treedef.num_leaves)])


def _without_final(timestep: TimeStep) -> TimeStep:
    return timestep.replace(final_observation=None, final_info=None)


def _step_keys(state: RolloutState) -> tuple[chex.PRNGKey, chex.PRNGKey]:
    """Returns the keys of this step, for the policy and for the environment."""
    # Derive keys in the loop, where the two hashes fuse with their use.
    key, step = prng.as_fast_key(state.key), state.steps.astype(jnp.uint32)
    # Even numbers for the policy, odd ones for the environment.
    return jax.random.fold_in(key, 2 * step), jax.random.fold_in(key, 2 * step + 1)


def _initial_carry(caller: str, env: VectorEnv, policy: Any, policy_carry: Any) -> Any:
    """Returns the initial memory of the policy: as given, or from `policy.initial_carry`.

    Raises:
        RolloutError: the policy's signature does not accept the arguments of the call.
    """
    if policy is None:
        return policy_carry
    if policy_carry is None and hasattr(policy, "initial_carry"):
        policy_carry = policy.initial_carry(env.num_envs)
    try:
        signature = inspect.signature(policy)
    except ValueError:  # some callables have no signature
        return policy_carry
    names = ("observation", "key") if policy_carry is None else ("carry", "timestep", "key")
    try:
        signature.bind(*names)
    except TypeError:
        raise RolloutError(
            f"{caller} got the policy {policy!r:.80} with the signature {signature}; expected"
            f" policy({', '.join(names)}).  With policy_carry=, a policy takes"
            " (carry, timestep, key), otherwise (observation, key)."
        ) from None
    return policy_carry


def _run_with_policy(run: Callable[..., Any], policy: Any, env: VectorEnv, *args: Any) -> Any:
    """Calls `run` with the policy as an argument if it is a pytree, else as a static one."""
    numbers, arrays = _Numbers.split(env)
    if policy is not None and not jax.tree_util.all_leaves([policy]):
        return run(policy, arrays, *args, static_policy=None, numbers=numbers)
    return run(None, arrays, *args, static_policy=policy, numbers=numbers)


def _check_arguments(caller: str, env: Any, policy: Any) -> None:
    if policy is not None and not callable(policy):
        raise RolloutError(
            f"{caller} got the policy {policy!r}; it must be callable, or None to act at random."
        )
    if not isinstance(env, VectorEnv):
        raise RolloutError(
            f"{caller} got {type(env).__name__}, expected a VectorEnv."
            "  jaxenvs.vectorize(env, num_envs) makes one."
        )


_numbers = itertools.count()
_bars: dict[int, Callable[[int], None]] = {}  # by the number that a program was given


def _report_progress(bar: Any, steps: jax.Array, num_steps: int) -> None:
    stride = max(1, num_steps // _PROGRESS_UPDATES)

    def update(bar: Any, steps: Any) -> None:
        if int(bar) in _bars:
            _bars[int(bar)](int(steps))

    due = (steps % stride == 0) | (steps == num_steps)
    loops.cond(due, lambda: jax.debug.callback(update, bar, steps), lambda: None)


@contextlib.contextmanager
def _progress_bar(num_steps: int) -> Iterator[int]:
    """Shows a bar; returns its number."""
    try:
        from rich.progress import Progress
    except ImportError as error:
        raise missing_extra("rollout(progress=True)", "rich", "cli") from error
    number = next(_numbers)
    with Progress() as bar:
        task = bar.add_task("rollout", total=num_steps)
        _bars[number] = lambda steps: bar.update(task, completed=steps)
        try:
            yield number
            jax.effects_barrier()
        finally:
            del _bars[number]
