"""The swimmer task."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, RED, TEAL, Color, disc, paint, pixel_grid, union

FRAME_SHAPE = (240, 240)  # height, width
_WATER: Color = (205, 230, 245)


@chex.dataclass(frozen=True)
class SwimmerState:
    """The positions of swimmer, goal, and urchins, and the swimmer's velocity."""

    xy: jax.Array  # float32[2]
    xy_vel: jax.Array  # float32[2]
    goal: jax.Array  # float32[2]
    urchins: jax.Array  # float32[num_urchins, 2]


class Swimmer(Environment[SwimmerState]):
    """Swim to a goal without touching the sea urchins.

    Observation: float32[2 num_urchins + 6]
        -  x and y of each urchin
        -  x and y of the swimmer
        -  velocity of the swimmer
        -  x and y of the goal
    Action: float32[2], acceleration in [-1, 1], which is not clipped
    Reward: exp(-d^2 / 2), where d is the distance from the goal after the step, times
        1 - exp(-30 u^2) for each urchin, where u is the distance from it
    Start: swimmer, goal, and urchins uniform in [-1, 1)^2, at rest
    Terminates: never
    Time limit: none here; `Swimmer-misc` is registered with 500 steps

    Source: Ivy Gym's Swimmer, 2021, as gymnax's Swimmer (tests/parity/test_certificates.py).
    """

    dt: float = 0.05  # s between steps
    num_urchins: int = struct.static(5)  # number of urchins

    def __post_init__(self) -> None:
        check_integer(ParameterError, "Swimmer got num_urchins", self.num_urchins, 0)

    @property
    def observation_space(self) -> spaces.Box:
        bound = np.array([1.0] * 2 * self.num_urchins + [np.inf] * 4 + [1.0] * 2, np.float32)
        return spaces.Box(-bound, bound)

    @property
    def action_space(self) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (2,))

    def reset(self, key: chex.PRNGKey) -> tuple[SwimmerState, TimeStep]:
        points = jax.random.uniform(key, (self.num_urchins + 2, 2), jnp.float32, -1.0, 1.0)
        state = SwimmerState(
            xy=points[0], xy_vel=jnp.zeros(2, jnp.float32), goal=points[1], urchins=points[2:]
        )
        return state, TimeStep.first(self._observe(state))

    def step(
        self, state: SwimmerState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[SwimmerState, TimeStep]:
        del key  # a step is deterministic
        xy_vel = state.xy_vel + self.dt * jnp.asarray(action, jnp.float32)
        xy = state.xy + self.dt * xy_vel
        state = SwimmerState(xy=xy, xy_vel=xy_vel, goal=state.goal, urchins=state.urchins)
        near = jnp.exp(-0.5 * ((xy - state.goal) ** 2).sum())
        stings = jnp.exp(-30 * ((xy[None] - state.urchins) ** 2).sum(axis=1))
        reward = near * jnp.prod(1 - stings)
        return state, TimeStep.transition(self._observe(state), reward=reward, terminated=False)

    def render(self, state: SwimmerState) -> jax.Array:
        """Draws swimmer, goal, and urchins from above: uint8[240, 240, 3]."""
        x, y = pixel_grid(FRAME_SHAPE)
        layers = []
        if self.num_urchins:
            urchins = union(*(disc(x, y, _pixel(urchin), 9.0) for urchin in state.urchins))
            layers = [(urchins, BLACK)]
        return paint(
            _WATER,
            (disc(x, y, _pixel(state.goal), 9.0), TEAL),
            *layers,
            (disc(x, y, _pixel(state.xy), 6.0), RED),
        )

    def _observe(self, state: SwimmerState) -> jax.Array:
        return jnp.concatenate([state.urchins.reshape(-1), state.xy, state.xy_vel, state.goal])


def _pixel(point: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns a point's place in the image, which shows [-1.25, 1.25]^2."""
    return 120 + 96 * point[0], 120 + 96 * point[1]
