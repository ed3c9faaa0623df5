"""Environments of Stoa as native environments."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import RenderError, SpaceError, missing_extra
from jaxenvs.suites._shared import ByIdentity, cast_like, check_single

try:
    import stoa
    from stoa.core_wrappers.auto_reset import CachedAutoResetWrapper
    from stoa.core_wrappers.optimistic_auto_reset import OptimisticResetVmapWrapper
    from stoa.core_wrappers.vmap import VmapWrapper
except ImportError as error:
    raise missing_extra(__name__, "stoa-env", "stoa") from error

_BATCHING = (
    stoa.AutoResetWrapper,
    CachedAutoResetWrapper,
    OptimisticResetVmapWrapper,
    VmapWrapper,
)


class FromStoa(Environment[Any]):
    """An environment of Stoa. Its state contains the key of the next step, as Stoa's states do."""

    env: ByIdentity = struct.static()
    # Computed once, outside of programs, because Stoa's spaces check their bounds with JAX.
    observation_space: spaces.Space = struct.static()  # pyright: ignore[reportIncompatibleMethodOverride]
    action_space: spaces.Space = struct.static()  # pyright: ignore[reportIncompatibleMethodOverride]

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, first = self.env.value.reset(key)
        # Stoa's adapters have extras in steps only, but `info` has the same keys from the start.
        action = jax.eval_shape(self.action_space.sample, key)
        next_state, following = jax.eval_shape(self.env.value.step, state, action)
        info = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), following.extras)
        info |= {name: first.extras[name] for name in info.keys() & first.extras.keys()}
        observation = cast_like(first.observation, following.observation)
        return cast_like(state, next_state), TimeStep.first(observation, info=info)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        state, timestep = self.env.value.step(state, action)
        return cast_like(state, state), TimeStep.transition(
            cast_like(timestep.observation, timestep.observation),
            reward=timestep.reward,
            terminated=timestep.terminated(),
            truncated=timestep.truncated(),
            info=cast_like(timestep.extras, timestep.extras),
        )

    def render(self, state: Any) -> jax.Array:
        try:
            return self.env.value.render(state)
        except NotImplementedError as error:
            raise RenderError(f"{type(self.env.value).__name__} cannot render.") from error


def from_stoa(env: stoa.Environment) -> FromStoa:
    """Returns an environment of Stoa as a native environment.

    Args:
        env: a single instance, without a wrapper that resets or batches it.

    Raises:
        WrapperError: it is no environment of Stoa, or it has such a wrapper.
        SpaceError: jaxenvs has no such space.
    """
    check_single("from_stoa", env, stoa.Environment, _BATCHING, "_env")
    return FromStoa(
        env=ByIdentity(env),
        observation_space=_space_from_stoa(env.observation_space()),
        action_space=_space_from_stoa(env.action_space()),
    )


def _space_from_stoa(space: Any) -> spaces.Space:
    if isinstance(space, stoa.DictSpace):
        return spaces.Dict({name: _space_from_stoa(each) for name, each in space.spaces.items()})
    if isinstance(space, stoa.TupleSpace):
        return spaces.Tuple([_space_from_stoa(each) for each in space.spaces])
    if isinstance(space, stoa.DiscreteSpace):
        return spaces.Discrete(space.num_values)
    if isinstance(space, stoa.MultiDiscreteSpace):
        return spaces.MultiDiscrete(np.asarray(space.num_values))
    if not isinstance(space, stoa.ArraySpace):
        raise SpaceError(f"there is no space of jaxenvs for {space!r:.80}.")
    low, high = (getattr(space, name, None) for name in ("minimum", "maximum"))
    if low is None or high is None:
        is_float = jnp.issubdtype(space.dtype, np.floating)
        limits: Any = np.array([-np.inf, np.inf]) if is_float else np.iinfo(space.dtype)
        low, high = (limits[0], limits[1]) if is_float else (limits.min, limits.max)
    return spaces.Box(np.asarray(low), np.asarray(high), space.shape, space.dtype)
