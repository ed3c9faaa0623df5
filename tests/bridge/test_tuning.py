"""The choices of backend="auto", and the results that `jaxenvs tune-pool` saves."""

import dataclasses
import logging
import re

import pytest

import jaxenvs
from jaxenvs.bridge.making import choosing
from jaxenvs.bridge.making.choosing import Measurement, choose
from jaxenvs.bridge.making.tuning import BackendConfig, load_tuned, save_tuned
from jaxenvs.cli import main
from tests.bridge.envs import Counter

US = 1e-6


def measurement(step, *, cpu=None, spread=0.0, cores=4, free=None, handover=80 * US):
    return Measurement(
        step=step,
        spread=spread,
        cpu=step if cpu is None else cpu,
        handover=handover,
        cores=cores,
        free_cores=cores if free is None else free,
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    from jaxenvs.bridge.making import tuning

    monkeypatch.setattr(tuning, "cache_folder", lambda: tmp_path)
    return tmp_path


def best(m, num_envs, batch_size=None, **allowed):
    return choose(m, num_envs, batch_size or num_envs, **allowed)


def test_one_environment_and_tiny_batches_use_serial():
    assert best(measurement(5 * US), 1).backend == "serial"
    assert best(measurement(1 * US), 2).backend == "serial"


def test_computing_steps_are_divided_among_the_cores():
    config = best(measurement(1000 * US), 64)
    assert config.backend == "process" and config.num_workers + config.caller_steps == 4
    assert config.seconds == pytest.approx(16e-3, rel=0.05)


def test_computing_steps_never_get_more_workers_than_cores():
    for allowed in ({}, {"may_share": False}, {"backend": "process", "may_serve": False}):
        config = best(measurement(50 * US, cores=2), 64, **allowed)
        assert config.backend == "process" and config.num_workers + config.caller_steps <= 2


def test_a_busy_machine_gets_serial():
    assert best(measurement(20 * US, cores=2, free=0.9), 16).backend == "serial"


def test_waiting_steps_get_many_workers():
    config = best(measurement(1000 * US, cpu=5 * US), 64)
    assert config.num_workers >= 32
    assert config.seconds < 64e-3 / 10


def test_uneven_steps_get_a_worker_each_with_partial_batches():
    config = best(measurement(1000 * US, spread=5000 * US), 16, batch_size=8)
    assert (config.backend, config.num_workers) == ("process", 16)


def test_short_batches_use_serial_where_a_handover_takes_long():
    partial = {"num_envs": 16, "batch_size": 4}
    assert best(measurement(20 * US, handover=20 * US), **partial).backend == "process"
    assert best(measurement(20 * US, handover=200 * US), **partial).backend == "serial"
    tiny = measurement(6 * US, handover=200 * US)
    assert best(tiny, 4, may_share=False).backend == "serial"
    assert best(tiny, 4, may_share=False, may_serve=False).backend == "process"


def test_waiting_steps_use_threads_unless_the_backend_is_given():
    waiting = measurement(1000 * US, cpu=5 * US, cores=2)
    assert best(waiting, 16).backend == "thread"
    config = best(waiting, 16, backend="process", may_share=False, may_serve=False)
    assert (config.backend, config.num_workers) == ("process", 16)


def test_tuned_results_apply_to_the_same_environments_only(own_cache):
    config = BackendConfig("process", 3, (2, 4, 6, 8), True, 1e-3)
    save_tuned("A", 8, 8, config)
    save_tuned("B", 8, 4, BackendConfig("thread", 8))
    assert load_tuned("A", 8, 8) == config
    assert load_tuned("A", 9, 9) is None
    (own_cache / "tuned.json").write_text("damaged")
    assert load_tuned("A", 8, 8) is None


def test_auto_uses_and_logs_the_tuned_result(caplog):
    save_tuned("CartPole-v1", 3, 3, BackendConfig("thread", 2))
    with caplog.at_level(logging.INFO, "jaxenvs"), jaxenvs.make_pool("CartPole-v1", 3) as pool:
        assert (pool.backend, pool.num_workers) == ("thread", 2)
    assert "jaxenvs tune-pool" in caplog.text


WITH_CALLER = BackendConfig("process", 1, (1, 2), caller_steps=True)


@pytest.mark.parametrize(
    ("tuned", "options", "used"),
    [
        (WITH_CALLER, {}, True),
        (WITH_CALLER, {"caller_steps": False}, False),
        (WITH_CALLER, {"backend": "process"}, False),
        (WITH_CALLER, {"timeout": 5.0}, False),
        (BackendConfig("serial"), {"caller_steps": False}, True),
        (BackendConfig("serial"), {"timeout": 5.0}, False),
        (BackendConfig("thread", 2), {"timeout": 5.0}, True),
        (BackendConfig("thread", 2), {"backend": "process"}, False),
    ],
)
def test_tuned_result_is_used_only_where_options_allow(tuned, options, used, monkeypatch):
    measured = BackendConfig("process", 2)
    monkeypatch.setattr(choosing, "_measured", lambda *_: (measured, "as measured"))
    save_tuned("CartPole-v1", 2, 2, tuned)
    with jaxenvs.make_pool("CartPole-v1", 2, **options) as pool:
        found = pool.backend, pool.num_workers, pool.caller_steps
    expected = tuned if used else measured
    assert found == (expected.backend, expected.num_workers, expected.caller_steps)


def test_auto_logs_its_measurement_and_still_needs_a_reset(caplog):
    with caplog.at_level(logging.INFO, "jaxenvs"), jaxenvs.make_pool(Counter, 4, seed=5) as pool:
        with pytest.raises(jaxenvs.errors.PoolError, match="reset"):
            pool.step([0] * 4)
        _, info = pool.reset()
        assert info["seed"].tolist() == [5, 6, 7, 8]
    assert "a step takes" in caplog.text and "an answer takes" in caplog.text
    free, cores = map(float, re.search(r"(\S+) of (\d+) cores are free", caplog.text).groups())
    assert 0 <= free <= cores


def test_auto_steps_and_seeds_nothing_that_the_caller_sees():
    with jaxenvs.make_pool(Counter, 4, seed=5) as pool:
        assert pool.call("episode") == pool.call("count") == (0, 0, 0, 0)
        assert pool.reset()[1]["seed"].tolist() == [5, 6, 7, 8]
        one = [pool.action_space.sample().tolist() for _ in range(20)]
        pool.action_space.seed(0)
        assert one != [pool.action_space.sample().tolist() for _ in range(20)]


def test_a_timeout_requires_a_worker():
    with jaxenvs.make_pool(Counter, 1, timeout=5.0) as pool:
        assert pool.backend == "process" and not pool.caller_steps
    for options in ({"backend": "serial"}, {"caller_steps": True}):
        with pytest.raises(jaxenvs.errors.PoolError, match="cannot be detected"):
            jaxenvs.make_pool(Counter, 2, timeout=5.0, **options)


def test_an_unpicklable_environment_uses_serial():
    lock = __import__("threading").Lock()

    def make():
        assert lock is not None
        return Counter()

    with jaxenvs.make_pool(make, 2) as pool:
        assert pool.backend == "serial"


def test_tune_command_shows_every_backend_and_saves_the_best(capsys, own_cache):
    arguments = ["tune-pool", "CartPole-v1", "--num-envs", "2", "--seconds", "0.01"]
    assert main([*arguments, "--dry-run"]) == 0
    row = r"^ *(serial|process|thread|asyncio) +(\S.*?)  "
    rows = re.findall(row, capsys.readouterr().out, re.MULTILINE)
    assert len(rows) == len(set(rows)) >= 4  # auto's choice is one of them
    assert not (own_cache / "tuned.json").exists()
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert all(backend in out for backend in ("serial", "process", "thread", "asyncio"))
    assert load_tuned("CartPole-v1", 2, 2) is not None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--num-envs", "0"], "--num-envs 0"),
        (["--num-envs", "2", "--batch-size", "0"], "--batch-size 0"),
        (["--num-envs", "2", "--batch-size", "3"], "--batch-size 3"),
        (["--seconds", "-1"], "--seconds -1"),
    ],
)
def test_tune_command_names_the_invalid_number(arguments, named, capsys):
    assert main(["tune-pool", "CartPole-v1", *arguments]) != 0
    printed = capsys.readouterr()
    assert f"tune-pool got {named}" in " ".join((printed.out + printed.err).split())


def test_config_str_names_backend_workers_and_caller():
    config = BackendConfig("process", 1, (8, 16), caller_steps=True)
    assert str(config) == "process with 1 worker, plus the caller"
    assert dataclasses.replace(config, caller_steps=False) != config
