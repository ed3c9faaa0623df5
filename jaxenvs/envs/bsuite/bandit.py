"""The bandit task."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.envs.bsuite._mapping import mapping_generator
from jaxenvs.errors import ParameterError, check_integer
from jaxenvs.rendering.raster import BLACK, TEAL, YELLOW, box, paint, pixel_grid

HEIGHT, BAR = 200, 40  # pixels, the height of the image and the width of a bar


@chex.dataclass(frozen=True)
class BanditState:
    """The last action."""

    action: jax.Array  # int32[], -1 before the first step, used only by render


class Bandit(Environment[BanditState]):
    """Find the best of several actions whose rewards are fixed.

    Observation: float32[1, 1], always 1
    Action: int32[], from 0 to num_actions - 1
    Reward: from 0 to 1 in equal distances, in an order that mapping_seed decides
    Start: always the same
    Terminates: after one step
    Time limit: none; every episode terminates

    The order is the one that bsuite draws with NumPy for the same mapping_seed. bsuite uses the
    seeds from 0 to 19.

    Source: I. Osband et al., Behaviour Suite for Reinforcement Learning, 2020. Rules and
    observations are those of its SimpleBandit (tests/parity/test_certificates.py).
    """

    mapping_seed: int = struct.static(0)  # seed of the order of the rewards
    num_actions: int = struct.static(11)  # number of actions
    rewards: Any = None  # float32[num_actions], the rewards; None: those of mapping_seed

    def __post_init__(self) -> None:
        check_integer(ParameterError, "Bandit got num_actions", self.num_actions)
        mapping_generator("Bandit", self.mapping_seed)

    @property
    def observation_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (1, 1))

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.num_actions)

    @property
    def mapping(self) -> chex.Array:
        """The reward of each action, float32[num_actions]."""
        if self.rewards is not None:
            return self.rewards
        generator = mapping_generator("Bandit", self.mapping_seed)
        order = generator.choice(range(self.num_actions), size=self.num_actions, replace=False)
        return np.linspace(0, 1, self.num_actions)[order].astype(np.float32)

    def reset(self, key: chex.PRNGKey) -> tuple[BanditState, TimeStep]:
        del key  # every episode starts in the same state
        return BanditState(action=jnp.int32(-1)), TimeStep.first(self._observe())

    def step(
        self, state: BanditState, action: chex.Array, key: chex.PRNGKey
    ) -> tuple[BanditState, TimeStep]:
        del state, key  # a step depends on the action only
        action = jnp.asarray(action, jnp.int32)
        return BanditState(action=action), TimeStep.transition(
            self._observe(), reward=jnp.asarray(self.mapping, jnp.float32)[action], terminated=True
        )

    def render(self, state: BanditState) -> jax.Array:
        """Draws a bar for each action's reward, the last action in yellow: uint8[200, W, 3]."""
        x, y = pixel_grid((HEIGHT, BAR * self.num_actions))
        layers = []
        for i in range(self.num_actions):
            height = 4.0 + (HEIGHT - 20.0) * jnp.asarray(self.mapping)[i]
            bar = box(x, y, ((i + 0.5) * BAR, height / 2), (0.8 * BAR, height))
            layers += [(bar, TEAL), (jnp.where(state.action == i, bar, 0.0), YELLOW)]
        return paint(BLACK, *layers)

    def _observe(self, state: BanditState | None = None) -> jax.Array:
        return jnp.ones((1, 1), jnp.float32)
