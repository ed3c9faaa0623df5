"""The task of a humanoid that stands up."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.mujoco.base import Info
from jaxenvs.envs.mujoco.humanoid import HumanoidBase
from jaxenvs.physics.models import Fields


class HumanoidStandup(HumanoidBase):
    """Stand up from lying on the ground.

    In MJX, the solver is Newton instead of the model's PGS, see `Humanoid`.

    Observation: float32[348], as that of `Humanoid`
    Action: float32[17], torques on the joints in [-0.4, 0.4], times the gear of the model
    Reward: the height of the torso divided by the time of a physics step, plus 1, minus 0.1 times
        the sum of squared actions, minus 5e-7 times the sum of squared contact forces, which
        costs at most 10
    Start: uniform noise of 0.01 on positions and velocities
    Terminates: never
    Time limit: none here; `HumanoidStandup-v5` is registered with 1,000 steps

    Source: Y. Tassa, T. Erez, E. Todorov, 2012, as Gymnasium's HumanoidStandup-v5
    (benchmarks/certificates/mujoco.json).
    """

    xml_file: str = struct.static("humanoidstandup.xml")
    uph_cost_weight: float = 1.0  # without effect, as in Gymnasium
    impact_cost_weight: float = 0.5e-6  # weight of the squared contact forces
    impact_cost_range: tuple[float, float] = (-math.inf, 10.0)  # bounds of the cost of contacts

    measured: ClassVar = ("reward_linup", "reward_quadctrl", "reward_impact")
    camera: ClassVar = {"body": 1, "distance": 4.0, "height": 0.6}

    def _info(self, data: Fields) -> Info:
        return {
            "x_position": data.qpos[0],
            "y_position": data.qpos[1],
            "z_distance_from_origin": data.qpos[2] - self._qpos0[2],
            **self._tendons(data),
        }

    def _outcome(
        self, data: Fields, action: jax.Array, velocity: jax.Array
    ) -> tuple[jax.Array, jax.Array, Info]:
        del velocity
        up = data.qpos[2] / self._model.opt.timestep
        control = self.ctrl_cost_weight * (action**2).sum()
        impact = self.impact_cost_weight * (data.cfrc_ext**2).sum()
        impact = jnp.clip(impact, *self.impact_cost_range)
        parts = {"reward_linup": up, "reward_quadctrl": -control, "reward_impact": -impact}
        return up - control - impact + 1, jnp.bool_(False), parts
