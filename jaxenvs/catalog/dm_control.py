"""The ids of the DeepMind Control Suite."""

from typing import Any

from jaxenvs.registry import register

_TASKS: dict[str, dict[str, dict[str, Any]]] = {
    "acrobot:Acrobot": {"swingup": {}, "swingup_sparse": {"sparse": True}},
    "ball_in_cup:BallInCup": {"catch": {}},
    "cartpole:Cartpole": {
        "balance": {},
        "balance_sparse": {"sparse": True},
        "swingup": {"swing_up": True},
        "swingup_sparse": {"swing_up": True, "sparse": True},
        "two_poles": {"swing_up": True, "num_poles": 2},
        "three_poles": {"swing_up": True, "num_poles": 3},
    },
    "cheetah:Cheetah": {"run": {}},
    "dog:Dog": {
        "stand": {},
        "walk": {"move_speed": 1.0},
        "trot": {"move_speed": 3.0},
        "run": {"move_speed": 9.0},
        "fetch": {"fetch": True},
    },
    "finger:Finger": {
        "spin": {},
        "turn_easy": {"target_radius": 0.07},
        "turn_hard": {"target_radius": 0.03},
    },
    "fish:Fish": {"upright": {}, "swim": {"swim": True}},
    "hopper:Hopper": {"stand": {}, "hop": {"hopping": True}},
    "humanoid:Humanoid": {
        "stand": {},
        "walk": {"move_speed": 1.0},
        "run": {"move_speed": 10.0},
        "run_pure_state": {"move_speed": 10.0, "pure_state": True},
    },
    "humanoid_CMU:HumanoidCMU": {
        "stand": {},
        "walk": {"move_speed": 1.0},
        "run": {"move_speed": 10.0},
    },
    "lqr:LQR": {"lqr_2_1": {}, "lqr_6_2": {"n_bodies": 6, "n_actuators": 2}},
    "manipulator:Manipulator": {
        "bring_ball": {},
        "bring_peg": {"use_peg": True},
        "insert_ball": {"insert": True},
        "insert_peg": {"use_peg": True, "insert": True},
    },
    "pendulum:Pendulum": {"swingup": {}},
    "point_mass:PointMass": {"easy": {}, "hard": {"randomize_gains": True}},
    "quadruped:Quadruped": {
        "walk": {},
        "run": {"move_speed": 5.0},
        "fetch": {"fetch": True},
    },
    "quadruped:QuadrupedEscape": {"escape": {}},
    "reacher:Reacher": {"easy": {}, "hard": {"target_size": 0.015}},
    "stacker:Stacker": {"stack_2": {"n_boxes": 2}, "stack_4": {"n_boxes": 4}},
    "swimmer:Swimmer": {"swimmer6": {"n_links": 6}, "swimmer15": {"n_links": 15}},
    "walker:Walker": {
        "stand": {},
        "walk": {"move_speed": 1.0},
        "run": {"move_speed": 8.0},
    },
}

for _name, _tasks in _TASKS.items():
    _domain, _class = _name.split(":")
    for _task, _settings in _tasks.items():
        register(
            f"dm_control/{_domain}-{_task}",
            f"jaxenvs.envs.dm_control.{_domain.lower()}:{_class}",
            family="dm_control",
            time_limit=None if _domain == "lqr" else 1_000,
            source="Y. Tassa et al., DeepMind Control Suite, 2018",
            compared_with="dm_control",
            kwargs=_settings,
        )
