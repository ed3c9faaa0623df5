"""Environments of JAXtari, Atari games written in JAX, as native environments.

Source: Q. Delfosse et al., JAXtari, formerly JAXAtari, 2025.
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import InstallationError, check_parameters, missing_extra
from jaxenvs.spaces.unbounded import unbounded
from jaxenvs.suites._shared import (
    Adapter,
    ByIdentity,
    by_name,
    check_kind,
    field_names,
    from_gymnax_space,
)

try:
    from jaxtari import core, paths
    from jaxtari.environment import JaxEnvironment
    from jaxtari.modification import JaxtariModWrapper
except ImportError as error:
    raise missing_extra(__name__, "jaxtari", "jaxtari") from error


class FromJaxtari(Adapter):
    """A game of JAXtari, which describes its objects by name. `info` is JAXtari's."""

    env: ByIdentity = struct.static()
    pixels: bool = struct.static(False)  # observe the screen, uint8[210, 160, 3]

    @property
    def observation_space(self) -> spaces.Space:
        return unbounded(jax.eval_shape(self._reset, jax.random.key(0))[1].observation)

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return from_gymnax_space(self.env.value.action_space())

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        # Some games do not run with keys that have a type.
        observation, state = self.env.value.reset(jax.random.key_data(key))
        return state, TimeStep.first(self._observe(observation, state))

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        observation, state, reward, done, info = self.env.value.step(state, action)
        return state, TimeStep.transition(
            self._observe(observation, state), reward=reward, terminated=done, info=by_name(info)
        )

    def render(self, state: Any) -> jax.Array:
        return self.env.value.render(state).astype(jnp.uint8)

    def _observe(self, observation: Any, state: Any) -> Any:
        return self.render(state) if self.pixels else by_name(observation)


def from_jaxtari(env: Any, *, pixels: bool = False) -> FromJaxtari:
    """Returns an environment of JAXtari as a native environment, without a time limit.

    Args:
        env: the game, possibly with modifications, without wrappers.
        pixels: whether observations are pictures of the screen instead of objects.

    Raises:
        WrapperError: `env` is not a JAXtari environment.
    """
    if not isinstance(env, JaxtariModWrapper):
        check_kind("from_jaxtari", env, JaxEnvironment)
    return FromJaxtari(env=ByIdentity(env), pixels=pixels)


def names() -> list[str]:
    """Returns the names of JAXtari's games."""
    return sorted(core.list_available_games())


def make(name: str, *, pixels: bool = False, **parameters: Any) -> Environment:
    """Makes an environment of JAXtari by its name.

    Args:
        name: one of `names()`.
        pixels: whether observations are pictures of the screen instead of objects.
        **parameters: fields of the game's constants.

    Raises:
        InstallationError: the sprites are not installed.
    """
    if not paths.ownership_or_alt_markers_present():
        raise InstallationError(
            f"jaxtari/{name} needs the sprites of JAXtari, which its package does not contain."
            "  Run `python -m jaxtari.install_sprites`, which asks whether you own the games."
        )
    env = core.make(name)
    if parameters:
        check_parameters(f"jaxtari/{name}", parameters, field_names(env.consts))
        env = type(env)(consts=env.consts.replace(**parameters))
    return from_jaxtari(env, pixels=pixels)
