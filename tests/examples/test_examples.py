"""Each example runs with a tiny budget, as its own program would."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxenvs

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_train_cartpole(capsys):
    best = load("train_cartpole").main(total_steps=4_096, seeds=2)
    assert best.shape == (2,) and (best > 10).all()
    assert "seed 1" in capsys.readouterr().out


def test_domain_randomization(capsys):
    lengths = load("domain_randomization").main(total_steps=4_096)
    assert lengths.shape == (4,) and (lengths >= 5).all() and len(jnp.unique(lengths)) > 1
    assert "24.8" in capsys.readouterr().out


def test_custom_environment(capsys, own_registry):
    assert load("custom_environment").main(total_steps=40_960) > -10
    assert "Lander-v0" in jaxenvs.registry
    assert "last" in capsys.readouterr().out


def test_value_iteration(capsys):
    optimal, measured = load("value_iteration").main(num_lakes=16, size=4, num_episodes=200)
    # Four standard errors of 200 successes or failures, and the discount.
    assert jnp.allclose(measured, optimal, atol=4 * 0.5 / 200**0.5 + 0.01)
    assert "16 lakes" in capsys.readouterr().out


LEARNERS = {  # the package, the sizes of a run, the least mean return, and what is printed
    "cleanrl_ppo": ("torch", (12_000, 8), 30, "episodes, mean return"),  # at random, 22
    "stable_baselines3_ppo": ("stable_baselines3", (2_048, 8), 9, "ep_rew_mean"),
    "stable_baselines3_sac": ("stable_baselines3", (1_000, 4), -2_000, "mean return after"),
    "tianshou_collector": ("tianshou", (512, 4), 8, "mean return after training"),
    "torchrl_collector": ("torchrl", (512, 4), 8, "episodes that ended among these 256 steps"),
}


@pytest.mark.interop
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_of_other_libraries(name, capsys, monkeypatch, tmp_path):
    package, (total_steps, num_envs), least, printed = LEARNERS[name]
    pytest.importorskip(package)
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path))
    assert load(name).main(total_steps=total_steps, num_envs=num_envs) >= least
    assert printed in capsys.readouterr().out


def test_agymc(capsys):
    pytest.importorskip("pygame")
    returns = load("agymc").main(num_envs=3, episodes=2, render=True)
    assert returns.shape == (2, 3) and ((returns >= 8) & (returns <= 200)).all()
    assert len(set(returns.ravel())) > 1  # each instance has an end of its own
    assert "episode 1" in capsys.readouterr().out


def test_agymc_style(capsys):
    returns = load("agymc_style").main(num_envs=5, render_seconds=1e-4)
    assert returns.shape == (5,) and ((returns >= 8) & (returns <= 500)).all()
    assert len(set(returns)) > 1
    assert "5 episodes, mean return" in capsys.readouterr().out


def test_multiprocess_gym_style(capsys):
    rewards = load("multiprocess_gym_style").main(num_envs=2, num_workers=1, steps=40)
    assert list(rewards) == ["one after the other", "one process each", "1 workers with 2 each"]
    first, *others = rewards.values()
    assert first.shape == (40, 2) and (first == 0).any()  # where an episode begins anew
    assert all((first == other).all() for other in others)
    assert capsys.readouterr().out.count("steps/s") == 3


def test_dqn_dm_env(capsys):
    with jax.numpy_dtype_promotion("standard"):  # as optax needs it, and users have it
        mean = load("dqn_dm_env").main(total_steps=10_000)
    assert mean > 30  # a random policy's mean is 22
    assert f"returned {mean:.1f}" in capsys.readouterr().out


def test_offline_iql(capsys):
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        before, after = load("offline_iql").main(num_updates=1_500, num_steps=500)
    assert 20 < before < 25 and after > 2 * before
    assert "32,000 steps: mean return of the data" in capsys.readouterr().out


@pytest.mark.interop
def test_offline_iql_of_a_minari_data_set(monkeypatch, tmp_path):
    pytest.importorskip("minari")
    from jaxenvs.faces.minari import to_minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    envs = jaxenvs.make_vec("CartPole-v1", 4)
    result = jaxenvs.rollout(envs, None, 200, jax.random.key(0))
    dataset = to_minari(result.trajectory, envs, "cartpole/random-v0", unfinished="drop")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        before, _ = load("offline_iql").main("cartpole/random-v0", num_updates=10)
    assert before == pytest.approx(dataset.total_steps / dataset.total_episodes)
    assert before == pytest.approx(float(result.statistics["return_mean"]))


def test_overlap(capsys):
    found = load("overlap").main(num_envs=2, milliseconds=5.0, num_steps=10, waits=True)
    assert found["learn_while_stepping"] < found["step_then_learn"]
    assert "% hidden" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_has_a_test_and_says_how_to_run_it(path):
    assert path.stem in LEARNERS or f"test_{path.stem}" in globals()
    assert f"python examples/{path.name}" in path.read_text()


def test_meta_bandit(capsys):
    rewards = load("meta_bandit").main(arms=2, pulls=5, total_steps=40_960)
    assert rewards.shape == (5,) and (abs(rewards - 0.5) < 0.25).all()
    assert "sum: " in capsys.readouterr().out
