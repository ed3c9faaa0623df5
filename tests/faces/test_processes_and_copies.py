"""Copies of environments, pickling, and forked processes."""

import copy
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs import wrappers
from jaxenvs.errors import PoolError

FORKS = """
import os, signal, numpy as np

def in_child(check):
    pid = os.fork()
    if not pid:
        signal.alarm(30)
        try:
            check()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def refused(call):
    try:
        call()
    except jaxenvs.errors.ForkError as error:
        assert "forkserver" in str(error)
    else:
        raise AssertionError("not refused")

import jaxenvs
def works():
    assert jaxenvs.make_gym("CartPole-v1", 2).reset(seed=0)[0].shape == (2, 4)
in_child(works)  # JAX has not been used yet
import jax
jax.numpy.zeros(2)
make = lambda: jaxenvs.make_gym("CartPole-v1", 2)
in_child(lambda: refused(make))
in_child(lambda: refused(lambda: jaxenvs.make_dm("CartPole-v1")))
envs, single, pending = make(), jaxenvs.make_gym("CartPole-v1"), make()
envs.reset(seed=0), single.reset(seed=0), pending.reset(seed=0)
action = np.zeros(2, int)
envs.step(action), pending.step_async(action)
def all_refuse():
    for call in (
        lambda: envs.step(action), lambda: envs.step_async(action), lambda: envs.reset(),
        lambda: envs.set_attr("gravity", 1.0), lambda: single.step(0), make, pending.step_wait,
        lambda: envs.runner.render([0]),
    ):
        refused(call)
    envs.close(), pending.close()
in_child(all_refuse)
envs.step(action), pending.step_wait(), single.step(1)  # the parent process continues
"""


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.skipif(sys.platform == "win32", reason="nothing forks there")
def test_every_call_raises_in_a_forked_process():
    done = run(FORKS)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="others do not fork by default")
def test_gymnasium_s_forked_workers_raise_the_error():
    done = run(
        "import gymnasium, jaxenvs\n"
        "one = lambda: jaxenvs.make_gym('CartPole-v1')\n"
        "gymnasium.vector.AsyncVectorEnv([one] * 2, context='fork')"
    )
    assert done.returncode != 0 and "ForkError" in done.stderr and "forkserver" in done.stderr


AGAIN = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda env: pickle.loads(pickle.dumps(env)),
}


def observations(env, num_envs):
    """Returns the results of a reset and a step."""
    outs = [env.reset(), env.step(1 if num_envs is None else np.ones(num_envs, int))]
    outs = [getattr(out, "observation", out) for out in outs]
    return np.array([out[0] if isinstance(out, tuple) else out for out in outs])


@pytest.mark.parametrize("way", AGAIN)
@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("face", ["gymnasium", "gym", "dm"])
def test_a_copy_is_a_new_equal_environment(face, num_envs, way):
    options = {"seed": 4, "gravity": 3.0, "wrappers": [wrappers.NormalizeReward], "device": "cpu"}
    if face == "dm":
        env = jaxenvs.make_dm("CartPole-v1", num_envs, **options)
    else:
        env = jaxenvs.make_gym("CartPole-v1", num_envs, api=face, **options)
    expected = observations(env, num_envs)
    other = AGAIN[way](env)
    assert type(other) is type(env) and other.env.parameters == env.env.parameters
    env.close()
    np.testing.assert_array_equal(observations(other, num_envs), expected)


@pytest.mark.parametrize("way", AGAIN)
def test_a_copy_has_the_current_parameters_and_no_state(way):
    env = jaxenvs.make_gym("CartPole-v1", 2, render_mode="rgb_array", validate=False)
    env.reset(seed=0)
    env.set_attr("gravity", [5.0, 6.0])
    other = AGAIN[way](env)
    assert other.get_attr("gravity") == (5.0, 6.0)
    assert other.render_mode == "rgb_array" and other.spec == env.spec
    with pytest.raises(gymnasium.error.ResetNeeded):
        other.step(np.ones(2, int))
    env.step(np.ones(2, int))


@pytest.mark.parametrize("way", AGAIN)
def test_environments_over_a_pool_cannot_be_copied(way):
    env = jaxenvs.make_gym("gymnasium/CartPole-v1", 2, api="gym", backend="serial")
    with pytest.raises(PoolError, match="make_pool"):
        AGAIN[way](env)
    env.close()
