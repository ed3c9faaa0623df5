"""The ids of tasks that are told their goal."""

from jaxenvs.registry import register

register(
    "BitFlipping-v0",
    "jaxenvs.envs.goals.bit_flipping:BitFlipping",
    family="goals",
    time_limit=15,  # one step for each of the bits
    source="M. Andrychowicz et al., 2017",
    proven_against="stable_baselines3",
)
