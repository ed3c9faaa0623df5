"""Environments of Envelope as native environments."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import TimeStep
from jaxenvs.errors import SpaceError, missing_extra
from jaxenvs.suites._shared import Adapter, check_single

try:
    import envelope.spaces as envelope_spaces
    from envelope.environment import Environment as EnvelopeEnvironment
    from envelope.wrappers.autoreset_wrapper import AutoResetWrapper
    from envelope.wrappers.wrapper import VectorizingWrapper
except ImportError as error:
    raise missing_extra(__name__, "jax-envelope", "envelope") from error

_CORE = ("obs", "reward", "terminated", "truncated")


class FromEnvelope(Adapter):
    """An environment of Envelope, whose parameters stay leaves.

    Its state contains the key of the next step, as Envelope's states do. `info` has the fields that
    Envelope's info has besides its four standard ones.
    """

    env: Any  # the environment of Envelope, a pytree

    # Envelope computes bounds with JAX, which inside a program gives traced ones.
    @property
    def observation_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _space_from_envelope(self.env.observation_space)

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _space_from_envelope(self.env.action_space)

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, info = self.env.init(key)
        return state, _timestep(info)

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        state, info = self.env.step(state, action)
        return state, _timestep(info)


def from_envelope(env: EnvelopeEnvironment) -> FromEnvelope:
    """Returns an environment of Envelope as a native environment.

    Args:
        env: a single instance, without a wrapper that resets or batches it. Envelope's time limit
            is a `TruncationWrapper`, which may be around it.

    Raises:
        WrapperError: `env` is not an Envelope environment, or has such a wrapper.
        SpaceError: jaxenvs has no such space.
    """
    batching = (AutoResetWrapper, VectorizingWrapper)
    check_single("from_envelope", env, EnvelopeEnvironment, batching, "env")
    native = FromEnvelope(env=env)
    _ = native.observation_space, native.action_space  # raises if there is none
    return native


def _timestep(info: Any) -> TimeStep:
    return TimeStep.transition(
        info.obs,
        reward=info.reward,
        terminated=info.terminated,
        truncated=info.truncated,
        info={name: value for name, value in info if name not in _CORE},
    )


def _space_from_envelope(space: Any) -> spaces.Space:
    if isinstance(space, envelope_spaces.PyTreeSpace):
        return _space_from_envelope(space.tree)
    if isinstance(space, dict):
        return spaces.Dict({name: _space_from_envelope(each) for name, each in space.items()})
    if isinstance(space, tuple):
        return spaces.Tuple([_space_from_envelope(each) for each in space])
    if isinstance(space, envelope_spaces.Discrete):
        n = np.asarray(space.n)
        return spaces.MultiDiscrete(n) if n.shape else spaces.Discrete(int(n))
    if isinstance(space, envelope_spaces.Continuous):
        return spaces.Box(space.low, space.high, dtype=jnp.result_type(space.low))
    raise SpaceError(f"there is no space of jaxenvs for {space!r:.80}.")
