"""MuJoCo's own renderer draws states as dm_control does."""

import ctypes.util
import os
import subprocess
import sys

import jax
import mujoco
import pytest

import jaxenvs
from jaxenvs.envs.mujoco import Renderer
from jaxenvs.errors import ParameterError, RenderError

# In a process of its own, since one that has loaded EGL cannot import Triton.
PROGRAM = """
import jax, mujoco, numpy as np
from dm_control import suite
import jaxenvs
from jaxenvs.envs.mujoco import Renderer
from jaxenvs.physics import c, models

def check(domain, task, camera):
    renderer = Renderer(height=48, width=64, camera=camera)
    envs = jaxenvs.make_vec(f"dm_control/{domain}-{task}", 2, renderer=renderer)
    env = envs.env.unwrapped
    keys = jax.random.split(jax.random.key(1), 2)
    states, _ = jax.jit(jax.vmap(env.reset))(keys)
    actions = jax.vmap(env.action_space.sample)(keys)
    states, _ = jax.jit(jax.vmap(env.step))(states, actions, keys)
    pictures = np.asarray(jax.jit(jax.vmap(env.render))(states))
    assert pictures.shape == (2, 48, 64, 3)
    assert (pictures[0] != pictures[1]).any()
    for i in range(2):
        state = jax.tree.map(lambda x: np.asarray(x[i]), states)
        np.testing.assert_array_equal(env.render(state), pictures[i])
        reference = suite.load(domain, task)
        reference.reset()  # which changes the model
        physics = reference.physics
        models.change(physics.model.ptr, state.drawn)
        c.restore(env.unwrapped._original, physics.data.ptr, state)
        physics.forward()
        if "hfield_data" in state.drawn:
            with physics.contexts.gl.make_current() as context:
                canvas = physics.contexts.mujoco.ptr
                context.call(mujoco.mjr_uploadHField, physics.model.ptr, canvas, 0)
        expected = physics.render(48, 64, camera_id=camera)
        np.testing.assert_array_equal(pictures[i], expected)

def check_that_changes_go(renderer=Renderer(32, 32, camera=0)):
    env = jaxenvs.make("dm_control/cheetah-run", renderer=renderer).unwrapped
    state, _ = env.reset(jax.random.key(0))
    before = np.asarray(env.render(state))
    wide = env.replace(physics={"geom_size": 2 * env._original.geom_size})
    assert (np.asarray(wide.render(wide.reset(jax.random.key(0))[0])) != before).any()
    np.testing.assert_array_equal(env.render(state), before)

check_that_changes_go()
check("cheetah", "run", 0)
check("reacher", "hard", "fixed")
check("quadruped", "escape", -1)
"""


@pytest.mark.skipif(not ctypes.util.find_library("EGL"), reason="there is no EGL")
def test_pictures_equal_those_of_dm_control():
    pytest.importorskip("dm_control")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=os.environ | {"MUJOCO_GL": "egl"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr


def test_machines_that_cannot_draw_are_an_error(monkeypatch):
    def refuse(*_):
        raise OSError("no display")

    monkeypatch.setattr(mujoco, "GLContext", refuse, raising=False)
    env = jaxenvs.make("InvertedPendulum-v5", renderer=Renderer(8, 8)).unwrapped
    state, _ = env.reset(jax.random.key(0))
    with pytest.raises(RenderError, match=r"no display.*MUJOCO_GL"):
        env.render(state)


def test_wrong_cameras_and_sizes_are_errors():
    with pytest.raises(ParameterError, match=r'camera=\'tracks\'.*0 \(\'track\'\).*"track"'):
        jaxenvs.make("Ant-v5", renderer=Renderer(camera="tracks"))
    with pytest.raises(ParameterError, match=r"camera=0.*none"):
        jaxenvs.make("InvertedPendulum-v5", renderer=Renderer(camera=0))
    with pytest.raises(ParameterError, match="Renderer got height=0"):
        Renderer(height=0)
