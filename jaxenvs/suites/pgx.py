"""Games of pgx with one player as native environments.

Source: S. Koyamada et al., Pgx: Hardware-Accelerated Parallel Game Simulators for Reinforcement
Learning, 2023.
"""

import typing
from typing import Any

import chex
import jax

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import WrapperError, missing_extra
from jaxenvs.suites._shared import Adapter, ByIdentity, check_kind, unbounded

try:
    import pgx
    from pgx.core import EnvId
except ImportError as error:
    raise missing_extra(__name__, "pgx", "pgx") from error


class FromPgx(Adapter):
    """A game of pgx with one player.

    Observations have the entries "observation" and "action_mask", bool[num_actions], which is true
    where an action is legal. An illegal action ends the game, as in pgx.
    """

    env: ByIdentity = struct.static()

    @property
    def observation_space(self) -> spaces.Space:
        state = jax.eval_shape(self.env.value.init, jax.random.key(0))
        return unbounded(_observe(state))

    @property
    def action_space(self) -> spaces.Space:
        return spaces.Discrete(self.env.value.num_actions)

    def begin(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state = self.env.value.init(key)
        return state, TimeStep.first(_observe(state))

    def advance(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state = self.env.value.step(state, action, key)
        return state, TimeStep.transition(
            _observe(state),
            reward=state.rewards[0],
            terminated=state.terminated,
            truncated=state.truncated,
        )


def from_pgx(env: Any) -> Environment:
    """Returns a game of pgx with one player as a native environment.

    Raises:
        WrapperError: it is no environment of pgx, or it has several players.
    """
    check_kind("from_pgx", env, pgx.Env)
    if env.num_players != 1:
        raise WrapperError(
            f"from_pgx got {env.id}, which has {env.num_players} players; only games with one"
            " player are supported."
        )
    return FromPgx(env=ByIdentity(env))


def names() -> list[str]:
    """Returns the names of pgx's games with one player."""
    return [id for id in typing.get_args(EnvId) if id == "2048" or id.startswith("minatar-")]


def make(name: str, **parameters: Any) -> Environment:
    """Makes a game of pgx by its name.

    Args:
        name: one of `names()`.
        **parameters: arguments of `pgx.make`.
    """
    return from_pgx(pgx.make(name, **parameters))


def _observe(state: Any) -> dict[str, Any]:
    return {"observation": state.observation, "action_mask": state.legal_action_mask}
