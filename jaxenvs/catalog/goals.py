"""The ids of goal-conditioned tasks."""

from jaxenvs.registry import register

register(
    "BitFlipping-v0",
    "jaxenvs.envs.goals.bit_flipping:BitFlipping",
    family="goals",
    time_limit=15,  # one step per bit
    source="M. Andrychowicz et al., 2017",
    compared_with="stable_baselines3",
)
