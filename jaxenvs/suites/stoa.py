"""Environments of Stoa as native environments."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.errors import RenderError, SpaceError, missing_extra
from jaxenvs.suites._shared import Adapter, ByIdentity, check_single

try:
    import stoa.spaces as stoa_spaces
    from stoa.core_wrappers.auto_reset import AutoResetWrapper, CachedAutoResetWrapper
    from stoa.core_wrappers.optimistic_auto_reset import OptimisticResetVmapWrapper
    from stoa.core_wrappers.vmap import VmapWrapper
    from stoa.environment import Environment as StoaEnvironment
except ImportError as error:
    raise missing_extra(__name__, "stoa-env", "stoa") from error

_BATCHING = (
    AutoResetWrapper,
    CachedAutoResetWrapper,
    OptimisticResetVmapWrapper,
    VmapWrapper,
)


class FromStoa(Adapter):
    """An environment of Stoa. Its state contains the key of the next step, as Stoa's states do."""

    env: ByIdentity = struct.static()

    # Stoa computes bounds with JAX, which inside a program gives traced ones.
    @property
    def observation_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _space_from_stoa(self.env.value.observation_space())

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _space_from_stoa(self.env.value.action_space())

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, first = self.env.value.reset(key)
        return state, TimeStep.first(first.observation, info=first.extras)

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        state, timestep = self.env.value.step(state, action)
        return state, TimeStep.transition(
            timestep.observation,
            reward=timestep.reward,
            terminated=timestep.terminated(),
            truncated=timestep.truncated(),
            info=timestep.extras,
        )

    def render(self, state: Any) -> jax.Array:
        try:
            return self.env.value.render(state)
        except NotImplementedError as error:
            raise RenderError(f"{type(self.env.value).__name__} cannot render.") from error


def from_stoa(env: StoaEnvironment) -> FromStoa:
    """Returns an environment of Stoa as a native environment.

    Args:
        env: a single instance, without a wrapper that resets or batches it.

    Raises:
        WrapperError: `env` is not a Stoa environment, or has such a wrapper.
        SpaceError: jaxenvs has no such space.
    """
    check_single("from_stoa", env, StoaEnvironment, _BATCHING, "_env")
    native = FromStoa(env=ByIdentity(env))
    _ = native.observation_space, native.action_space  # raises if there is none
    return native


def _space_from_stoa(space: Any) -> spaces.Space:
    if isinstance(space, stoa_spaces.DictSpace):
        return spaces.Dict({name: _space_from_stoa(each) for name, each in space.spaces.items()})
    if isinstance(space, stoa_spaces.TupleSpace):
        return spaces.Tuple([_space_from_stoa(each) for each in space.spaces])
    if isinstance(space, stoa_spaces.DiscreteSpace):
        return spaces.Discrete(space.num_values)
    if isinstance(space, stoa_spaces.MultiDiscreteSpace):
        return spaces.MultiDiscrete(np.asarray(space.num_values))
    if not isinstance(space, stoa_spaces.ArraySpace):
        raise SpaceError(f"there is no space of jaxenvs for {space!r:.80}.")
    low, high = (getattr(space, name, None) for name in ("minimum", "maximum"))
    if low is None or high is None:
        is_float = jnp.issubdtype(space.dtype, np.floating)
        limits: Any = np.array([-np.inf, np.inf]) if is_float else np.iinfo(space.dtype)
        low, high = (limits[0], limits[1]) if is_float else (limits.min, limits.max)
    return spaces.Box(np.asarray(low), np.asarray(high), space.shape, space.dtype)
