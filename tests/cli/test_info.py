import json

import numpy as np

import jaxenvs
from jaxenvs import struct
from jaxenvs.cli import info
from jaxenvs.cli.info import describe_parameters, field_comments
from tests.cli._running import run


class Base:
    gravity: float = 9.8  # m/s^2, of the planet
    mass: float = 1.0
    size: int = struct.static(  # on the wrong line
        8
    )  # cells a side
    name = "no field"  # so this is nothing


class Child(Base):
    mass: float = 2.0  # kg


def test_comments_stand_behind_the_field_that_they_explain():
    assert field_comments(Base) == {
        "gravity": "m/s^2, of the planet",
        "mass": "",
        "size": "cells a side",
    }


def test_a_class_without_source_has_no_comments():
    assert field_comments(int) == {}
    assert field_comments(type("Made", (), {"__annotations__": {"a": int}})) == {}


def test_parameters_are_those_of_the_made_environment():
    env = jaxenvs.make("CartPole-v1", gravity=3.7).unwrapped
    parameters = {name: rest for name, *rest in describe_parameters(env)}
    assert parameters["gravity"] == [3.7, "m/s^2", False]
    assert parameters["sutton_barto_reward"][2]


def test_parameter_comment_names_the_other_allowed_values():
    env = jaxenvs.make("CartPole-v1", kinematics_integrator="semi-implicit euler").unwrapped
    comments = {name: comment for name, _, comment, _ in describe_parameters(env)}
    assert comments["kinematics_integrator"] == "or 'euler'"


def test_info_json_has_spaces_limits_and_parameters(capsys):
    status, printed = run(capsys, "info", "CartPole-v1", "--json")
    report = json.loads(printed)
    assert status == 0 and report["class"] == "jaxenvs.envs.classic_control.cartpole.CartPole"
    assert (
        report["observation_space"].startswith("Box(") and report["action_space"] == "Discrete(2)"
    )
    assert report["time_limit"] == 500 and report["reward_threshold"] == 475.0
    assert report["hosted"] is False and "pole" in report["description"]
    assert set(report) == {
        *("id", "hosted", "class", "family", "description", "observation_space", "action_space"),
        *("time_limit", "reward_threshold", "source", "compared_with", "wrappers", "parameters"),
    }
    assert report["parameters"][0] == {
        "name": "gravity",
        "default": 9.8,
        "comment": "m/s^2",
        "recompiles": False,
    }


def test_info_json_names_wrappers_and_their_arguments(capsys):
    report = json.loads(run(capsys, "info", "bsuite/catch_noise/7", "--json")[1])
    assert {"name": "AddRewardNoise", "arguments": {"noise_scale": 0.3}} in report["wrappers"]


def test_info_json_of_a_hosted_environment(capsys):
    report = json.loads(run(capsys, "info", "gymnasium/CartPole-v1", "--json")[1])
    assert report == {
        "id": "gymnasium/CartPole-v1",
        "hosted": True,
        "observation_space": report["observation_space"],
        "action_space": "Discrete(2)",
        "time_limit": 500,
        "reward_threshold": 475.0,
    }


def test_info_json_shows_arrays_as_lists_and_classes_as_names():
    values = {"array": np.arange(2), "class": int, "text": ...}
    assert json.loads(json.dumps(values, default=info._as_json)) == {
        "array": [0, 1],
        "class": "int",
        "text": "Ellipsis",
    }
