"""The choice of an engine."""

import importlib.util
import types

import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs import physics
from jaxenvs.errors import MissingExtraError
from jaxenvs.faces.gym_env import innermost

SMALL = "InvertedPendulum-v5"


def pretend(monkeypatch, platform, version, has_warp):
    """Makes another device the default one."""
    client = types.SimpleNamespace(platform_version=version)
    device, real = types.SimpleNamespace(platform=platform, client=client), jax.devices
    view = types.SimpleNamespace(
        config=jax.config, devices=lambda kind=None: real(kind) if kind else [device]
    )
    monkeypatch.setattr(physics, "jax", view)
    find = importlib.util.find_spec
    spec = types.SimpleNamespace() if has_warp else None
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: spec if name == "warp" else find(name)
    )


@pytest.mark.parametrize(
    ("platform", "version", "has_warp", "engine"),
    [
        ("cpu", "cpu", True, "c"),
        ("gpu", "PJRT C API\ncuda 12090", True, "warp"),
        ("gpu", "PJRT C API\ncuda 12090", False, "mjx"),
        ("gpu", "rocm 60100", True, "mjx"),
        ("tpu", "libtpu", True, "mjx"),
    ],
)
def test_the_platform_alone_chooses_the_engine(monkeypatch, platform, version, has_warp, engine):
    pretend(monkeypatch, platform, version, has_warp)
    assert physics.default_engine() == engine
    with jax.default_device("cpu"):
        assert physics.default_engine() == "c"


def test_interfaces_choose_for_the_device_they_run_on(monkeypatch):
    pretend(monkeypatch, "tpu", "libtpu", has_warp=False)
    assert jaxenvs.make(SMALL).unwrapped.engine == "mjx"
    for make in (jaxenvs.make_gym, jaxenvs.make_dm):
        assert innermost(make(SMALL).env).engine == "c"
        assert innermost(make(SMALL, 2).env).engine == "c"


def test_every_class_of_tasks_takes_other_masses():
    """Shapes alone tell whether resets and steps pass on what follows from the masses."""
    by_class = {
        spec.entry_point: id
        for id, spec in jaxenvs.registry.items()
        if str(spec.entry_point).startswith(
            ("jaxenvs.envs.mujoco", "jaxenvs.envs.dm_control", "jaxenvs.envs.robotics")
        )
    }
    for id in by_class.values():
        try:
            env = jaxenvs.make(id).unwrapped
        except MissingExtraError:
            continue
        env = env.replace(physics={"body_mass": 1.1 * env._original.body_mass})
        key = jax.random.key(0)
        state, _ = jax.eval_shape(env.reset, key)
        after, _ = jax.eval_shape(env.step, state, np.zeros(env.action_space.shape, "f"), key)
        assert jax.tree.structure(after) == jax.tree.structure(state), id
