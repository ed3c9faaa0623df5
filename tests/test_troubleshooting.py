"""Each row of the page on troubleshooting and of the table of faults has a test, here or elsewhere.

`ROWS` names the tests of each row.  A new row, or one with another first cell, needs an entry.
"""

import contextlib
import functools
import os
import re
import tomllib
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import errors
from jaxenvs._cpu import threefry
from jaxenvs._cpu.chunks import choose_chunk
from jaxenvs.envs.classic_control import CartPole
from jaxenvs.faces import _programs
from jaxenvs.testing import CountingEnv
from jaxenvs.training import DQN, QNetwork, make_train
from tests.bridge.envs import Counter

ROOT = Path(__file__).resolve().parent.parent
KEY = jax.random.key(0)

HERE = "test_troubleshooting.py"
FAULTS, LIFETIMES, XLA = (f"bridge/test_{name}.py" for name in ("faults", "lifetimes", "xla"))
ODD_MOMENTS, NATIVE_PART = "bridge/test_odd_moments.py", "bridge/test_native_part.py"
CORE, ROLLOUTS, VECTORIZE = "test_core.py", "test_rollouts.py", "vector/test_vectorize.py"
FORKS = "faces/test_processes_and_copies.py"

# Page -> first cell of a row -> (file, test), ...
ROWS = {
    "troubleshooting.md": {
        "`MissingExtraError`": [
            (
                "faces/test_missing_extras.py",
                "test_a_missing_library_raises_an_error_that_names_the_extra",
            ),
            (HERE, "test_extras_that_messages_name_exist"),
        ],
        '`gymnasium.make("jaxenvs/CartPole-v1")` does not know the id': [
            (HERE, "test_gymnasium_without_jaxenvs_does_not_know_its_ids"),
            (
                "faces/test_gymnasium_registration.py",
                "test_import_registers_every_id_without_importing_jax",
            ),
            (
                "faces/test_gymnasium_registration.py",
                "test_an_id_that_names_the_module_needs_no_import",
            ),
        ],
        "JAX does not see the GPU": [(HERE, "test_the_extra_cuda_is_that_of_jax")],
        "a log message says that the host bridge runs without a part": [
            (NATIVE_PART, "test_missing_library_is_logged_once_with_what_is_lost"),
            (NATIVE_PART, "test_pool_without_the_native_part_has_another_backend"),
            (NATIVE_PART, "test_every_interface_works_without_the_native_part"),
        ],
        "`make_gym` prints `LLVM compilation error: Symbols not found`": [
            (HERE, "test_a_step_that_is_not_one_kernel_has_the_same_results"),
        ],
        "a flag in `XLA_FLAGS` or `JAX_PLATFORMS` has no effect": [
            (HERE, "test_variables_of_jax_have_no_effect_once_it_has_started"),
        ],
        "the first call takes seconds": [
            (HERE, "test_compiled_programs_are_kept_in_the_cache_folder"),
        ],
        "every call compiles again": [(HERE, "test_log_compiles_shows_what_is_compiled_again")],
        "... with `rollout` or `evaluate`": [
            (HERE, "test_a_new_function_as_policy_is_compiled_again"),
            (ROLLOUTS, "test_policy_with_new_weights_is_not_recompiled"),
        ],
        "... after `env.replace`": [
            (HERE, "test_a_parameter_of_another_type_compiles_again"),
            (CORE, "test_only_static_changes_recompile"),
            (ROLLOUTS, "test_policy_is_compiled_once_for_all_env_parameters"),
        ],
        "... with other batch sizes": [(HERE, "test_log_compiles_shows_what_is_compiled_again")],
        "stepping from a Python loop is slow": [
            (HERE, "test_an_unjitted_step_dispatches_many_operations"),
        ],
        "`train.update` is slow with DQN, SAC, or TD3": [
            (HERE, "test_an_update_reuses_the_replay_memory_only_if_donated"),
            (
                "training/test_assembly.py",
                "test_update_accepts_a_donated_state_and_reports_metrics",
            ),
        ],
        "a training run of several seeds with a GRU takes gigabytes of memory on a CPU": [
            (HERE, "test_xla_has_the_option_that_turns_ynn_off"),
        ],
        "a pool is slower than expected": [
            ("bridge/test_tuning.py", "test_tune_command_shows_every_backend_and_saves_the_best"),
            ("bridge/test_tuning.py", "test_auto_uses_and_logs_the_tuned_result"),
        ],
        "a step on a GPU spends its time in `reset`": [
            (HERE, "test_only_cpus_reset_in_chunks_by_default"),
            ("vector/test_autoreset.py", "test_chunked_resets_equal_resetting_all"),
        ],
        "two draws are equal, or instances move in step": [
            (HERE, "test_debug_key_reuse_sees_calls_of_jax_random_only"),
            ("testing/test_check_env.py", "test_a_broken_environment_is_reported"),
        ],
        "`RandomKeyError`": [
            (CORE, "test_keys_that_are_not_one_key_are_refused"),
            (CORE, "test_key_as_the_first_argument_names_the_order"),
            (VECTORIZE, "test_reset_accepts_one_typed_or_raw_key"),
        ],
        "`StateError`": [
            (CORE, "test_states_of_other_environments_are_refused"),
            (CORE, "test_state_with_the_fields_of_another_is_refused"),
        ],
        "means and returns are NaN": [
            (ROLLOUTS, "test_statistics_are_nan_where_nothing_finished"),
            (
                "training/test_train_program.py",
                "test_metrics_count_the_episodes_that_ended_and_no_others",
            ),
        ],
        "`jax_debug_nans` stops in a training run": [
            (HERE, "test_debug_nans_stops_where_no_episode_has_ended"),
        ],
        "NaN in observations or losses": [
            ("testing/test_check_env.py", "test_a_broken_environment_is_reported"),
            (FAULTS, "test_invalid_step_result_is_an_error_of_its_environment"),
            (FAULTS, "test_without_validation_nan_passes"),
        ],
        "results of two programs differ in the last digits": [
            (
                "contract/test_combinations.py",
                "test_mesh_gives_the_same_results_in_every_mode",
            ),
        ],
        "all instances finish in the same step": [
            (VECTORIZE, "test_staggered_episodes_end_at_different_times"),
        ],
        "the mean return of a short rollout is too low": [
            (ROLLOUTS, "test_rollout_statistics_are_biased_and_evaluate_is_not"),
        ],
        "a learner does not learn where time limits cut episodes": [
            ("training/test_train_program.py", "test_time_limit_does_not_change_the_learned_value"),
            (
                "training/test_train_program.py",
                "test_only_truncated_steps_bootstrap_from_final_observation",
            ),
        ],
        "`ActionError`": [
            (CORE, "test_actions_outside_of_the_space_are_refused"),
            (VECTORIZE, "test_actions_with_wrong_shape_or_dtype_are_rejected"),
        ],
        "`ForkError`, or a program that hangs after a fork": [
            (FORKS, "test_every_call_raises_in_a_forked_process"),
            (FORKS, "test_gymnasium_s_forked_workers_raise_the_error"),
        ],
        "a pool does not return": [
            (FAULTS, "test_hanging_environment_is_named_and_does_not_delay_close"),
        ],
        "`WorkerError`": [(FAULTS, "test_exception_names_its_environment_and_has_the_traceback")],
        "the whole program crashes with an environment": [
            (HERE, "test_only_worker_processes_are_other_processes"),
            (FAULTS, "test_dead_worker_is_replaced_and_others_keep_their_results"),
        ],
        "Ctrl-C does not stop at once": [
            (
                "training/test_signals.py",
                "test_stop_request_notes_first_signal_and_passes_on_second",
            ),
            ("cli/test_train.py", "test_killed_or_stopped_run_resumes_bit_for_bit"),
        ],
        "`StaleStateError`, in the text of a `jax.errors.JaxRuntimeError`": [
            (XLA, "test_an_old_state_is_refused_and_the_pool_goes_on"),
        ],
        "`AlreadyPendingError`, `NothingPendingError`": [
            (FAULTS, "test_a_step_is_begun_once_and_waited_for_once"),
            (FAULTS, "test_an_environment_at_work_cannot_be_sent_again"),
        ],
        "an error says that a `HostEnv` was called under `vmap`": [
            (XLA, "test_vmap_is_refused_with_what_to_do_instead"),
        ],
        "worker processes remain after `del env`": [
            (XLA, "test_program_that_is_kept_holds_the_workers_until_close"),
            (XLA, "test_dropped_host_env_ends_the_workers_of_its_pool"),
            (LIFETIMES, "test_a_caller_may_end_without_closing"),
        ],
        "a segmentation fault after thousands of compilations in one process": [
            (HERE, "test_programs_hold_memory_mappings_until_they_are_dropped"),
        ],
    },
    "bridge/faults.md": {
        "an environment raises in `step` or `reset`": [
            (FAULTS, "test_exception_names_its_environment_and_has_the_traceback"),
        ],
        "an environment raises in `render`, or in a method called by `call`": [
            (FAULTS, "test_an_exception_in_render_names_the_environment"),
            (FAULTS, "test_an_exception_in_a_method_leaves_the_environment"),
        ],
        "a constructor raises": [
            (FAULTS, "test_an_exception_in_a_constructor_names_the_environment"),
        ],
        "a worker process dies": [
            (FAULTS, "test_dead_worker_is_replaced_and_others_keep_their_results"),
            (FAULTS, "test_a_worker_that_dies_again_and_again_is_given_up"),
            (FAULTS, "test_an_environment_that_cannot_be_made_anew_is_an_error"),
            (XLA, "test_worker_killed_inside_a_program_is_replaced_and_flagged"),
        ],
        "an environment hangs": [
            (FAULTS, "test_hanging_environment_is_named_and_does_not_delay_close"),
            (FAULTS, "test_slow_environment_can_be_waited_for_after_a_timeout"),
            (FAULTS, "test_hanging_environment_is_restarted"),
            (ODD_MOMENTS, "test_environment_hanging_in_every_reset_is_given_up"),
        ],
        "a result has the wrong shape or kind of dtype, or contains NaN": [
            (FAULTS, "test_invalid_step_result_is_an_error_of_its_environment"),
            (FAULTS, "test_float64_observation_is_accepted_for_a_float32_space"),
            (FAULTS, "test_integers_that_the_space_cannot_hold_are_refused"),
            (FAULTS, "test_observation_outside_its_space_warns_raises_or_passes"),
            (FAULTS, "test_first_three_observations_are_compared_with_the_space"),
        ],
        "an action is outside a discrete space, or NaN": [
            (FAULTS, "test_bad_actions_are_refused_and_nothing_is_stepped"),
            (FAULTS, "test_action_values_are_validated"),
        ],
        "a constructor hangs": [
            (LIFETIMES, "test_ctrl_c_ends_make_pool_while_a_constructor_hangs"),
            (FAULTS, "test_a_replacement_that_hangs_in_its_constructor_is_given_up"),
        ],
        "`render`, or a method called by `call`, hangs": [
            (FAULTS, "test_a_method_that_hangs_is_a_timeout"),
            (ODD_MOMENTS, "test_a_call_that_hangs_is_made_once"),
        ],
        "an info is neither a dict nor None": [
            (FAULTS, "test_an_info_that_is_no_dict_is_an_error_of_its_environment"),
            (FAULTS, "test_an_info_may_be_none"),
            (FAULTS, "test_an_info_that_cannot_be_unpickled_is_left_out"),
            ("bridge/test_pool.py", "test_infos_are_merged_with_masks"),
        ],
        "your program ends or is killed": [
            (LIFETIMES, "test_a_caller_may_end_without_closing"),
            (LIFETIMES, "test_a_killed_caller_leaves_no_process"),
        ],
    },
}


def rows_of(page):
    """Returns the rows of the page's tables, as lists of cells."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    tables = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in tables if row[0] not in ("symptom", "event")]


@functools.cache
def source_of(file, test):
    """Returns the source of a test with its decorators, or ""."""
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    blocks = text.split("\n\n\n")
    return next((block for block in blocks if f"\ndef {test}(" in f"\n{block}"), "")


@pytest.mark.parametrize("page", ROWS)
def test_every_row_has_tests_that_exist(page):
    assert [row[0] for row in rows_of(page)] == [*ROWS[page]]
    named = [each for tests in ROWS[page].values() for each in tests]
    assert [each for each in named if not source_of(*each)] == []


@pytest.mark.parametrize("page", ROWS)
def test_errors_in_the_tables_exist(page):
    text = " ".join(" ".join(row) for row in rows_of(page))
    named = set(re.findall(r"`(?:jaxenvs\.errors\.)?([A-Z]\w+Error)`", text))
    assert named and all(issubclass(getattr(errors, name), Exception) for name in named)


@pytest.mark.parametrize("page", ROWS)
def test_code_in_first_cells_occurs_in_the_tests_of_the_row(page):
    for first, tests in ROWS[page].items():
        sources = "".join(source_of(*each) for each in tests)
        quoted = re.findall(r"`(.+?)`", first)
        assert [code for code in quoted if code not in sources] == [], first


def test_jax_has_the_functions_that_the_tables_name():
    text = " ".join(" ".join(row) for page in ROWS for row in rows_of(page))
    names = re.findall(r"`((?:jax|jnp|lax)\.[\w.]+)", text)
    for name in names:
        root, *path = name.split(".")
        functools.reduce(getattr, path, {"jax": jax, "jnp": jnp, "lax": jax.lax}[root])
    assert len(names) > 5


# Installation


def extras():
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["optional-dependencies"]


def test_extras_that_messages_name_exist():
    text = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("jaxenvs/**/*.py"))
    named = set(re.findall(r'missing_extra\([^()]*"(\w+)"\)', text))
    assert len(named) > 15 and named <= set(extras())
    assert "jaxenvs[train]" in str(errors.missing_extra("Training", "optax", "train"))


def test_gymnasium_without_jaxenvs_does_not_know_its_ids(monkeypatch):
    for id in [id for id in gymnasium.registry if id.startswith("jaxenvs/")]:
        monkeypatch.delitem(gymnasium.registry, id)
    with pytest.raises(gymnasium.error.NamespaceNotFound, match="jaxenvs"):
        gymnasium.make("jaxenvs/CartPole-v1")


def test_the_extra_cuda_is_that_of_jax():
    assert [each.partition(">")[0] for each in extras()["cuda"]] == ["jax[cuda]"]


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
    monkeypatch.setattr(_programs, "may_be_one_kernel", lambda jaxpr: True)
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
