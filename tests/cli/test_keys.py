import jax
import numpy as np
import pytest

from jaxenvs import keys
from jaxenvs.cli import enjoy, evaluate
from jaxenvs.cli import render as rendering
from jaxenvs.cli._runs import Run
from jaxenvs.cli.render import playing_key
from jaxenvs.training import Learner, learner
from jaxenvs.training.config import Config
from tests.cli._running import run

SEED = 3


@pytest.fixture(scope="module")
def config():
    return Config(
        id="CartPole-v1",
        algorithm="PPO",
        num_envs=2,
        unroll_length=4,
        total_steps=8,
        seed=SEED,
        settings={"epochs": 1, "minibatches": 1},
        actor={"hidden_sizes": [4]},
        evaluation_episodes=1,
    )


def bits(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def drawn_by_training():
    """What a training run of that seed can reach first: keys split or folded off its own."""
    key = jax.random.key(SEED)
    children = jax.vmap(lambda i: jax.random.fold_in(key, i))(np.arange(64, dtype=np.uint32))
    return {bits(key), *map(tuple, np.asarray(jax.random.key_data(children)).tolist())}


def test_evaluations_play_none_of_the_episodes_of_the_training(config, monkeypatch):
    used = [playing_key(SEED)]
    play = learner.play_episodes
    monkeypatch.setattr(
        learner, "play_episodes", lambda *args: (used.append(args[-1]), play(*args))[1]
    )
    with Learner(config.make_scheme(), total_steps=16, seed=SEED, evaluate_every=8) as training:
        training.step()
        training.step()
    assert len({bits(key) for key in used}) == 3
    assert not drawn_by_training() & {bits(key) for key in used}
    assert bits(used[1]) == bits(keys.evaluation_key(jax.random.key(SEED), 1))


@pytest.mark.parametrize("command", ["eval", "enjoy", "render"])
def test_playing_a_policy_uses_no_key_of_its_training(
    capsys, monkeypatch, config, tmp_path, command
):
    class Played(Exception):
        pass

    used = []

    def play(env, policy, *arguments, **_):
        used.append(next(x for x in arguments if isinstance(x, jax.Array)))
        raise Played

    monkeypatch.setattr(evaluate, "play_episodes", play)
    monkeypatch.setattr(enjoy, "play", play)
    monkeypatch.setattr(rendering, "play", play)
    monkeypatch.setattr(Run, "read_policy", lambda *_: None)
    Run(tmp_path, config).write_config()
    arguments = {
        "eval": [tmp_path],
        "enjoy": [tmp_path],
        "render": ["CartPole-v1", "--checkpoint", tmp_path, "-o", tmp_path / "a.gif"],
    }
    with pytest.raises(Played):
        run(capsys, command, *arguments[command], "--seed", SEED)
    assert not drawn_by_training() & {bits(used[0])}
