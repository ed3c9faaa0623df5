"""The ids of toy text tasks, with Gymnasium's time limits and reward thresholds."""

from functools import partial

from jaxenvs.registry import register

_register = partial(register, family="toy_text", compared_with="gymnasium")
_MODULES = "jaxenvs.envs.toy_text"
_SUTTON_BARTO = "R. S. Sutton, A. G. Barto, 2018"

for _id, _map, _limit, _threshold in (
    ("FrozenLake-v1", "4x4", 100, 0.70),
    ("FrozenLake8x8-v1", "8x8", 200, 0.85),
):
    _register(
        _id,
        f"{_MODULES}.frozen_lake:FrozenLake",
        time_limit=_limit,
        reward_threshold=_threshold,
        source="Gymnasium (formerly OpenAI Gym)",
        kwargs={"map_name": _map},
    )
for _version in (3, 4):  # the same rules; Gymnasium 1.4 makes only the newer one
    _register(
        f"Taxi-v{_version}",
        f"{_MODULES}.taxi:Taxi",
        time_limit=200,
        reward_threshold=8.0,
        source="T. G. Dietterich, 2000",
    )
_register("CliffWalking-v1", f"{_MODULES}.cliff_walking:CliffWalking", source=_SUTTON_BARTO)
_register(
    "CliffWalkingSlippery-v1",
    f"{_MODULES}.cliff_walking:CliffWalking",
    source=_SUTTON_BARTO,
    kwargs={"is_slippery": True},
)
_register(
    "Blackjack-v1",
    f"{_MODULES}.blackjack:Blackjack",
    source=_SUTTON_BARTO,
    kwargs={"sab": True},
)
_register(
    "NChain-v0",
    f"{_MODULES}.n_chain:NChain",
    time_limit=1_000,
    source="M. Strens, 2000",
    compared_with="envpool",
)
