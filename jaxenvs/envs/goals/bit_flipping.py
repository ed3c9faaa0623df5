"""The bit-flipping task."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, GRAY, TEAL, WHITE, box, paint, pixel_grid

CELL = 24  # pixels, side length of a cell in the image


@chex.dataclass(frozen=True)
class BitFlippingState:
    """The bits and the goal."""

    bits: jax.Array  # int8[num_bits], 0 or 1
    goal: jax.Array  # int8[num_bits], 0 or 1, constant during an episode


class BitFlipping(Environment[BitFlippingState]):
    """Flip one bit per step until a row of bits equals the goal.

    Observation: a dict of three int8[num_bits], named as in Gymnasium-Robotics' GoalEnv:
        `observation` the bits, `achieved_goal` the bits again, `desired_goal` the goal
    Action: int32[], the index of the bit to flip, from 0 to num_bits - 1
    Reward: 0 if the bits equal the goal after the flip, otherwise -1
    Start: bits and goal uniform and independent; they are equal in one of 2^num_bits episodes
    Terminates: when the bits equal the goal after the flip
    Time limit: none here; `BitFlipping-v0` is registered with 15 steps, one per bit

    An episode needs at most num_bits steps. A random policy reaches the goal so rarely that, with
    15 bits, nothing can be learned from the rewards alone. `compute_reward` and
    `compute_terminated` give the reward and termination of a transition for a different goal;
    hindsight replay uses them to store the transition again with a goal that was achieved. To
    change `num_bits`, use `make("BitFlipping-v0", num_bits=n, time_limit=n)`.

    Source: M. Andrychowicz et al., Hindsight Experience Replay, 2017, section 3.1. Termination at
    the goal and the time limit follow Stable-Baselines3's BitFlippingEnv
    (tests/parity/test_goals.py), which has one fixed goal, all ones.
    """

    num_bits: int = struct.static(15)  # length of the row

    def __post_init__(self) -> None:
        check_integer(ParameterError, "BitFlipping got num_bits", self.num_bits)

    @property
    def observation_space(self) -> spaces.Dict:
        bits = spaces.MultiBinary(self.num_bits)
        return spaces.Dict(observation=bits, achieved_goal=bits, desired_goal=bits)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.num_bits)

    def reset(self, key: chex.PRNGKey) -> tuple[BitFlippingState, TimeStep]:
        bits, goal = spaces.MultiBinary((2, self.num_bits)).sample(key)  # one draw for both
        state = BitFlippingState(bits=bits, goal=goal)
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: BitFlippingState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BitFlippingState, TimeStep]:
        del key  # a step is deterministic
        flipped = np.arange(self.num_bits, dtype=np.int32) == jnp.asarray(action, jnp.int32)
        state = BitFlippingState(bits=state.bits ^ flipped.astype(jnp.int8), goal=state.goal)
        return state, TimeStep.transition(
            self._observe(state),
            reward=self.compute_reward(state.bits, state.goal),
            terminated=self.compute_terminated(state.bits, state.goal),
        )

    def compute_reward(self, achieved_goal: chex.Array, desired_goal: chex.Array) -> jax.Array:
        """Returns the reward for achieving `achieved_goal` when `desired_goal` was desired.

        Both goals are [..., num_bits], with the same number of axes, and broadcast against each
        other. The reward is float32[...].
        """
        return jnp.where(self.compute_terminated(achieved_goal, desired_goal), 0.0, -1.0)

    def compute_terminated(self, achieved_goal: chex.Array, desired_goal: chex.Array) -> jax.Array:
        """Returns bool[...], whether the episode ends. See `compute_reward` for the arguments."""
        return jnp.all(jnp.equal(achieved_goal, desired_goal), axis=-1)

    def render(self, state: BitFlippingState) -> jax.Array:
        """Draws the bits above the goal, with white for 1: uint8[48, 24 num_bits, 3].

        Bits that match the goal have a teal background, all others a gray one.
        """
        x, y = pixel_grid((2 * CELL, CELL * self.num_bits))
        column = np.arange(CELL * self.num_bits) // CELL
        matches = (state.bits == state.goal)[column][None]
        center = (x // CELL + 0.5) * CELL, (y // CELL + 0.5) * CELL
        square = box(x, y, center, (0.6 * CELL, 0.6 * CELL))
        ones = jnp.where(y > CELL, state.bits[column][None] == 1, state.goal[column][None] == 1)
        return paint(
            GRAY,
            (jnp.broadcast_to(matches, square.shape), TEAL),
            (square, BLACK),
            (jnp.where(ones, square, 0.0), WHITE),
        )

    def _observe(self, state: BitFlippingState) -> dict[str, jax.Array]:
        return {
            "observation": state.bits,
            "achieved_goal": state.bits,
            "desired_goal": state.goal,
        }
