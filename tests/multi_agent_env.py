"""Environments with several agents for tests. All their numbers are exact in float32."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.multi_agent import MultiAgentEnvironment, MultiAgentTimeStep
from tests.wrappers._batches import Echo

MASK = spaces.Box(False, True, (3,), np.bool_)


@chex.dataclass(frozen=True)
class PartyState:
    count: jax.Array  # int32[]
    lengths: jax.Array  # int32[3], the step on which each agent leaves
    places: jax.Array  # int32[3]


class Party(MultiAgentEnvironment[PartyState]):
    """Three agents on a line, pushed by random wind, who leave one after another.

    Their spaces differ, and the carrier has illegal actions. The reward of an agent is its action
    plus `bonus` times its place, and 0 after it has left.
    """

    bonus: float = 0.5

    @property
    def agents(self):
        return ("scout", "carrier", "guard")  # `jit` sorts dicts into another order

    @property
    def observation_space(self):
        place = spaces.Box(-500.0, 500.0, (2,))
        return spaces.Dict(
            {
                "scout": place,
                "carrier": spaces.Dict({"observation": place, "action_mask": MASK}),
                "guard": spaces.Box(-500, 500, (1,), np.int32),
            }
        )

    @property
    def action_space(self):
        sizes = {"scout": 2, "carrier": 3, "guard": 4}
        return spaces.Dict({agent: spaces.Discrete(size) for agent, size in sizes.items()})

    def reset(self, key):
        length_key, place_key = jax.random.split(key)
        state = PartyState(
            count=jnp.int32(0),
            lengths=jax.random.randint(length_key, (3,), 1, 6, jnp.int32),
            places=jax.random.randint(place_key, (3,), 0, 4, jnp.int32),
        )
        return state, MultiAgentTimeStep.first(self._observe(state), info={"wind": jnp.int32(0)})

    def step(self, state, action, key):
        wind = jax.random.randint(key, (), -1, 2, jnp.int32)
        moves = jnp.stack([action[agent] for agent in self.agents])
        stays = state.count < state.lengths
        places = jnp.where(stays, state.places + moves + wind, state.places)
        rewards = moves.astype(jnp.float32) + self.bonus * places.astype(jnp.float32)
        rewards = jnp.where(stays, rewards, 0.0)
        state = PartyState(count=state.count + 1, lengths=state.lengths, places=places)
        left = state.count >= state.lengths
        return state, MultiAgentTimeStep.transition(
            self._observe(state),
            reward=dict(zip(self.agents, rewards, strict=True)),
            terminated=dict(zip(self.agents, left, strict=True)),
            info={"wind": wind},
        )

    def render(self, state):
        return jnp.broadcast_to(state.places[:, None, None] % 256, (3, 4, 3)).astype(jnp.uint8)

    def _observe(self, state):
        scout, carrier, guard = state.places
        count = state.count
        stays = count < state.lengths[1]
        mask = jnp.stack([jnp.bool_(True), stays & (carrier % 2 == 0), stays])
        return {
            "scout": jnp.stack([scout, count]).astype(jnp.float32),
            "carrier": {
                "observation": jnp.stack([carrier, count]).astype(jnp.float32),
                "action_mask": mask,
            },
            "guard": guard[None],
        }


@chex.dataclass(frozen=True)
class NimState:
    pile: jax.Array  # int32[]
    turn: jax.Array  # int32[], the agent to act


class Nim(MultiAgentEnvironment[NimState]):
    """Two players in turn take 1 to 3 of a random pile; who takes the last one wins."""

    @property
    def agents(self):
        return ("white", "black")

    @property
    def observation_space(self):
        pile = spaces.Box(0, 9, (1,), np.int32)
        seen = spaces.Dict({"observation": pile, "action_mask": MASK})
        return spaces.Dict(dict.fromkeys(self.agents, seen))

    @property
    def action_space(self):
        return spaces.Dict(dict.fromkeys(self.agents, spaces.Discrete(3)))

    def reset(self, key):
        pile = jax.random.randint(key, (), 1, 10, jnp.int32)
        state = NimState(pile=pile, turn=jnp.int32(0))
        return state, MultiAgentTimeStep.first(self._observe(state), to_act=self._to_act(state))

    def step(self, state, action, key):
        del key
        taken = jnp.stack([action[agent] for agent in self.agents])[state.turn] + 1
        pile = jnp.maximum(state.pile - taken, 0)
        wins = jnp.where(pile == 0, 1.0, 0.0)
        rewards = {a: jnp.where(state.turn == i, wins, -wins) for i, a in enumerate(self.agents)}
        state = NimState(pile=pile, turn=1 - state.turn)
        return state, MultiAgentTimeStep.transition(
            self._observe(state),
            reward=rewards,
            terminated=pile == 0,
            to_act=self._to_act(state),
        )

    def _to_act(self, state):
        return {agent: state.turn == i for i, agent in enumerate(self.agents)}

    def _observe(self, state):
        legal = np.arange(1, 4, dtype=np.int32) <= state.pile[None]
        waits = np.array([True, False, False])
        acts = self._to_act(state)
        return {
            agent: {
                "observation": state.pile[None],
                "action_mask": jnp.where(acts[agent] & (state.pile > 0), legal, waits),
            }
            for agent in self.agents
        }


class Duet(MultiAgentEnvironment[dict]):
    """Two agents in an `Echo` each, without a common dynamics.

    Args:
        kind: what they observe: a "box", a "dict" or a "picture".
    """

    kind: str = struct.static("box")
    gravity: float = 9.8

    @property
    def agents(self):
        return ("low", "high")

    @property
    def observation_space(self):
        box = spaces.Box([-2.0, 0.0, 0.0], [1.0, 3.0, 5.0])
        kinds = {
            "box": box,
            "dict": spaces.Dict({"obs": box, "time": spaces.Box(0, 5, (1,), np.int32)}),
            "picture": spaces.Box(0, 255, (6, 9, 3), np.uint8),
        }
        return spaces.Dict(dict.fromkeys(self.agents, kinds[self.kind]))

    @property
    def action_space(self):
        return spaces.Dict(dict.fromkeys(self.agents, Echo().action_space))

    def reset(self, key):
        agent_keys = zip(self.agents, jax.random.split(key), strict=True)
        states, timesteps = self._split({a: Echo().reset(k) for a, k in agent_keys})
        return states, MultiAgentTimeStep.first(self._observe(states, timesteps))

    def step(self, states, action, key):
        results = {a: Echo().step(states[a], action[a], key) for a in self.agents}
        going = {a: states[a].count < states[a].length for a in self.agents}
        states, timesteps = self._split(results)
        return states, MultiAgentTimeStep.transition(
            self._observe(states, timesteps),
            reward={a: jnp.where(going[a], t.reward, 0.0) for a, t in timesteps.items()},
            terminated={a: t.terminated for a, t in timesteps.items()},
            truncated={a: t.truncated for a, t in timesteps.items()},
        )

    def _split(self, results):
        return tuple({agent: results[agent][part] for agent in self.agents} for part in (0, 1))

    def _observe(self, states, timesteps):
        pixels = np.arange(6 * 9 * 3, dtype=np.int32).reshape(6, 9, 3) * 5
        return {
            agent: {
                "box": timestep.observation,
                "dict": {"obs": timestep.observation, "time": states[agent].count[None]},
                "picture": ((pixels + states[agent].count * 37) % 256).astype(jnp.uint8),
            }[self.kind]
            for agent, timestep in timesteps.items()
        }
