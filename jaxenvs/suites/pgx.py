"""Games of pgx as native environments.

Source: S. Koyamada et al., Pgx: Hardware-Accelerated Parallel Game Simulators for Reinforcement
Learning, 2023.
"""

import io
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import missing_extra
from jaxenvs.multi_agent import MASK, MultiAgentEnvironment, MultiAgentTimeStep
from jaxenvs.spaces.unbounded import unbounded
from jaxenvs.suites._shared import Adapter, ByIdentity, check_kind, python_picture

try:
    import pgx
except ImportError as error:
    raise missing_extra(__name__, "pgx", "pgx") from error


class FromPgx(Adapter):
    """A game of pgx with one player.

    Observations have the entries "observation" and "action_mask", bool[num_actions], which is true
    where an action is legal. An illegal action ends the game, as in pgx. So do the caps of moves in
    chess, shogi and Go: they give the game a result, so they are terminations.
    """

    env: ByIdentity = struct.static()

    @property
    def observation_space(self) -> spaces.Space:
        state = jax.eval_shape(self.env.value.init, jax.random.key(0))
        return unbounded(_observe(state))

    @property
    def action_space(self) -> spaces.Space:
        return spaces.Discrete(self.env.value.num_actions)

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state = self.env.value.init(key)
        return state, TimeStep.first(_observe(state))

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state = self.env.value.step(state, action, key)
        return state, TimeStep.transition(
            _observe(state),
            reward=state.rewards[0],
            terminated=state.terminated,
            truncated=state.truncated,
        )

    def render(self, state: Any) -> jax.Array:
        return python_picture("pgx", self.env.value.id, self._draw, state)

    def _draw(self, state: Any) -> Any:
        try:
            import resvg_py
            from matplotlib import get_data_path, pyplot
            from PIL import Image
        except ImportError as error:
            raise missing_extra("Drawing games of pgx", error.name or "resvg-py", "pgx") from error
        with pyplot.ioff():  # so that MinAtar, which is drawn with pyplot, opens no window
            svg = state.to_svg()
        image = resvg_py.svg_to_bytes(
            svg,
            background="white",
            dpi=96,
            font_dirs=[f"{get_data_path()}/fonts/ttf"],
            serif_family="DejaVu Serif",  # also for text whose own font is missing
        )
        return np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))


class FromPgxGame(FromPgx, MultiAgentEnvironment[Any]):
    """A game of pgx with several players, "player_0", "player_1" and so on, who take turns.

    Each observes the game from its own side, with the entries of `FromPgx`. While others act, only
    action 0 is legal, and ignored.
    """

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"player_{i}" for i in range(self.env.value.num_players))

    @property
    def observation_space(self) -> spaces.Space:
        shapes = jax.eval_shape(self._reset, jax.random.key(0))[1]
        return unbounded(shapes.observation)

    @property
    def action_space(self) -> spaces.Space:
        return spaces.Dict(dict.fromkeys(self.agents, spaces.Discrete(self.env.value.num_actions)))

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        state = self.env.value.init(key)
        return state, MultiAgentTimeStep.first(self._observe(state), to_act=self._to_act(state))

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        actions = jnp.stack([action[agent] for agent in self.agents])
        state = self.env.value.step(state, actions[state.current_player], key)
        return state, MultiAgentTimeStep.transition(
            self._observe(state),
            reward={agent: state.rewards[i] for i, agent in enumerate(self.agents)},
            terminated=state.terminated,
            truncated=state.truncated,
            to_act=self._to_act(state),
        )

    def _to_act(self, state: Any) -> dict[str, jax.Array]:
        return {agent: state.current_player == i for i, agent in enumerate(self.agents)}

    def _observe(self, state: Any) -> dict[str, Any]:
        waits = jnp.arange(self.env.value.num_actions) == 0
        return {
            agent: {
                "observation": self.env.value._observe(state, jnp.int32(i)),
                MASK: jnp.where(state.current_player == i, state.legal_action_mask, waits),
            }
            for i, agent in enumerate(self.agents)
        }


def from_pgx(env: Any) -> Environment:
    """Returns a game of pgx as a native environment.

    Raises:
        WrapperError: `env` is not a pgx environment.
    """
    check_kind("from_pgx", env, pgx.Env)
    return (FromPgx if env.num_players == 1 else FromPgxGame)(env=ByIdentity(env))


def names() -> list[str]:
    """Returns the names of pgx's games."""
    return [*pgx.available_envs()]


def make(name: str, **parameters: Any) -> Environment:
    """Makes a game of pgx by its name.

    Args:
        name: one of `names()`.
        **parameters: arguments of `pgx.make`.
    """
    return from_pgx(pgx.make(name, **parameters))


def _observe(state: Any) -> dict[str, Any]:
    return {"observation": state.observation, MASK: state.legal_action_mask}
