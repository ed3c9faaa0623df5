"""A wrapper that joins several episodes of one level to a trial."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys, prng, spaces, struct
from jaxenvs.core import TimeStep, Wrapper
from jaxenvs.errors import WrapperError, check_integer
from jaxenvs.struct import is_traced
from jaxenvs.timestep import Start
from jaxenvs.wrappers._checks import check_single_agent


@chex.dataclass(frozen=True)
class TrialState:
    """The wrapped state and the progress of the trial."""

    inner: chex.ArrayTree  # the wrapped state
    level: Any  # in which the next episode starts, a `Start` if all start in the same state
    step_count: jax.Array  # int32[], steps in the trial
    episode: jax.Array  # int32[], the index of the current episode
    episode_return: jax.Array  # float32[], of the current episode so far


class Trials(Wrapper[TrialState]):
    """Makes one long episode, a trial, of several episodes in the same level, for meta-learning.

    A policy with memory can find out in the first episodes what pays in the later ones (RL^2). An
    inner end is not an end here: flags are false, and the observation is already the first of the
    next episode. A trial terminates with its last episode, whichever flag that has, because nothing
    follows; or it is truncated after a number of steps.

    Entries that the wrapper adds to `info`, of the step just taken:
        episode         int32[], the index of the episode in the trial
        episode_ended   bool[], whether the episode ended with this step
        episode_return  float32[], the sum of its rewards so far

    With `observe`, observations are dicts, or have more entries if they are dicts already:
        action  float32[n], the last action, flattened; zeros at the start of a trial
        reward  float32[1], the last reward
        first   float32[1], 1 in the first observation of each episode

    All episodes of a trial start in the same state. With `between(level, key) -> level`, such as
    the method `redraw` of `RandomizeParameters`, each starts in a level made of the last one.

    Raises:
        WrapperError: neither `episodes` nor `steps` is given, one is not positive, the environment
            has several agents, or observations or `info` have one of these entries already.

    Source: Y. Duan et al., RL^2: Fast Reinforcement Learning via Slow Reinforcement Learning, 2016.
    """

    episodes: int | None = None  # of a trial; None for as many as `steps` allow
    steps: int | None = None  # of a trial; None for as many as `episodes` take
    observe: bool = struct.static(True)  # add the last action and reward to observations
    between: Callable[[Any, chex.PRNGKey], Any] | None = struct.static(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_single_agent(self, "Use an environment with one agent.")
        if self.episodes is None and self.steps is None:
            raise WrapperError("Trials got neither episodes nor steps.  Pass one, or both.")
        for name in ("episodes", "steps"):
            if (value := getattr(self, name)) is not None and not is_traced(value):
                for number in np.ravel(value).tolist():  # one per instance if it is batched
                    check_integer(WrapperError, f"Trials got {name}", number)
        self._check_space("observation_space")

    @property
    def time_limit(self) -> Any:
        """The largest number of steps of a trial; None if it is not known."""
        own = self.env.time_limit
        by_episodes = None if own is None or self.episodes is None else own * self.episodes
        limits = [limit for limit in (self.steps, by_episodes) if limit is not None]
        return None if not limits else limits[0] if len(limits) == 1 else jnp.minimum(*limits)

    @property
    def observation_space(self) -> spaces.Space:
        inner = self.env.observation_space
        if not self.observe:
            return inner
        added = {
            "action": spaces.Box(-np.inf, np.inf, self.env.action_space.flatten_space().shape),
            "reward": spaces.Box(-np.inf, np.inf, (1,)),
            "first": spaces.Box(0.0, 1.0, (1,)),
        }
        own = dict(inner.spaces) if isinstance(inner, spaces.Dict) else {"observation": inner}
        if taken := own.keys() & added.keys():
            raise WrapperError(
                f"Trials got observations that already have {sorted(taken)}.  Pass observe=False."
            )
        return spaces.Dict({**own, **added})

    def inner(self, state: TrialState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[TrialState, TimeStep]:
        return self.reset_to(self.env.level(key))

    def reset_to(self, level: Any) -> tuple[TrialState, TimeStep]:
        inner, timestep = self.env.reset_to(level)
        state = TrialState(
            inner=inner,
            level=Start(state=inner, timestep=timestep) if self.between is None else level,
            step_count=jnp.int32(0),
            episode=jnp.int32(0),
            episode_return=jnp.float32(0),
        )
        zeros = jnp.zeros_like(self._flat(self.env.action_space.sample(jax.random.key(0))))
        never = jnp.bool_(False)
        return state, self._outputs(timestep, state, zeros, jnp.float32(0), never, ~never)

    def step(
        self, state: TrialState, action: Any, key: chex.PRNGKey
    ) -> tuple[TrialState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        over, level = timestep.done, state.level
        if self.between is not None:
            drawn = self.between(level, prng.as_standard_keys(keys.trial_key(key)))
            level = jax.tree.map(lambda new, old: jnp.where(over, new, old), drawn, level)
        begun, first = self.env.reset_to(level)
        so_far = TrialState(
            inner=jax.tree.map(lambda new, old: jnp.where(over, new, old), begun, inner),
            level=level,
            step_count=state.step_count + 1,
            episode=state.episode + over.astype(jnp.int32),
            episode_return=state.episode_return + timestep.reward,
        )
        never = jnp.bool_(False)
        is_last = over & (so_far.episode >= self.episodes) if self.episodes is not None else never
        is_late = so_far.step_count >= self.steps if self.steps is not None else never
        # The last observation of a trial is that of its last step; nothing follows it.
        observation = jax.tree.map(
            lambda new, old: jnp.where(over & ~is_last, new, old),
            first.observation,
            timestep.observation,
        )
        shown = timestep.replace(observation=observation, terminated=is_last, truncated=is_late)
        result = self._outputs(
            shown,
            struct.replace(so_far, episode=state.episode),
            self._flat(action),
            timestep.reward,
            over,
            over & ~is_last,
        )
        returned = jnp.where(over, 0.0, so_far.episode_return)
        return struct.replace(so_far, episode_return=returned), result

    def _flat(self, action: Any) -> jax.Array:
        return self.env.action_space.flatten(action).astype(jnp.float32)

    def _outputs(
        self,
        timestep: TimeStep,
        state: TrialState,
        action: jax.Array,
        reward: jax.Array,
        is_ended: jax.Array,
        is_first: jax.Array,
    ) -> TimeStep:
        added = {
            "episode": state.episode,
            "episode_ended": is_ended,
            "episode_return": state.episode_return,
        }
        if taken := timestep.info.keys() & added.keys():
            raise WrapperError(f"Trials got an info that already has {sorted(taken)}.")
        observation = timestep.observation
        if self.observe:
            is_dict = isinstance(self.env.observation_space, spaces.Dict)
            own = observation if is_dict else {"observation": observation}
            observation = {
                **own,
                "action": action,
                "reward": reward[None],
                "first": is_first.astype(jnp.float32)[None],
            }
        return timestep.replace(observation=observation, info={**timestep.info, **added})
