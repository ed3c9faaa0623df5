"""Claims of the troubleshooting page and of the table of faults that no other test checks."""

import contextlib
import functools
import os
import re
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import errors
from jaxenvs._cpu import kernels, threefry
from jaxenvs._cpu.chunks import choose_chunk
from jaxenvs.envs.classic_control import CartPole
from jaxenvs.faces import _programs
from jaxenvs.testing import CountingEnv
from jaxenvs.training import DQN, QNetwork, make_train
from tests.bridge.envs import Counter

ROOT = Path(__file__).resolve().parent.parent
KEY = jax.random.key(0)

PAGES = ("troubleshooting.md", "bridge/faults.md")


def text_of(page):
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_errors_that_the_page_names_exist(page):
    named = set(re.findall(r"`(?:jaxenvs\.errors\.)?([A-Z]\w+Error)`", text_of(page)))
    assert named and all(issubclass(getattr(errors, name), Exception) for name in named)


def test_jax_has_the_functions_that_the_pages_name():
    names = re.findall(r"`((?:jax|jnp|lax)\.[\w.]+)", "".join(map(text_of, PAGES)))
    for name in names:
        root, *path = name.split(".")
        functools.reduce(getattr, path, {"jax": jax, "jnp": jnp, "lax": jax.lax}[root])
    assert len(names) > 5


# Installation


def test_gymnasium_without_jaxenvs_does_not_know_its_ids(monkeypatch):
    for id in [id for id in gymnasium.registry if id.startswith("jaxenvs/")]:
        monkeypatch.delitem(gymnasium.registry, id)
    with pytest.raises(gymnasium.error.NamespaceNotFound, match="jaxenvs"):
        gymnasium.make("jaxenvs/CartPole-v1")


def test_a_step_that_is_not_one_kernel_has_the_same_results(monkeypatch, capfd):
    class Sorted(CartPole):
        def step(self, state, action, key):
            state, timestep = super().step(state, action, key)
            return state, timestep.replace(observation=jnp.sort(timestep.observation))

    def results():
        with contextlib.closing(jaxenvs.make_gym(Sorted(), 2)) as envs:
            envs.reset(seed=0)
            return envs.step(np.ones(2, int))[0].copy()

    expected = results()
    _programs._cached_programs.cache_clear()
    monkeypatch.setattr(kernels, "_may_be_one_kernel", lambda jaxpr: True)
    np.testing.assert_allclose(results(), expected, rtol=1e-5)
    assert "LLVM compilation error: Symbols not found" in capfd.readouterr().err


def test_variables_of_jax_have_no_effect_once_it_has_started(monkeypatch):
    before = jax.devices()
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count={len(before) + 1}")
    monkeypatch.setenv("JAX_PLATFORMS", "no_such_platform")
    assert jax.devices() == before
    assert float(jax.jit(lambda x: x + 1)(np.float32(1))) == 2


# Slow programs


def test_compiled_programs_are_kept_in_the_cache_folder():
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert jax.config.jax_compilation_cache_dir == str(folder)

    def kept_for_the_next_start(x):
        return x + 1

    jax.jit(kept_for_the_next_start)(np.float32(1))
    assert any(folder.glob("jit_kept_for_the_next_start-*-cache"))


def test_log_compiles_shows_what_is_compiled_again(caplog):
    add = jax.jit(lambda x, static: x + static, static_argnums=1)

    def compiles(*args):
        caplog.clear()
        with jax.log_compiles():
            add(*args)
        return "Compiling" in caplog.text

    pair = np.zeros(2, np.float32)
    assert compiles(pair, 1) and not compiles(pair + 1, 1)
    for other in (np.zeros(3, np.float32), 1), (np.zeros(2, np.int32), 1), (pair, 2):
        assert compiles(*other)
    assert hasattr(jax.config, "jax_log_compiles")  # the variable JAX_LOG_COMPILES


@pytest.mark.parametrize("run", [jaxenvs.rollout, jaxenvs.evaluate])
def test_a_new_function_as_policy_is_compiled_again(run):
    env, traces = jaxenvs.vectorize(CountingEnv(lengths=(1,)), 2), []
    policies = [lambda *_: traces.append(1) or jnp.zeros(2, jnp.int32) for _ in range(2)]
    counts = []
    for policy in (policies[0], policies[0], policies[1]):
        run(env, policy, 1, KEY)
        counts.append(len(traces))
    assert 0 < counts[0] == counts[1] < counts[2]


def test_a_parameter_of_another_type_compiles_again():
    env, traces = jaxenvs.make("Pendulum-v1"), []
    read = jax.jit(lambda env: traces.append(1) or env.parameters["g"] * 2)
    for value, count in ((1.0, 1), (2.0, 1), (jnp.float32(3), 2), (jnp.float32(4), 2)):
        assert float(read(env.replace(g=value))) == 2 * value and len(traces) == count


def test_an_unjitted_step_dispatches_many_operations():
    env = jaxenvs.make_vec("CartPole-v1", 2)
    state, _ = jax.eval_shape(env.reset, KEY)

    def dispatched(step):
        return len(jax.make_jaxpr(step)(state, np.zeros(2, np.int32), KEY).eqns)

    assert dispatched(env.step) > 20 and dispatched(jax.jit(env.step)) == 1


def test_an_update_reuses_the_replay_memory_only_if_donated():
    dqn, network = DQN(learning_starts=0, batch_size=4), QNetwork(hidden_sizes=(2,))
    train = make_train(
        "CartPole-v1", dqn, actor=network, num_envs=2, unroll_length=1, total_steps=8
    )
    state = jax.eval_shape(train.init, KEY)
    rows, *_ = state.storage.steps.observation.shape
    assert rows == dqn.default_storage().capacity // 2
    memory = rf"%arg\d+: tensor<{rows}x2x4xf32> {{tf.aliasing_output"
    for donated in ((), (0,)):
        text = jax.jit(train.update, donate_argnums=donated).lower(state).as_text()
        assert len(re.findall(memory, text)) == 2 * len(donated)  # the first and the next


def test_xla_has_the_option_that_turns_ynn_off():
    # XLA refuses options that it does not know.
    option = {"xla_cpu_experimental_ynn_fusion_type": ""}
    jax.jit(lambda x: x + 1).lower(np.float32(1)).compile(compiler_options=option)


def test_only_cpus_reset_in_chunks_by_default(monkeypatch):
    assert choose_chunk(1024) == 64
    for platform in ("gpu", "tpu"):
        monkeypatch.setattr(jax, "default_backend", lambda platform=platform: platform)
        assert choose_chunk(1024) is None


# Wrong or surprising numbers


def test_debug_key_reuse_sees_calls_of_jax_random_only(monkeypatch):
    monkeypatch.setattr(threefry, "should_unroll", lambda: True)  # as outside of tests
    batch = jaxenvs.vectorize(CountingEnv(), 2)
    space = jaxenvs.spaces.Discrete(2)
    for draw, is_seen in (
        (jax.random.bits, True),
        (jax.random.split, True),
        (space.sample, False),
        (batch.reset, False),
    ):
        expected = pytest.raises(jax.errors.KeyReuseError) if is_seen else contextlib.nullcontext()
        with jax.debug_key_reuse(True), expected:
            jax.jit(lambda key, draw=draw: (draw(key), draw(key)))(jax.random.key(0))


def test_debug_nans_stops_where_no_episode_has_ended():
    env = jaxenvs.vectorize(CountingEnv(lengths=(9,)), 2)
    # The option is `jax_debug_nans`.
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        jaxenvs.rollout(env, None, 0, KEY, outputs="statistics")


# Processes and hosted environments


@pytest.mark.parametrize("backend", ["serial", "thread", "asyncio", "process"])
def test_only_worker_processes_are_other_processes(backend):
    with jaxenvs.make_pool(Counter, 1, backend=backend) as pool:
        assert (pool.call("process")[0] == os.getpid()) == (backend != "process")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="on Linux only")
def test_programs_hold_memory_mappings_until_they_are_dropped():
    def count():
        return Path("/proc/self/maps").read_bytes().count(b"\n")

    before, programs = count(), []
    for i in range(20):
        programs.append(jax.jit(lambda x, i=i: jnp.cumsum(x) * i))
        programs[-1](np.zeros(3, np.float32))
    held = count()
    assert held > before + 20
    for program in programs:
        program.clear_cache()  # `jax.clear_caches` would drop those of other tests, too
    assert count() < held - 20
