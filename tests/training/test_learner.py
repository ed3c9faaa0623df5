"""A training run under way: steps, checkpoints, signals, evaluation, and parts that change."""

import contextlib
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxenvs
from jaxenvs.errors import TrainingError, UnknownParameterError
from jaxenvs.rollouts import Evaluation
from jaxenvs.training import (
    A2C,
    DQN,
    PPO,
    ActorCritic,
    DiscountedReturns,
    Learner,
    QNetwork,
    Replay,
    Scheme,
    VTrace,
    central,
    checkpoint,
    evaluation,
    make_train,
    remote,
    restore,
    save,
)
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.logs import read_metrics
from jaxenvs.training.schemes import executors, sources, workers
from tests.ids import every_nth

ID = "CartPole-v1"
STEPS = 1000  # where the end does not matter: with the same end, trainings share programs
ROOT = Path(__file__).parents[2]


def scheme(env=ID, **parts):
    small = {
        "algorithm": A2C(),
        "actor": ActorCritic(hidden_sizes=(8,)),
        "storage": DiscountedReturns(),
    }
    return Scheme(**{"env": env, "num_envs": 4, "unroll_length": 4, **small, **parts})


def arrays(tree):
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def same(tree, other):
    for x, y in zip(arrays(tree), arrays(other), strict=True):
        np.testing.assert_array_equal(x, y)


DQN_PARTS = {
    "algorithm": DQN(learning_starts=16, batch_size=8),
    "actor": QNetwork(hidden_sizes=(8,)),
    "storage": Replay(capacity=64),
}


def state_of(learner):
    return learner._executor.learner_state


def test_learner_counts_steps_and_refuses_to_exceed_the_total():
    with Learner(scheme(), total_steps=75, report_every=2) as learner:
        assert not learner.done() and learner.get_metrics() == {}
        rows, seconds = [], []
        while not learner.done():
            begin = time.perf_counter()
            rows.append(learner.step())
            seconds.append(time.perf_counter() - begin)
        # Five updates, the last of which completes what 75 steps begin; two are reported as one.
        assert [row["steps"] for row in rows] == [32, 64, 80]
        assert rows[-1] == learner.get_metrics()
        compiled, speed, last = (row["steps_per_second"] for row in rows)
        assert 32 / seconds[1] <= speed < 64 / seconds[1]
        assert np.isnan([compiled, last]).all()  # the last row is a program of its own
        assert rows[0]["seconds"] < rows[2]["seconds"]
        with pytest.raises(TrainingError, match="larger total_steps"):
            learner.step()


@pytest.mark.parametrize(
    "parts", every_nth(2, [{}, {"gradients": remote(2)}]), ids=["one", "two devices"]
)
def test_a_restored_run_goes_on_bit_for_bit(tmp_path, parts):
    kinds = {"log_dir": tmp_path, "total_steps": STEPS, "seed": 3, "report_every": 2}
    with Learner(scheme(**parts), **kinds) as learner:
        learner.step()
        learner.save()
        rows = [learner.step() for _ in range(2)]
        expected = jax.device_get(arrays(state_of(learner)))
    with Learner(scheme(**parts), **kinds, resume=True) as learner:
        assert learner.updates == 2
        again = [learner.step() for _ in range(2)]
        same(state_of(learner), expected)
        assert [row["steps"] for row in again] == [row["steps"] for row in rows]
        assert again[0]["policy_loss"] == rows[0]["policy_loss"]
    # The rows after the checkpoint came again, and took the place of those that were there.
    first, *others = read_metrics(tmp_path)["step"]
    assert first == rows[0]["steps"] / 2 and others == [row["steps"] for row in rows]


@pytest.fixture
def compilations():
    """The names of the programs that were compiled so far."""
    found = []

    def listen(event, _, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(details.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize(
    ("seed", "parts"),
    [
        (0, {}),
        ([0, 1], {}),
        (0, {"gradients": remote(2)}),
        (0, {"collection": remote(2)}),
        (0, {"gradients": remote(2, sync=False), "collection": remote(1)}),
    ],
    ids=["one", "seeds", "devices", "collectors", "gradient workers"],
)
def test_a_resumed_run_runs_the_programs_of_the_first(tmp_path, compilations, seed, parts):
    kinds = {"log_dir": tmp_path, "total_steps": STEPS, "seed": seed}
    with Learner(scheme(**parts), **kinds) as learner:
        learner.step()
        learner.step()
        learner.save()
    assert compilations
    with Learner(scheme(**parts), **kinds, resume=True) as learner:
        compilations.clear()
        learner.step()
        learner.step()
    assert compilations == []
    folder = tmp_path if seed == 0 else tmp_path / "seed_1"
    rates = read_metrics(folder)["steps_per_second"]
    assert np.isnan(rates).tolist() == [True, False] * 2  # the rates of rows that compile


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"num_envs": 8}),
        ({}, {"unroll_length": 8}),
        ({"gradients": remote(2)}, {"gradients": remote(4)}),
        ({}, {"gradients": remote(2)}),
        ({"gradients": remote(2)}, {"collection": remote(2)}),
        (DQN_PARTS, {**DQN_PARTS, "num_envs": 8}),
    ],
    ids=["instances", "length", "devices", "to devices", "to workers", "memory"],
)
def test_a_run_goes_on_with_other_instances_or_devices(tmp_path, before, after):
    with Learner(scheme(**before), total_steps=STEPS, log_dir=tmp_path) as learner:
        rows = [learner.step() for _ in range(4)]
        learner.save()
        saved = jax.device_get(state_of(learner).weights)
    is_lossless = "unroll_length" in after or "collection" in after
    words = "start again.*empty" if "storage" in after else "episodes start again"
    with contextlib.nullcontext() if is_lossless else pytest.warns(UserWarning, match=words):
        resumed = Learner(scheme(**after), total_steps=STEPS, log_dir=tmp_path, resume=True)
    with resumed:
        same(state_of(resumed).weights, saved)
        steps = resumed.step()["steps"]
        assert steps == rows[-1]["steps"] + resumed.steps_per_update
    logged = read_metrics(tmp_path)["step"]
    assert logged.tolist() == [row["steps"] for row in rows] + [steps]


def test_other_numbers_of_the_environment_do_not_compile(compilations):
    env = jaxenvs.make(ID)
    with Learner(scheme(env), total_steps=STEPS) as learner:
        learner.step()
        for gravity in (5.0, 6, np.float32(7), jnp.float32(8), jnp.asarray(9)):
            learner.replace(env=env.replace(gravity=gravity))
            compilations.clear()
            learner.step()
            assert compilations == [] and learner.env.parameters["gravity"] == gravity
        learner.update_algo_parameter("gamma", jnp.float32(0.5))
        learner.update_algo_parameter("learning_rate", np.float32(0.5))
        compilations.clear()
        learner.step()
        assert compilations == [] and learner.scheme.algorithm.gamma == 0.5


def test_a_run_with_workers_goes_on_with_its_weights_and_counts(tmp_path):
    parts = {"collection": remote(2, sync=False), "storage": VTrace()}
    with Learner(scheme(**parts), total_steps=STEPS, log_dir=tmp_path) as learner:
        for _ in range(3):
            learner.step()
        path = learner.save()
        saved = jax.device_get(state_of(learner).weights)
    with Learner(scheme(**parts), total_steps=80, log_dir=tmp_path, resume=True) as learner:
        same(state_of(learner).weights, saved)
        assert learner.step()["steps"] == 64
        begin = time.perf_counter()
        row = learner.step()
        # Sixteen steps, not all from the beginning of the run.
        taken = row["seconds"] - (begin - learner._started)
        assert row["steps_per_second"] <= 16 / taken * 1.5
        assert learner.done()  # at the new end
    assert path == tmp_path / "checkpoint"
    with pytest.raises(TrainingError, match="another training"):
        Learner(
            scheme(actor=ActorCritic(hidden_sizes=(9,)), **parts),
            total_steps=80,
            log_dir=tmp_path,
            resume=True,
        )
    with pytest.raises(TrainingError, match="no checkpoint"):
        Learner(scheme(**parts), total_steps=80, log_dir=tmp_path / "elsewhere", resume=True)


@pytest.mark.slow
def test_hosted_environments_restart_when_a_run_is_resumed(tmp_path):
    def make():
        return jaxenvs.make_vec("gymnasium/CartPole-v1", 4, num_workers=1)

    with Learner(scheme(make, num_envs=None), total_steps=160, log_dir=tmp_path) as learner:
        learner.step()
        learner.save()
        learner.restore()  # in the same process they go on
        assert learner.step()["steps"] == 32
        learner.replace(algorithm=A2C(learning_rate=0.01, minibatches=2))
        assert learner.step()["steps"] == 48
        pools = learner._executor.train.env.pools
    assert pools[0].closed
    hosted = scheme("gymnasium/CartPole-v1", algorithm=A2C(minibatches=2))
    with Learner(hosted, total_steps=160, log_dir=tmp_path, resume=True) as learner:
        assert learner.step()["steps"] == 32
        assert learner.evaluate(2).mean > 0
        evaluated_in = learner._evaluation_env.pools
    assert evaluated_in[0].closed


# --- checkpoints, whenever the process ends ---


def tree(number):
    return {"weights": jnp.full((64, 64), float(number)), "empty": jnp.zeros(0)}


def number_in(path):
    weights = np.asarray(restore(path, tree(0))["weights"])
    assert (weights == weights[0, 0]).all()
    return weights[0, 0]


def test_a_checkpoint_is_replaced_all_at_once(tmp_path, monkeypatch):
    path = tmp_path / "latest"
    save(path, tree(1))
    half = tmp_path / ".latest.new.orbax-checkpoint-tmp"  # what orbax leaves if it is killed
    half.mkdir()
    (half / "_METADATA").write_text("{")
    assert number_in(path) == 1
    rename = Path.rename

    class Killed(BaseException):
        pass

    for number, renames in ((2, 0), (3, 1)):

        def dies(self, target, left=[renames]):  # noqa: B006
            if not left[0]:
                raise Killed
            left[0] -= 1
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", dies)
        with pytest.raises(Killed):
            save(path, tree(number))
        monkeypatch.setattr(Path, "rename", rename)
        assert number_in(path) == {2: 1, 3: 3}[number]  # the old one or the new one
    assert not path.exists()
    (tmp_path / ".latest.new").rename(tmp_path / "away")
    assert number_in(path) == 1  # what it was to take the place of
    save(path, tree(4))
    (tmp_path / "away").rename(tmp_path / ".latest.new")
    assert number_in(path) == 4
    save(path, tree(5))
    assert number_in(path) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["latest"]


def test_a_damaged_checkpoint_is_no_checkpoint(tmp_path):
    path = tmp_path / "latest"
    path.mkdir()
    with pytest.raises(TrainingError, match="damaged"):
        number_in(path)
    path.rmdir()
    save(path, tree(1))
    files = [file.relative_to(path) for file in path.rglob("*") if file.is_file()]
    refused = 0
    for file, damage in itertools.product(files, ("gone", "empty", "other")):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        if damage == "gone":
            (copy / file).unlink()
        else:
            (copy / file).write_bytes(b"" if damage == "empty" else b"?" * 50)
        try:
            assert number_in(copy) == 1  # nobody needed that file
        except TrainingError as error:
            assert "damaged" in str(error) or "another training" in str(error), error  # noqa: PT017
            refused += 1
        shutil.rmtree(copy)
    assert refused >= len(files)


SAVES = """
import sys, jax.numpy as jnp
from jaxenvs.training import save
for number in range(1, 10**6):
    save(sys.argv[1], {"weights": jnp.full((64, 64), float(number)), "empty": jnp.zeros(0)})
    print(number, flush=True)
"""

TRAINS = """
import sys
from jaxenvs.training import A2C, ActorCritic, Learner, Scheme, remote
parts = {"collection": remote(2, sync=False)} if sys.argv[2] == "workers" else {}
small = {"algorithm": A2C(), "actor": ActorCritic(hidden_sizes=(8,))}
scheme = Scheme(env="CartPole-v1", num_envs=4, unroll_length=4, **small, **parts)
with Learner(scheme, total_steps=10**9, log_dir=sys.argv[1]) as learner:
    print("listens", flush=True)
    while not learner.done():
        print(learner.step()["steps"], flush=True)
"""


@pytest.mark.slow  # three processes that import JAX
def test_signals_save_first_and_a_kill_leaves_a_whole_checkpoint(tmp_path):
    def start(code, *arguments):
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    fused, crew, saves = (tmp_path / name for name in ("fused", "workers", "saves"))
    processes = [start(TRAINS, fused, "fused"), start(TRAINS, crew, "workers"), start(SAVES, saves)]
    try:
        assert processes[0].stdout.readline() == "listens\n"
        time.sleep(0.3)
        processes[0].send_signal(signal.SIGINT)  # in the midst of compiling
        lines = [processes[1].stdout.readline() for _ in range(4)]
        assert lines[0] == "listens\n"
        processes[1].send_signal(signal.SIGTERM)
        lines = [processes[2].stdout.readline() for _ in range(3)]
        time.sleep(0.25)
        processes[2].send_signal(signal.SIGKILL)
        lines += processes[2].stdout  # `communicate` leaves out what was read ahead
        outputs = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [130, 143, -signal.SIGKILL]
    told = "jaxenvs: saving and stopping after this step; repeat to stop immediately\n"
    assert outputs[0][1] == outputs[1][1] == told
    for path, parts in ((fused, {}), (crew, {"collection": remote(2, sync=False)})):
        with Learner(scheme(**parts), total_steps=10**9, log_dir=path, resume=True) as learner:
            steps = read_metrics(path)["step"]
            assert learner.step()["steps"] == steps[-1] + 16
    said = int(lines[-1])
    assert number_in(saves) in (said, said + 1)


HOSTED_EVALUATION = """
import os, signal, sys, threading, time
from jaxenvs.training import A2C, ActorCritic, Learner, Scheme
small = {"algorithm": A2C(), "actor": ActorCritic(hidden_sizes=(8,))}
scheme = Scheme(env="Acrobot-v1", num_envs=4, unroll_length=4, **small)
hosted = {"evaluation_env": "gymnasium/Acrobot-v1", "evaluation_episodes": 20}
with Learner(scheme, total_steps=10**6, log_dir=sys.argv[1], **hosted) as learner:
    float(learner.evaluate().mean)
    begin = time.monotonic()
    float(learner.evaluate().mean)
    seconds = (time.monotonic() - begin) / 2
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    print(float(learner.evaluate().mean))
    time.sleep(seconds)
"""


@pytest.mark.slow
def test_ctrl_c_lets_an_evaluation_in_hosted_environments_finish(tmp_path):
    code = [sys.executable, "-c", HOSTED_EVALUATION, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(code, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130, done.stderr
    assert -500 <= float(done.stdout) < 0 and (tmp_path / "checkpoint").is_dir()


@pytest.fixture
def default_handlers():
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    now = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    for each in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(*each)
    assert now == [signal.default_int_handler, before[1]]


@pytest.mark.usefixtures("default_handlers")
def test_learner_dropped_unclosed_restores_signal_handling(tmp_path):
    learner = Learner(scheme(), total_steps=STEPS, log_dir=tmp_path)
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    del learner
    gc.collect()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("default_handlers")
def test_a_signal_after_the_last_step_is_not_lost_on_close(tmp_path, number):
    learner = Learner(scheme(), total_steps=16, log_dir=tmp_path)
    signal.raise_signal(number)
    with pytest.raises(SystemExit) as left:
        learner.close()
    assert left.value.code == 128 + number and (tmp_path / "checkpoint").is_dir()
    learner.close()  # it is closed


@pytest.mark.usefixtures("default_handlers")
def test_error_in_a_learner_takes_precedence_over_a_signal(tmp_path):
    def trained():
        with Learner(scheme(), total_steps=16, log_dir=tmp_path):
            signal.raise_signal(signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trained()


@pytest.mark.usefixtures("default_handlers")
def test_learners_may_be_closed_in_the_order_of_making(tmp_path):
    one, two = (Learner(scheme(), total_steps=16, log_dir=tmp_path / each) for each in "ab")
    one.close()
    two.close()


@pytest.mark.usefixtures("default_handlers")
def test_second_interrupt_in_a_program_is_a_keyboard_interrupt(tmp_path, monkeypatch):
    cancelled = jax.errors.JaxRuntimeError("CANCELLED: KeyboardInterrupt: interrupted.")
    is_asked = False

    def step(*_):
        if is_asked:
            signal.raise_signal(signal.SIGINT)
        raise cancelled

    with Learner(scheme(), total_steps=STEPS, log_dir=tmp_path) as learner:
        monkeypatch.setattr(learner._executor, "step", step)
        with pytest.raises(jax.errors.JaxRuntimeError):
            learner.step()
        is_asked = True
        with pytest.raises(KeyboardInterrupt):
            learner.step()
        learner._close()


# --- several seeds ---


PARTS = {"algorithm": PPO(epochs=1, minibatches=1), "unroll_length": 8, "num_envs": 2}
SEEDS = {"total_steps": 112, "report_every": 3}  # seven updates


def rows_of(learner):
    rows = []
    while not learner.done():
        rows.append(learner.step())
    return rows


@pytest.fixture(scope="module")
def two_seeds():
    """The rows of two seeds, and their last weights."""
    with Learner(scheme(**PARTS), seed=[5, 6], **SEEDS) as learner:
        rows = rows_of(learner)
        assert learner.compile_seconds > 0 and learner.run_seconds > 0
        assert learner.timed_steps == 48  # of the second of three rows
        return rows, jax.device_get(learner.learner_state.params)


@pytest.mark.slow
def test_seeds_train_together_and_the_last_row_may_be_shorter(two_seeds):
    rows, _ = two_seeds
    assert all(row["value_loss"].shape == (2,) for row in rows)
    assert [row["steps"].tolist() for row in rows] == [[48] * 2, [96] * 2, [112] * 2]


@pytest.mark.slow
def test_a_seed_learns_the_same_alone_and_beside_others(two_seeds):
    with Learner(scheme(**PARTS), seed=6, **SEEDS) as learner:
        rows = rows_of(learner)
        alone = jax.device_get(learner.learner_state.params)
    second = jax.tree.map(lambda x: x[1], two_seeds[1])
    chex.assert_trees_all_close(alone, second, rtol=1e-4, atol=1e-6)
    assert isinstance(rows[0]["value_loss"], float)


def test_a_learner_trains_as_the_pure_function_does():
    parts = {"actor": ActorCritic(hidden_sizes=(8,)), "storage": DiscountedReturns()}
    sizes = {"num_envs": 4, "unroll_length": 4, "total_steps": 48}
    train = make_train(ID, A2C(), **parts, **sizes)
    expected = jax.jit(train)(jax.random.key(2))
    with Learner(scheme(), total_steps=48, seed=2) as learner:
        rows = rows_of(learner)
        learned = jax.device_get(learner.learner_state.params)
    chex.assert_trees_all_close(learned, expected.learner_state.params, rtol=1e-4, atol=1e-6)
    entropies = [row["entropy"] for row in rows]
    np.testing.assert_allclose(entropies, expected.metrics["entropy"], rtol=1e-5)


@pytest.mark.slow
def test_seeds_go_on_from_their_checkpoints(two_seeds, tmp_path):
    logged = {"seed": [5, 6], "log_dir": tmp_path, **SEEDS}
    with Learner(scheme(**PARTS), **logged) as learner:
        rows = [learner.step()]
        assert learner.save() == tmp_path
        learner.step()
    with Learner(scheme(**PARTS), **logged, resume=True) as learner:
        assert learner.updates == 3
        rows += rows_of(learner)
        assert learner.evaluate(4).episode_return.shape == (2, 1, 4)
        changed = learner.policy()
        learner.replace(algorithm=PPO(epochs=2, minibatches=1))
        chex.assert_trees_all_equal(learner.policy().params, changed.params)
    for row, expected in zip(rows, two_seeds[0], strict=True):
        for name in row.keys() - {"steps_per_second", "seconds"}:
            np.testing.assert_array_equal(row[name], expected[name])
    for i, seed in enumerate((5, 6)):
        logs = read_metrics(tmp_path / f"seed_{seed}")
        assert logs["step"].tolist() == [48, 96, 112]
        logged_values = logs["entropy"].astype(np.float32)
        np.testing.assert_array_equal(logged_values, [row["entropy"][i] for row in rows])


@pytest.mark.slow
def test_seed_checkpoints_stay_consistent_if_the_process_dies(monkeypatch, tmp_path):
    learner, write = Learner(scheme(**PARTS), seed=[5, 6], **SEEDS), checkpoint.save

    def dies(path, state):
        if "seed_6" in path.name:
            raise RuntimeError("the machine is gone")
        return write(path, state)

    learner.step()
    learner.save(tmp_path)
    learner.step()
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", dies)
        with pytest.raises(RuntimeError, match="gone"):
            learner.save(tmp_path)
    learner.restore(tmp_path)  # the first seed has a newer one, which the second has not
    assert learner.learner_state.updates.tolist() == [3, 3]

    learner.step()
    rename = Path.rename

    def moves(self, target):
        if self == tmp_path / "seed_6.next":
            raise RuntimeError("the machine is gone")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", moves)
        with pytest.raises(RuntimeError, match="gone"):
            learner.save(tmp_path)
    learner.restore(tmp_path)  # all were written, not all are in their places
    assert learner.learner_state.updates.tolist() == [6, 6]
    learner.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed_5", "seed_6"]


def test_seed_checkpoints_of_different_updates_are_refused(tmp_path):
    with Learner(scheme(), seed=5, total_steps=STEPS) as learner:
        learner.save(tmp_path / "seed_5")
        learner.step()
        learner.save(tmp_path / "seed_6")
    learner = Learner(scheme(), seed=[5, 6], total_steps=STEPS)
    with pytest.raises(TrainingError, match=r"seed_5 after 0 updates, \S*seed_6 after 1"):
        learner.restore(tmp_path)


def test_seeds_that_cannot_learn_side_by_side_say_why():
    for wrong, word in (([1, 1], "different"), ([], "different"), (-1, "seed=-1"), (2**32, "2\\*")):
        with pytest.raises(TrainingError, match=word):
            Learner(scheme(), total_steps=9, seed=wrong)
    for parts in ({"collection": remote(2)}, {"env": "gymnasium/CartPole-v1"}):
        with pytest.raises(TrainingError, match="one seed after the other"):
            Learner(scheme(**parts), total_steps=9, seed=[1, 2])


def test_workers_report_several_updates_per_row_and_save(tmp_path):
    chosen = scheme(**PARTS, collection=remote(2))
    settings = {"total_steps": 160, "report_every": 2, "log_dir": tmp_path, "save_every": 32}
    with Learner(chosen, **settings) as learner:
        rows = rows_of(learner)
        assert [row["steps"] for row in rows] == [64, 128, 160]
        assert rows[0]["collection_lag"] == 0 and np.isfinite(rows[-1]["value_loss"])
        learner.restore()
        assert learner.updates == 4


# --- evaluation ---


def test_evaluations_are_logged_and_the_best_survives_a_restart(tmp_path, monkeypatch):
    means = iter([10.0, 30.0, 20.0, 25.0, 40.0])

    def told(learner):
        ones = jnp.ones((1, 1))
        return Evaluation(episode_return=next(means) * ones, episode_length=ones, finished=ones > 0)

    monkeypatch.setattr(Learner, "evaluate", told)
    kinds = {"total_steps": STEPS, "log_dir": tmp_path, "evaluate_every": 32}  # two updates
    best = []

    def train(learner, steps):
        for _ in range(steps):
            learner.step()
            if (tmp_path / "best").is_dir():
                best.append(
                    int(restore(tmp_path / "best", BehaviorPolicy.of(state_of(learner))).updates)
                )

    with Learner(scheme(), **kinds) as learner:
        train(learner, 5)
        learner.save()
    assert best == [2, 2, 4, 4]
    with Learner(scheme(), **kinds, resume=True) as learner:
        train(learner, 4)
        found = jax.device_get(learner.policy(best=True).params)
        assert not all(map(np.array_equal, arrays(found), arrays(learner.policy().params)))
        train(learner, 1)
        same(learner.policy(best=True).params, learner.policy().params)
    assert best[4:] == [4, 4, 4, 4, 10]  # 20 and 25 are less than 30
    found = read_metrics(tmp_path)["evaluation_return"]
    np.testing.assert_array_equal(
        found, [np.nan, 10, np.nan, 30, np.nan, 20, np.nan, 25, np.nan, 40]
    )


def test_last_update_is_evaluated_with_endless_episodes_cut(monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_STEPS", 3)
    endless = scheme(jaxenvs.make("Pendulum-v1", time_limit=None))
    with Learner(
        endless, total_steps=80, evaluate_every=48, evaluation_episodes=2, report_every=2
    ) as learner:
        rows = []
        while not learner.done():
            rows.append(learner.step())
    assert ["evaluation_return" in row for row in rows] == [False, True, True]
    assert rows[-1]["evaluation_length"] == 3 and rows[-1]["evaluation_std"] > 0


def test_learner_step_copies_no_replay_memory():
    parts = {"algorithm": DQN(batch_size=4, learning_starts=8), "storage": Replay(64)}
    with Learner(scheme(**parts, actor=QNetwork(hidden_sizes=(8,))), total_steps=STEPS) as learner:
        before = jax.tree.leaves(learner.learner_state.storage)
        policy = learner.policy()
        learner.step()
        assert all(x.is_deleted() for x in before)
        policy(jnp.zeros((1, 4)), jax.random.key(0))  # the weights that were shown are still there


def test_learner_evaluates_whole_episodes_in_own_environments():
    with Learner(scheme(), total_steps=STEPS, evaluation_episodes=6) as learner:
        learner.step()
        before = jax.device_get(arrays(state_of(learner)))
        evaluation = learner.evaluate()
        assert evaluation.episode_return.shape == (1, 6)
        np.testing.assert_array_equal(evaluation.episode_return, evaluation.episode_length)
        same(state_of(learner), before)
        action = learner.policy()(jnp.zeros((3, 4)), jax.random.key(0))
        assert action.shape == (3,)
    env = jaxenvs.make_vec(ID, 2)
    with Learner(scheme(), total_steps=STEPS, evaluation_env=env) as learner:
        assert learner.evaluate(4).episode_return.shape == (2, 2)


# --- what changes while it goes on ---


@pytest.mark.parametrize(
    "parts",
    [{}, {"collection": remote(2)}, {"gradients": remote(2, resources=jax.devices()[:1])}],
    ids=["fused", "collection", "gradients"],
)
def test_hyper_parameter_update_applies_without_recompiling(parts):
    programs = (
        *(executors._resume, executors._learn),
        *(sources._collect, workers._process, workers._gradient, workers.apply_gradients),
    )
    with Learner(scheme(**parts), total_steps=STEPS) as learner:
        learner.step()
        learner.step()
        compiled = [program._cache_size() for program in programs]
        for value in (0.0, np.float32(0.0), 0):
            before = jax.device_get(state_of(learner).weights.params)
            learner.update_algo_parameter("learning_rate", value)
            assert learner.step()["steps"] % 16 == 0
            same(state_of(learner).weights.params, before)
        learner.update_algo_parameter("learning_rate", 1e-3)
        learner.step()
        after = state_of(learner).weights.params
        assert not all(map(np.array_equal, arrays(before), arrays(after)))
        assert [program._cache_size() for program in programs] == compiled
        with pytest.raises(UnknownParameterError, match="learning_rate"):
            learner.update_algo_parameter("learning_rat", 1)


@pytest.mark.slow
def test_learner_replace_keeps_the_learned_weights():
    with Learner(scheme(), total_steps=10_000) as learner:
        learner.step()
        learner.step()
        weights = jax.device_get(state_of(learner).weights)
        learner.replace(unroll_length=8)
        same(state_of(learner).weights, weights)
        assert learner.step()["steps"] == 64  # of 32 before, and now 32 at a time
        learner.replace(storage=VTrace(), collection=remote(2, sync=False))
        assert learner.step()["steps"] == 96
        params = jax.device_get(state_of(learner).weights.params)
        learner.replace(algorithm=PPO(epochs=1, minibatches=1), collection=remote(2))
        same(state_of(learner).weights.params, params)  # with an optimizer of its own
        assert learner.step()["steps"] == 128 or learner.get_metrics()["steps"] == 160
        learner.update_algo_parameter("target_kl", 0.1)  # which was None
        assert learner.scheme.algorithm.target_kl == 0.1
        learner.step()
        with pytest.raises(TrainingError, match="other shapes than the learned"):
            learner.replace(actor=ActorCritic(hidden_sizes=(9,)))
        with pytest.raises(TrainingError, match="unroll_length"):
            learner.replace(unroll_lenth=3)
        steps = learner.get_metrics()["steps"]
        assert learner.step()["steps"] > steps  # refused, and gone on as before


@pytest.mark.slow
def test_replay_is_kept_for_new_algorithm_and_cut_for_new_env():
    parts = {"algorithm": DQN(batch_size=4, learning_starts=8), "storage": Replay(64, n_step=3)}
    with Learner(scheme(**parts, actor=QNetwork(hidden_sizes=(8,))), total_steps=STEPS) as learner:
        learner.step()
        learner.step()
        storage = jax.tree.map(jnp.copy, learner.learner_state.storage)
        learner.replace(algorithm=DQN(batch_size=8, learning_starts=8))
        jax.tree.map(np.testing.assert_array_equal, learner.learner_state.storage, storage)
        learner.replace(env=jaxenvs.make(ID, time_limit=None))  # whose state counts no steps
        kept = jax.device_get(learner.learner_state.storage)
        cut = learner._executor.train.truncate_memory(
            learner.learner_state.replace(storage=storage)
        ).storage
        jax.tree.map(np.testing.assert_array_equal, kept, jax.device_get(cut))
        assert learner.step()["steps"] == 48


def test_learner_evaluation_follows_a_replaced_environment():
    with Learner(scheme(), total_steps=STEPS, evaluation_episodes=2) as learner:
        learner.evaluate()
        learner.replace(env=jaxenvs.make(ID, time_limit=3))
        assert learner.evaluate().episode_length.max() <= 3


def test_best_score_of_another_log_dir_is_not_used(tmp_path):
    other, own = tmp_path / "other", tmp_path / "own"
    with Learner(scheme(), total_steps=STEPS, log_dir=other) as learner:
        learner.save()
    (other / "best.json").write_text('{"evaluation_return": 1e9, "steps": 1}')
    settings = {"total_steps": STEPS, "log_dir": own, "evaluate_every": 1, "evaluation_episodes": 1}
    with Learner(scheme(), **settings) as learner:
        learner.restore(other / "checkpoint")
        learner.step()
    assert (own / "best").is_dir()


def test_hyper_parameter_update_is_validated_by_its_field():
    with Learner(scheme(), total_steps=STEPS) as learner:
        for value in ("fast", np.array([1e-3, 1e-4])):
            with pytest.raises(TrainingError, match=r"learning_rate=.*(valid|expected a) number"):
                learner.update_algo_parameter("learning_rate", value)
        with pytest.raises(TrainingError, match="minibatches=0; it must be at least 1"):
            learner.update_algo_parameter("minibatches", 0)
        learner.step()
        learner.update_algo_parameter("learning_rate", optax.constant_schedule(0.25))
        learner.update_algo_parameter("max_gradient_norm", None)
        assert learner.scheme.algorithm.max_gradient_norm is None
        assert learner.step()["learning_rate"] == 0.25


@pytest.mark.parametrize(
    "gradients", every_nth(2, [central(), remote(2, sync=False)]), ids=["here", "there"]
)
def test_learner_without_algorithm_picks_one_by_action_space(gradients):
    parts = {"actor": ActorCritic(hidden_sizes=(8,)), "num_envs": 4, "unroll_length": 16}
    own_statistics = isinstance(gradients, type(central()))
    with Learner(Scheme("Pendulum-v1", gradients=gradients, **parts), total_steps=64) as learner:
        algorithm = learner.scheme.algorithm
        assert algorithm.epochs == PPO.continuous().epochs
        assert algorithm.normalize_observations == algorithm.normalize_rewards == own_statistics
        learner.step()
    with Learner(Scheme("CartPole-v1", gradients=gradients, **parts), total_steps=64) as learner:
        assert jax.tree.leaves(learner.scheme.algorithm) == jax.tree.leaves(PPO())


def test_damaged_best_json_is_reported(tmp_path):
    settings = {"total_steps": STEPS, "log_dir": tmp_path / "run"}
    with Learner(scheme(), **settings) as learner:
        learner.step()
        learner.save()
    (tmp_path / "run" / "best.json").write_text('{"evaluation_ret')
    with pytest.raises(TrainingError, match=r"best.json. is damaged"):
        Learner(scheme(), **settings, resume=True)


def test_print_info_shows_every_metric(capsys):
    pytest.importorskip("rich")
    with Learner(scheme(), total_steps=STEPS) as learner:
        learner.step()
        learner.print_info()
    printed = capsys.readouterr().out
    assert "16 of 1,000 steps" in printed
    assert all(name in printed for name in learner.get_metrics())
