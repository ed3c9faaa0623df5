"""The ids of bsuite tasks, which need no time limit because their episodes end by themselves.

`bsuite/TASK-v0` is a task with typical parameters. `bsuite/EXPERIMENT/NUMBER` is a setting of one
of bsuite's experiments, with bsuite's own number.

Source: the files experiments/*/sweep.py of bsuite.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from jaxenvs.registry import EnvSpec, register, registry, unlisted

_register = partial(
    register,
    family="bsuite",
    source="I. Osband et al., 2020",
    compared_with="bsuite",
)
_MODULES = "jaxenvs.envs.bsuite"

_register("bsuite/bandit-v0", f"{_MODULES}.bandit:Bandit")
_register("bsuite/cartpole-v0", f"{_MODULES}.cart_pole:BsuiteCartPole")
_register("bsuite/cartpole_swingup-v0", f"{_MODULES}.cart_pole_swingup:CartPoleSwingup")
_register("bsuite/catch-v0", f"{_MODULES}.catch:Catch")
_register("bsuite/deep_sea-v0", f"{_MODULES}.deep_sea:DeepSea")
_register(
    "bsuite/deep_sea_stochastic-v0",
    f"{_MODULES}.deep_sea:DeepSea",
    kwargs={"deterministic": False},
)
_register("bsuite/discounting_chain-v0", f"{_MODULES}.discounting_chain:DiscountingChain")
_register("bsuite/memory_len-v0", f"{_MODULES}.memory_chain:MemoryChain")
_register(
    "bsuite/memory_size-v0",
    f"{_MODULES}.memory_chain:MemoryChain",
    kwargs={"memory_length": 2, "num_bits": 10},
)
_register("bsuite/mnist-v0", f"{_MODULES}.mnist:Mnist")
_register("bsuite/mountain_car-v0", f"{_MODULES}.mountain_car:BsuiteMountainCar")
_register(
    "bsuite/umbrella_distract-v0",
    f"{_MODULES}.umbrella_chain:UmbrellaChain",
    kwargs={"chain_length": 20, "n_distractor": 10},
)
_register(
    "bsuite/umbrella_length-v0",
    f"{_MODULES}.umbrella_chain:UmbrellaChain",
    kwargs={"chain_length": 10, "n_distractor": 20},
)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One of bsuite's experiments: an agent plays the same task in several settings."""

    task: str  # the id is bsuite/TASK-v0
    num_episodes: int  # of each setting
    settings: Sequence[Mapping[str, Any]]  # parameters of the task
    wrapper: str = ""  # "module:Wrapper", around the task
    arguments: Sequence[Mapping[str, Any]] = ()  # of the wrapper, for each setting

    def specs(self, name: str) -> list[EnvSpec]:
        """Returns the registration of each setting."""
        spec, wrappers = registry[f"bsuite/{self.task}-v0"], [{} for _ in self.settings]
        if self.wrapper:
            wrappers = [{self.wrapper: arguments} for arguments in self.arguments]
        return [
            dataclasses.replace(
                spec, id=f"bsuite/{name}/{i}", kwargs={**spec.kwargs, **setting}, wrappers=wrapper
            )
            for i, (setting, wrapper) in enumerate(zip(self.settings, wrappers, strict=True))
        ]


_REPEATED = ({},) * 20  # settings that differ in their random numbers only
_MAPPINGS = tuple({"mapping_seed": seed} for seed in range(20))
_DEPTHS = tuple({"size": size, "mapping_seed": 42} for size in range(10, 51, 2))
_SIZES = (*range(1, 11), 12, 14, 17, 20, 25, 30, 40)
_LENGTHS = (*_SIZES, *range(50, 101, 10))
_NOISES = (0.1, 0.3, 1.0, 3.0, 10.0)
_SCALES = (0.001, 0.03, 1.0, 30.0, 1000.0)

EXPERIMENTS: dict[str, Experiment] = {
    "bandit": Experiment("bandit", 10_000, _MAPPINGS),
    "cartpole": Experiment("cartpole", 1_000, _REPEATED),
    "cartpole_swingup": Experiment(
        "cartpole_swingup",
        1_000,
        [{"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)],
    ),
    "catch": Experiment("catch", 10_000, _REPEATED),
    "deep_sea": Experiment("deep_sea", 10_000, _DEPTHS),
    "deep_sea_stochastic": Experiment("deep_sea_stochastic", 10_000, _DEPTHS),
    "discounting_chain": Experiment("discounting_chain", 1_000, _MAPPINGS),
    "memory_len": Experiment("memory_len", 10_000, [{"memory_length": n} for n in _LENGTHS]),
    "memory_size": Experiment("memory_size", 10_000, [{"num_bits": n} for n in _SIZES]),
    "mnist": Experiment("mnist", 10_000, _REPEATED),
    "mountain_car": Experiment("mountain_car", 1_000, _REPEATED),
    "umbrella_distract": Experiment(
        "umbrella_distract", 10_000, [{"n_distractor": n} for n in _LENGTHS]
    ),
    "umbrella_length": Experiment(
        "umbrella_length", 10_000, [{"chain_length": n, "n_distractor": 20} for n in _LENGTHS]
    ),
}
for _task in ("bandit", "cartpole", "catch", "mnist", "mountain_car"):
    for _kind, _wrapper, _argument, _values in (
        ("noise", "jaxenvs.wrappers.reward:AddRewardNoise", "noise_scale", _NOISES),
        ("scale", "jaxenvs.wrappers.reward:ScaleReward", "scale", _SCALES),
    ):
        EXPERIMENTS[f"{_task}_{_kind}"] = Experiment(
            _task,
            EXPERIMENTS[_task].num_episodes,
            (_MAPPINGS[:4] if _task == "bandit" else ({},) * 4) * len(_values),
            _wrapper,
            [{_argument: value} for value in _values for _ in range(4)],
        )
EXPERIMENTS = {name: EXPERIMENTS[name] for name in sorted(EXPERIMENTS)}
unlisted.update({spec.id: spec for name, each in EXPERIMENTS.items() for spec in each.specs(name)})
