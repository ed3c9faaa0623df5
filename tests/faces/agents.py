"""A native environment with two agents of which one ends before the other."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.multi_agent import STATE, MultiAgentEnvironment, MultiAgentTimeStep


class Relay(MultiAgentEnvironment[Any]):
    """The agent "b_1" terminates after 2 steps, "a_0" after 4. Rewards are the agents' actions."""

    @property
    def agents(self) -> tuple[str, ...]:
        return "b_1", "a_0"

    @property
    def observation_space(self) -> spaces.Dict:
        count = spaces.Box(0, 100, (2,), jnp.float32)
        return spaces.Dict({"b_1": count, "a_0": spaces.Discrete(100)})

    @property
    def action_space(self) -> spaces.Dict:
        return spaces.Dict(
            {"b_1": spaces.Box(-1, 1, (2,), jnp.float32), "a_0": spaces.Discrete(3, start=1)}
        )

    def reset(self, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        state = jnp.int32(0), jax.random.uniform(key, (), maxval=9.0)
        return state, MultiAgentTimeStep.first(self._observe(state), info=self._info(state))

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        count, start = state
        alive = count < 2
        state = count + 1, start
        return state, MultiAgentTimeStep.transition(
            self._observe(state),
            reward={
                "b_1": jnp.where(alive, action["b_1"].sum(), 0.0),
                "a_0": action["a_0"].astype(jnp.float32),
            },
            terminated={"b_1": state[0] >= 2, "a_0": state[0] >= 4},
            info=self._info(state),
        )

    def render(self, state: Any) -> jax.Array:
        return jnp.full((8, 8, 3), state[0], jnp.uint8)

    def _observe(self, state: Any) -> dict[str, Any]:
        count, start = state
        return {"b_1": jnp.stack([count.astype(jnp.float32), start]), "a_0": count}

    def _info(self, state: Any) -> dict[str, Any]:
        own = {"b_1": jnp.int32(1), "a_0": jnp.int32(0)}
        return {STATE: jnp.full(3, state[0], jnp.float32), "own": own}
