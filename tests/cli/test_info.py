import jaxenvs
from jaxenvs import struct
from jaxenvs.cli.info import describe_parameters, field_comments


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
