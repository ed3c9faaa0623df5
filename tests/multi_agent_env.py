"""Small environments with several agents, for tests."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import MultiAgentEnvironment, MultiAgentTimeStep, spaces

AGENTS = ("scout", "carrier", "guard")  # not in alphabetical order, which jit prefers


@chex.dataclass(frozen=True)
class PatrolState:
    steps: jax.Array  # int32[]
    goal: jax.Array  # int32[], the action that is rewarded
    ended: jax.Array  # bool[3]


class Patrol(MultiAgentEnvironment[PatrolState]):
    """Three agents act at once; agent i ends after i + 2 steps and pays for its place.

    An agent that takes the action `goal`, which it sees, receives `bonus`, minus its index.
    """

    bonus: float = 10.0

    @property
    def agents(self) -> tuple[str, ...]:
        return AGENTS

    @property
    def observation_space(self) -> spaces.Dict:
        each = spaces.Dict(
            {
                "observation": spaces.Box(0.0, 10.0, (3,)),
                "action_mask": spaces.Box(False, True, (4,), bool),
            }
        )
        return spaces.Dict(dict.fromkeys(AGENTS, each))

    @property
    def action_space(self) -> spaces.Dict:
        return spaces.Dict(dict.fromkeys(AGENTS, spaces.Discrete(4)))

    def reset(self, key: chex.PRNGKey) -> tuple[PatrolState, MultiAgentTimeStep]:
        goal = jax.random.randint(key, (), 0, 3, jnp.int32)
        state = PatrolState(steps=jnp.int32(0), goal=goal, ended=jnp.zeros(3, bool))
        return state, MultiAgentTimeStep.first(self._observe(state))

    def step(
        self, state: PatrolState, action: dict[str, jax.Array], key: chex.PRNGKey
    ) -> tuple[PatrolState, MultiAgentTimeStep]:
        lives = ~state.ended
        hits = jnp.stack([action[agent] for agent in AGENTS]) == state.goal
        paid = jnp.where(hits, jnp.float32(self.bonus), 0.0) - jnp.arange(3, dtype=jnp.float32)
        reward = jnp.where(lives, paid, 0.0)
        steps = state.steps + 1
        goal = jax.random.randint(key, (), 0, 3, jnp.int32)
        state = PatrolState(
            steps=steps, goal=goal, ended=steps >= jnp.arange(2, 5, dtype=jnp.int32)
        )
        return state, MultiAgentTimeStep.transition(
            self._observe(state),
            reward={agent: reward[i] for i, agent in enumerate(AGENTS)},
            terminated={agent: state.ended[i] for i, agent in enumerate(AGENTS)},
        )

    def _observe(self, state: PatrolState) -> dict[str, dict[str, jax.Array]]:
        actions = jnp.arange(4, dtype=jnp.int32)
        legal = jnp.where(state.ended[:, None], actions == 0, actions < 3)
        numbers = jnp.stack([state.goal, state.steps, state.steps]).astype(jnp.float32)
        return {
            agent: {"observation": numbers.at[2].set(i), "action_mask": legal[i]}
            for i, agent in enumerate(AGENTS)
        }


@chex.dataclass(frozen=True)
class NimState:
    heap: jax.Array  # int32[], stones left
    turn: jax.Array  # int32[], the player to move


class Nim(MultiAgentEnvironment[NimState]):
    """Two players take one to three of seven to nine stones in turns; who takes the last wins."""

    @property
    def agents(self) -> tuple[str, ...]:
        return ("zoe", "adam")

    @property
    def observation_space(self) -> spaces.Dict:
        each = spaces.Dict(
            {
                "observation": spaces.Box(0.0, 1.0, (10,)),
                "action_mask": spaces.Box(False, True, (3,), bool),
            }
        )
        return spaces.Dict(dict.fromkeys(self.agents, each))

    @property
    def action_space(self) -> spaces.Dict:
        return spaces.Dict(dict.fromkeys(self.agents, spaces.Discrete(3)))

    def reset(self, key: chex.PRNGKey) -> tuple[NimState, MultiAgentTimeStep]:
        draws = jax.random.randint(key, (2,), 0, jnp.array([3, 2], jnp.int32), jnp.int32)
        state = NimState(heap=7 + draws[0], turn=draws[1])
        return state, MultiAgentTimeStep.first(self._observe(state), to_act=self._to_act(state))

    def step(
        self, state: NimState, action: dict[str, jax.Array], key: chex.PRNGKey
    ) -> tuple[NimState, MultiAgentTimeStep]:
        del key  # a game without chance
        taken = jnp.stack([action[agent] for agent in self.agents])[state.turn] + 1
        heap = jnp.maximum(state.heap - taken, 0)
        over, mover = heap == 0, state.turn
        state = NimState(heap=heap, turn=1 - mover)
        return state, MultiAgentTimeStep.transition(
            self._observe(state),
            reward={
                agent: jnp.where(over, jnp.where(mover == i, 1.0, -1.0), 0.0)
                for i, agent in enumerate(self.agents)
            },
            terminated=over,
            to_act=self._to_act(state),
        )

    def _to_act(self, state: NimState) -> dict[str, jax.Array]:
        return {agent: state.turn == i for i, agent in enumerate(self.agents)}

    def _observe(self, state: NimState) -> dict[str, dict[str, jax.Array]]:
        stones = (jnp.arange(10, dtype=jnp.int32) == state.heap).astype(jnp.float32)
        moves = jnp.arange(3, dtype=jnp.int32)
        legal = moves < jnp.maximum(state.heap, 1)
        return {
            agent: {
                "observation": stones,
                "action_mask": jnp.where(state.turn == i, legal, moves == 0),
            }
            for i, agent in enumerate(self.agents)
        }
