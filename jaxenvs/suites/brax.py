"""Environments of brax as native environments.

brax's automatic reset returns to the same first state for ever and loses the last observation.
Here every episode starts with a reset of its own.

Source: C. D. Freeman et al., Brax - A Differentiable Physics Engine for Large Scale Rigid Body
Simulation, 2021.
"""

from typing import Any, ClassVar

import jax

from jaxenvs import physics
from jaxenvs.core import Environment
from jaxenvs.errors import missing_extra
from jaxenvs.suites._brax_like import BraxLike
from jaxenvs.suites._shared import ByIdentity, check_single, mujoco_picture, with_time_limit

try:
    from brax import envs
    from brax.envs.wrappers import training
    from brax.io import image
except ImportError as error:
    raise missing_extra(__name__, "brax", "brax") from error

_BATCHING = (
    training.AutoResetWrapper,
    training.DomainRandomizationVmapWrapper,
    training.VmapWrapper,
)


class FromBrax(BraxLike):
    """An environment of brax."""

    model_attribute: ClassVar[str] = "sys"

    def render(self, state: Any) -> jax.Array:
        return mujoco_picture(
            lambda state: image.render_array(self.default_model, state),
            state.pipeline_state,
            lambda: self.example().pipeline_state,
        )


def from_brax(env: Any) -> FromBrax:
    """Returns an environment of brax as a native environment.

    Args:
        env: a single instance, without a wrapper that resets or batches it. brax's time limit is
            an `EpisodeWrapper`, which may be around it.

    Raises:
        WrapperError: `env` is not a brax environment, or has such a wrapper.
    """
    check_single("from_brax", env, envs.Env, _BATCHING, "env")
    return FromBrax(env=ByIdentity(env))


def names() -> list[str]:
    """Returns the names of brax's environments."""
    return [*envs._envs]  # pyright: ignore[reportPrivateUsage]


def make(
    name: str,
    *,
    episode_length: int | None = 1_000,
    engine: str | None = None,
    **parameters: Any,
) -> Environment:
    """Makes an environment of brax by its name.

    Args:
        name: one of `names()`.
        episode_length: the time limit in steps; None for no limit.
        engine: "mjx", which is brax's `backend="mjx"`, or None for its other ones.
        **parameters: arguments of the environment's constructor, such as `backend`.

    Raises:
        ParameterError: the environment does not run in that engine.
    """
    if engine is not None:
        parameters["backend"] = physics.check_among(f"brax/{name}", engine, ("mjx",))
    env = from_brax(envs.get_environment(name, **parameters))
    return with_time_limit(env, episode_length, "episode_length")
