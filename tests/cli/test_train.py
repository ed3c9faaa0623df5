import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import types
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxenvs.cli import enjoy
from jaxenvs.cli import train as command
from jaxenvs.cli._runs import Run, make_train_for_playing
from jaxenvs.cli.plot import labels
from jaxenvs.errors import TrainingError
from jaxenvs.rollouts import Evaluation
from jaxenvs.training import Learner, PrioritizedReplay
from jaxenvs.training.config import Config, config_for
from jaxenvs.training.logs import open_logs, read_metrics
from jaxenvs.training.progress import ProgressBar
from tests.cli._running import SMALL, run

WATCHED = [*SMALL, "--save-every", "256", "--evaluate-every", "256", "--evaluation-episodes", "3"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(runs):
    """The output folder of a tiny training on CartPole-v1."""
    folder = runs / "one"
    assert command.run(_options("ppo", "CartPole-v1", *WATCHED, "--output", folder)) == 0
    return folder


@pytest.fixture(scope="module")
def seeds(runs):
    """Those of two seeds, with a memory."""
    folder = runs / "two"
    memory = ["actor.memory=gru", "actor.memory_size=4", "actor.shared=true"]
    memory = [each for setting in memory for each in ("--set", setting)]
    arguments = [*SMALL, *memory, "--seeds", 2, "--seed", 3, "--output", folder]
    assert command.run(_options("ppo", "CartPole-v1", *arguments)) == 0
    return folder


def _options(*arguments):
    from jaxenvs.cli.app import _parser

    return _parser().parse_args(["train", *map(str, arguments)])


def test_training_leaves_config_metrics_curve_and_checkpoints(trained):
    names = {path.name for path in trained.iterdir()}
    assert names == {
        *("config.toml", "metrics.csv", "metrics.jsonl", "learning_curve.png"),
        *("checkpoint", "policy", "best", "best.json"),
    }
    metrics = read_metrics(trained)
    assert metrics["step"].tolist() == [128, 256, 384, 512]
    assert metrics["episode_return"][-1] > 5
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [row["value_loss"] for row in rows] == metrics["value_loss"].tolist()
    config = Config.read(trained / "config.toml")
    assert config.settings["epochs"] == 1 and config.actor["hidden_sizes"] == (8,)
    assert config == config.complete() and config.settings["learning_rate"] == 7e-4
    with Image.open(trained / "learning_curve.png") as curve:
        assert curve.width > curve.height > 100


@pytest.mark.slow
def test_every_seed_is_evaluated(capsys, tmp_path):
    evaluated = ["--evaluate-every", 256, "--evaluation-episodes", 2, "--output", tmp_path / "run"]
    status, _ = run(capsys, "train", "ppo", "CartPole-v1", *SMALL, "--seeds", 2, *evaluated)
    assert status == 0
    for seed in range(2):
        metrics = read_metrics(tmp_path / "run" / f"seed_{seed}")
        assert (metrics["evaluation_return"][[1, 3]] >= 1).all()


@pytest.mark.slow
def test_each_seed_has_a_folder_and_all_have_a_curve(seeds):
    assert sorted(path.name for path in seeds.iterdir()) == [
        *("learning_curve.png", "seed_3", "seed_4")
    ]
    returns = [read_metrics(seeds / f"seed_{n}")["value_loss"] for n in (3, 4)]
    assert (returns[0] != returns[1]).all()
    assert [Config.read(seeds / f"seed_{n}" / "config.toml").seed for n in (3, 4)] == [3, 4]


def test_killed_or_stopped_run_resumes_bit_for_bit(capsys, monkeypatch, trained, tmp_path):
    report = ProgressBar.__call__

    def kill(self, updates, *rest):
        report(self, updates, *rest)
        if updates == 3:
            raise RuntimeError("the machine is gone")

    def interrupt(self, *arguments):
        report(self, *arguments)
        signal.raise_signal(signal.SIGTERM)

    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "__call__", kill)
        with pytest.raises(RuntimeError, match="gone"):
            run(capsys, "train", "ppo", "CartPole-v1", *WATCHED, "--output", folder)
        assert read_metrics(folder)["step"].tolist() == [128, 256, 384]
        patch.setattr(ProgressBar, "__call__", interrupt)
        status, printed = run(capsys, "train", "--resume", folder)
    assert status == 143 and f"jaxenvs train --resume {folder}" in printed
    assert "256 of them already done" in printed  # as was saved before the last row
    status, printed = run(capsys, "train", "--resume", folder)
    assert status == 0 and "384 of them already done" in printed
    assert (folder / "config.toml").read_text() == (trained / "config.toml").read_text()
    assert told(folder) == told(trained)
    seconds = read_metrics(folder)["seconds"]
    assert (np.diff(seconds) > 0).all() and seconds[0] > 0  # of all that trained it, together


def told(folder):
    """What both files say, but for the times that it took."""
    with (folder / "metrics.csv").open() as file:
        tables = list(csv.DictReader(file))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(row["steps_per_second"] is None or row["steps_per_second"] > 0 for row in rows)
    times = {"seconds", "steps_per_second"}
    return [{name: x for name, x in row.items() if name not in times} for row in tables + rows]


@pytest.mark.slow
def test_a_run_goes_on_beyond_its_end(capsys, seeds, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(seeds, folder)
    ended = read_metrics(seeds / "seed_3")["step"][-1]
    status, printed = run(capsys, "train", "--resume", folder, "--total-steps", f"{ended - 200}")
    assert status == 2 and "Pass a larger number, or omit it" in printed
    assert Config.read(folder / "seed_3" / "config.toml").total_steps == ended
    status, printed = run(capsys, "train", "--resume", folder, "--total-steps", f"{ended + 256}")
    assert status == 0 and f"{ended:,.0f} of them already done" in printed
    for each in ("seed_3", "seed_4"):
        assert read_metrics(folder / each)["step"][-1] == ended + 256
        assert Config.read(folder / each / "config.toml").total_steps == ended + 256
    more = ["--num-envs", 8, "--total-steps", f"{ended + 512}"]
    with pytest.warns(UserWarning, match="episodes start again"):
        status, printed = run(capsys, "train", "--resume", folder, *more)
    assert status == 0 and Config.read(folder / "seed_3" / "config.toml").num_envs == 8
    assert read_metrics(folder / "seed_3")["step"][-1] == ended + 512


@pytest.mark.slow
def test_extended_run_equals_one_that_was_longer_from_the_start(capsys, tmp_path):
    arguments = ["--num-envs", 4, "--unroll-length", 8, "--report-every", 2]
    for setting in (
        *("actor.hidden_sizes=8", "learning_starts=32", "batch_size=8", "exploration_steps=300"),
        *("storage.type=PrioritizedReplay", "storage.capacity=256"),
    ):
        arguments += ["--set", setting]
    for name, steps in (("whole", 384), ("parts", 192)):
        where = ["--total-steps", steps, "--output", tmp_path / name]
        assert run(capsys, "train", "dqn", "CartPole-v1", *arguments, *where)[0] == 0
    status, _ = run(capsys, "train", "--resume", tmp_path / "parts", "--total-steps", 384)
    assert status == 0 and told(tmp_path / "parts") == told(tmp_path / "whole")


def test_the_policy_that_was_best_when_evaluated_is_kept(capsys, monkeypatch, trained, tmp_path):
    metrics = read_metrics(trained)
    means = metrics["evaluation_return"]
    assert np.isnan(means).tolist() == [True, False, True, False]  # every 256 steps
    assert (means[[1, 3]] >= 1).all() and (metrics["evaluation_std"][[1, 3]] >= 0).all()
    scores = iter([9.0, 3.0])  # of which the first is better

    def evaluate(self):
        ones = jnp.ones((1, 1))
        score = next(scores) * ones
        return Evaluation(episode_return=score, episode_length=ones, finished=ones > 0)

    folder = tmp_path / "judged"
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "evaluate", evaluate)
        status, printed = run(capsys, "train", "ppo", "CartPole-v1", *WATCHED, "--output", folder)
    assert status == 0 and "Best evaluation: 9.0" in printed
    chosen = Run.read(folder)
    train = chosen.config.make_train()
    latest, best = (chosen.read_policy(train, which) for which in ("latest", "best"))
    differ = jax.tree.map(lambda a, b: bool((a != b).any()), latest.params, best.params)
    assert all(jax.tree.leaves(differ["actor"]))
    chex.assert_trees_all_equal(Run.read(trained).read_policy(train).params, latest.params)


@pytest.mark.slow
def test_a_training_over_workers_leaves_a_run_like_any_other(capsys, tmp_path):
    folder = tmp_path / "workers"
    workers = ["--gradients", "remote:2", "--evaluate-every", 512, "--evaluation-episodes", 3]
    arguments = ["ppo", "CartPole-v1", *SMALL, *workers, "--total-steps", 1024]
    status, printed = run(capsys, "train", *arguments, "--output", folder)
    assert status == 0 and "gradients: remote:2" in printed
    metrics = read_metrics(folder)
    assert metrics["step"].tolist() == [256, 512, 768, 1024]
    assert np.isnan(metrics["evaluation_return"]).tolist() == [True, False, True, False]
    assert np.isfinite(metrics["value_loss"]).all()
    config = Config.read(folder / "config.toml")
    assert config.scheme == {"gradients": "remote:2"} and config.make_scheme().gradients.n == 2
    status, printed = run(capsys, "train", "--resume", folder)
    assert status == 0 and "1,024 of them already done" in printed
    status, printed = run(capsys, "eval", folder, "--episodes", 3, "--which", "best")
    assert status == 0 and returns_in(printed)


@pytest.mark.slow
def test_playing_keeps_observation_wrappers_but_not_reward_ones(capsys, monkeypatch, tmp_path):
    path, folder = tmp_path / "wrapped.toml", tmp_path / "wrapped"
    path.write_text("""
        id = "CartPole-v1"
        algorithm = "PPO"
        num_envs = 4
        unroll_length = 32
        total_steps = 256
        evaluate_every = 256
        evaluation_episodes = 3
        settings = { epochs = 1, minibatches = 1 }
        actor = { hidden_sizes = [8] }
        wrappers = [
            { type = "FrameStackObservation", stack_size = 2 },
            "FlattenObservation",
            { type = "ScaleReward", scale = -1 },
        ]
    """)
    status, printed = run(capsys, "train", "--config", path, "--output", folder)
    assert status == 0
    metrics = read_metrics(folder)
    assert metrics["episode_return"][-1] < 0 < metrics["evaluation_return"][-1]
    status, printed = run(capsys, "eval", folder, "--episodes", 3)
    assert status == 0 and float(returns_in(printed)[0][2]) > 0
    seen = []

    def play(env, policy, key, max_steps):
        seen.append(env)
        return np.zeros((1, 4, 4, 3), np.uint8), 0.0

    monkeypatch.setattr(enjoy, "play", play)
    assert run(capsys, "enjoy", folder, "-o", folder / "a.png")[0] == 0
    assert seen[0].observation_space.shape == (8,) and "ScaleReward" not in repr(seen[0])


@pytest.mark.slow
def test_resume_of_several_finished_seeds_changes_nothing(capsys, seeds):
    before = (seeds / "seed_4" / "metrics.csv").read_text()
    status, printed = run(capsys, "train", "--resume", seeds)  # there is nothing left to do
    assert status == 0 and "IQM of 2 seeds, 95 % interval" in printed
    assert (seeds / "seed_4" / "metrics.csv").read_text() == before


def test_rows_have_a_return_from_the_first_episode_on(capsys, tmp_path):
    folder = tmp_path / "seldom"  # an episode of 200 steps ends in every seventh row
    sizes = ["--num-envs", 1, "--unroll-length", 30, "--report-every", 1, "--total-steps", 690]
    arguments = [*SMALL[6:], *sizes, "--set", "minibatches=1", "--output", folder]
    status, printed = run(capsys, "train", "ppo", "Pendulum-v1", *arguments)
    metrics = read_metrics(folder)
    returns, counts = metrics["episode_return"], metrics["episode_count"]
    assert status == 0 and counts.sum() == 3 and counts[-1] == 0
    assert np.isfinite(returns[np.argmax(counts > 0) :]).all()
    assert f"Mean return of the last 100 episodes: {returns[-1]:.1f}" in printed
    assert np.isnan(command.last_return({}))


def test_a_folder_that_holds_a_run_is_left_alone(capsys, trained):
    status, printed = run(capsys, "train", "ppo", "CartPole-v1", "--output", trained)
    assert status == 2 and "--resume" in printed


def test_trainings_that_start_together_get_folders_of_their_own(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = config_for("ppo", "a/b-v0")

    def fail():
        with command._new_runs(config, 2, None) as (folder, runs):
            assert f"{folder}" == "runs/ppo/a/b-v0_2" and folder.is_dir()
            runs[1].write_config()
            raise ZeroDivisionError

    with command._new_runs(config, None, None) as (first, _):
        with pytest.raises(ZeroDivisionError):
            fail()
        assert f"{first}" == "runs/ppo/a/b-v0" and first.is_dir()
        assert not first.with_name("b-v0_2").exists()
    monkeypatch.setattr(command, "Learner", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(capsys, "train", "dqn", "CartPole-v1")
    assert not Path("runs/dqn").exists()


def test_a_stop_before_the_first_row_is_no_error(capsys, monkeypatch, tmp_path):
    def interrupted(self):
        signal.raise_signal(signal.SIGINT)

    folder = tmp_path / "early"
    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "start", interrupted)
        status, printed = run(capsys, "train", "ppo", "CartPole-v1", *SMALL, "--output", folder)
    assert status == 130 and "--resume" in printed
    assert not (folder / "learning_curve.png").exists()
    status, printed = run(capsys, "plot", folder, "-o", tmp_path / "a.png")
    assert status == 2 and "no rows of metrics yet" in printed
    status, printed = run(capsys, "train", "--resume", folder)
    assert status == 0 and (folder / "learning_curve.png").exists()


def test_run_without_a_checkpoint_says_what_to_do(capsys, trained, tmp_path):
    folder = tmp_path / "unsaved"
    folder.mkdir()
    (folder / "config.toml").write_text((trained / "config.toml").read_text())
    for arguments in (["ppo", "CartPole-v1", "--output", folder], ["--resume", folder]):
        status, printed = run(capsys, "train", *arguments)
        assert status == 2 and "delete" in printed.lower() and "another --output" in printed


def test_minibatches_divide_the_steps_of_all_collectors(capsys, trained, tmp_path):
    sizes = ["--num-envs", "1", "--unroll-length", "4", "--set", "minibatches=8"]
    arguments = ["ppo", "CartPole-v1", *sizes, "--dry-run"]
    status, printed = run(capsys, "train", *arguments, "--collection", "remote:4")
    assert status == 0
    status, printed = run(capsys, "train", *arguments, "--collection", "remote:3")
    assert status == 2 and "8 equal minibatches" in printed
    changes = {"settings": {"minibatches": 8}, "scheme": {"collection": "remote:4"}}
    config = Config.read(trained / "config.toml").replace(num_envs=1, unroll_length=4, **changes)
    assert (
        make_train_for_playing(config).context.steps_per_update == 4
    )  # to play it, and to judge it


def test_a_log_that_is_asked_for_twice_is_written_once(capsys, tmp_path):
    folder = tmp_path / "twice"
    arguments = [*SMALL, "--log", "csv", "--log", "jsonl", "--output", folder]
    assert run(capsys, "train", "ppo", "CartPole-v1", *arguments)[0] == 0
    assert read_metrics(folder)["step"].tolist() == [128, 256, 384, 512]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [128, 256, 384, 512]
    with pytest.raises(TrainingError, match=r'Pass \["csv"\]'):
        open_logs(folder, "csv")
    assert read_metrics(folder)["step"].size == 4


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--output", "/dev/null/x"], "/dev/null/x"),
        (["--output", "taken"], '"taken" cannot be created'),
        (["--config", "latin.toml"], "UTF-8"),
        (["--config", "/dev/null/x"], "no configuration"),
        (["--seed", "-1"], "--seed: -1 is not a valid seed"),
        (["--log", "tensorbord", "--dry-run"], 'Close: "tensorboard"'),
        (["--seeds", "2", "--seed", f"{2**32 - 1}"], "another --seed"),
        (["--set", "num_envs=4"], "Pass --num-envs 4"),
        (["--dry-run", "--seeds", "0"], "positive"),
        (["--dry-run", "--seeds", "2", "--collection", "remote:2"], "one seed after the other"),
        (["--collection", "remotely"], 'collection="remotely"'),
        (["--collection", "remote:0"], "n=0"),
        (["--update", "decentralized"], "gradients=central()"),
        (["--update", "decentral"], "'centralized' or 'decentralized'"),
        (["--set", "scheme.colection=central"], 'Close: "collection"'),
        (["--save-every", "0"], "save_every=0"),
        (["--resume", "run", "--unroll-length", "4"], "with its own"),
        (["--set", "seed=4"], "Pass --seed 4"),
        (["--set", "hidden_sizes=4"], "Write actor.hidden_sizes"),
        (["--set", "collection=central"], "Write scheme.collection"),
    ],
    ids=str,
)
def test_invalid_train_arguments_are_refused_with_the_reason(
    capsys, monkeypatch, tmp_path, arguments, word
):
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("")
    Path("latin.toml").write_bytes(b'id = "\xe9"')
    what = [] if {"--config", "--resume"} & set(arguments) else ["ppo", "CartPole-v1"]
    status, printed = run(capsys, "train", *what, *arguments)
    assert status == 2 and word in printed and not Path("runs").exists()


@pytest.mark.parametrize(
    ("command", "output", "word"),
    [
        ("plot", "p.xyz", ".png, .svg or .pdf"),
        ("plot", "/dev/null/x.png", "cannot be written"),
        ("enjoy", "/dev/null/x.gif", "cannot be written"),
        ("render", "/dev/null/x.gif", "cannot be written"),
    ],
)
def test_a_picture_that_cannot_be_written_says_why(capsys, trained, command, output, word):
    what = ["CartPole-v1"] if command == "render" else [trained]
    playing = [] if command == "plot" else ["--max-steps", 2]
    status, printed = run(capsys, command, *what, "-o", output, *playing)
    assert status == 2 and word in printed and Path(output).name in printed


def test_training_without_matplotlib_is_kept_and_names_the_extra(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    status, printed = run(
        capsys, "train", "ppo", "CartPole-v1", *SMALL, "--output", tmp_path / "bare"
    )
    assert status == 0 and "jaxenvs[render]" in printed
    assert (tmp_path / "bare" / "checkpoint").is_dir()


def test_a_log_that_cannot_be_written_leaves_no_run(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    for kind, word in (("wandb", "jaxenvs[wandb]"), ("cvs", 'Close: "csv"')):
        folder = tmp_path / kind
        arguments = [*SMALL, "--log", kind, "--output", folder]
        status, printed = run(capsys, "train", "ppo", "CartPole-v1", *arguments)
        assert status == 2 and word in printed
        assert not folder.exists()


def test_a_failed_start_leaves_nothing_behind(capsys, monkeypatch, tmp_path):
    def fail(**options):
        assert (tmp_path / "runs" / "1" / "metrics.csv").exists()
        raise RuntimeError("no account")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=fail))
    arguments = ["ppo", "CartPole-v1", *SMALL, "--output", tmp_path / "runs" / "1"]
    with pytest.raises(RuntimeError, match="no account"):
        run(capsys, "train", *arguments, "--log", "wandb")
    assert not list(tmp_path.iterdir())
    (tmp_path / "runs" / "1").mkdir(parents=True)
    (tmp_path / "runs" / "1" / "notes.txt").touch()
    with pytest.raises(RuntimeError, match="no account"):
        run(capsys, "train", *arguments, "--log", "wandb")
    assert [path.name for path in tmp_path.rglob("*.*")] == ["notes.txt"]
    (tmp_path / "runs" / "1" / "metrics.csv").touch()
    status, printed = run(capsys, "train", *arguments)
    assert status == 2 and "metrics.csv" in printed
    assert "--output" in printed and "resume=True" not in printed


def test_a_dry_run_prints_a_configuration_that_can_be_trained(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    arguments = ["--seed", "7", "--set", "storage.type=prioritizedreplay", "--set", "gamma=0.9"]
    status, printed = run(capsys, "train", "dqn", "CartPole-v1", *arguments, "--dry-run")
    assert status == 0 and not list(tmp_path.iterdir())
    assert "# discount per step" in printed and "# 0 draws uniformly" in printed
    (tmp_path / "mine.toml").write_text(printed)
    config = Config.read("mine.toml")
    assert (config.seed, config.settings["gamma"]) == (7, 0.9)
    assert isinstance(config.make_storage(), PrioritizedReplay)
    again = ["train", "--config", "mine.toml", "--num-envs", "2", "--dry-run"]
    status, printed = run(capsys, *again)
    assert tomllib.loads(printed) == {**tomllib.loads(config.to_toml()), "num_envs": 2}
    status, printed = run(capsys, "train", "ppo", "CartPole-v1", "--config", "mine.toml")
    assert status == 2 and "configures DQN, not ppo" in printed


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("gamma=1", "gamma", 1.0),
        ("learning_rate=3e-4", "learning_rate", 3e-4),
        ("target_kl=.02", "target_kl", 0.02),
        ("target_kl=none", "target_kl", None),
        ("max_gradient_norm=none", "max_gradient_norm", False),
        ("epochs=1e1", "epochs", 10),
        ("anneal=False", "anneal", False),
        ("shuffle=time", "shuffle", "time"),
        ("actor.hidden_sizes=64,32", "actor.hidden_sizes", (64, 32)),
        ("actor.hidden_sizes=64", "actor.hidden_sizes", (64,)),
        ("actor.hidden_sizes=[8, 8]", "actor.hidden_sizes", (8, 8)),
        ("actor.extractor={type='MLP'}", "actor.extractor", {"type": "MLP"}),
        ("actor.extractor=NatureCNN", "actor.extractor", "NatureCNN"),
        ("storage.type=VTrace", "storage.type", "VTrace"),
    ],
)
def test_setting_text_becomes_a_value_of_the_right_type(text, name, value):
    config = command.with_settings(config_for("ppo", "CartPole-v1"), [text])
    table, _, key = name.rpartition(".")
    assert getattr(config, table or "settings").get(key) == value


def test_hosted_environment_works_with_every_command(capsys, tmp_path):
    id, folder = "gymnasium/CartPole-v1", tmp_path / "run"
    status, printed = run(capsys, "info", id)
    assert status == 0 and "Discrete(2)" in printed and "500 steps" in printed
    status, printed = run(capsys, "train", "ppo", id, *SMALL, "--output", folder)
    assert status == 0 and "Solved at: 475" in printed
    assert Config.read(folder / "config.toml").settings["learning_rate"] == 7e-4
    status, printed = run(capsys, "train", "--resume", folder)
    assert status == 0 and "512 of them already done" in printed
    status, printed = run(capsys, "eval", folder, "--episodes", 5)
    assert status == 0 and " 8 " in printed  # two of each of four
    status, printed = run(capsys, "enjoy", folder, "--max-steps", 4)
    assert status == 0 and "5 frames of 600 x 400" in printed
    picture = folder / "native.png"
    arguments = ["-o", picture, "--checkpoint", folder, "--max-steps", 3]
    assert run(capsys, "render", "CartPole-v1", *arguments)[0] == 0 and picture.exists()


def returns_in(printed):
    """The rows of the table that `eval` prints: name, episodes, figures."""
    rows = [line.split() for line in printed.splitlines() if "CartPole" not in line]
    return [row for row in rows if len(row) >= 9 and row[-8].isdigit()]


@pytest.mark.slow
def test_eval_shows_each_run_and_all_seeds_together(capsys, trained, seeds):
    status, printed = run(capsys, "eval", trained, seeds, "--episodes", 20, "--seed", 1)
    assert status == 0 and "solved at a mean of 475" in printed
    one, third, fourth, both = returns_in(printed)
    assert one[0] == f"{trained}" and fourth[0] == f"{seeds / 'seed_4'}"
    assert [row[-8] for row in (one, third, fourth, both)] == ["20", "20", "20", "40"]
    means = [float(row[-7]) for row in (third, fourth, both)]
    assert means[2] == pytest.approx((means[0] + means[1]) / 2, abs=0.11)
    figures = [float(x) for x in one[-5:]]
    assert figures == sorted(figures) and figures[0] >= 1
    assert run(capsys, "eval", trained, seeds, "--episodes", 20, "--seed", 1)[1] == printed
    status, printed = run(capsys, "eval", seeds, "--which", "best")
    assert status == 2 and "--evaluate-every" in printed


def test_eval_leaves_out_episodes_that_max_steps_cuts(capsys, trained):
    status, printed = run(capsys, "eval", trained, "--episodes", 3, "--max-steps", 1)
    assert status == 0
    assert returns_in(printed)[0][1:] == ["0", *["-"] * 7]  # no episode is over


def test_a_trained_policy_is_rendered_by_both_commands(capsys, trained):
    path, again = trained / "a.gif", trained / "b.gif"
    status, printed = run(
        capsys, "render", "CartPole-v1", "-o", path, "--checkpoint", trained, "--max-steps", 7
    )
    assert status == 0
    with Image.open(path) as gif:
        assert f"{gif.n_frames} frames" in printed and gif.size == (600, 400)
    arguments = ["--episodes", 2, "--max-steps", 7, "-o", again]
    status, printed = run(capsys, "enjoy", trained, *arguments)
    assert status == 0 and printed.count(",") >= 1
    with Image.open(again) as gif:
        assert f"{gif.n_frames} frames" in printed
    path.unlink()
    again.unlink()


def test_a_policy_with_a_memory_is_played_in_a_window(capsys, monkeypatch, seeds):
    shown = []
    monkeypatch.setattr(enjoy.Window, "show", lambda self, frame: shown.append(frame))
    monkeypatch.setattr(enjoy, "_is_closed", lambda: len(shown) == 12)
    arguments = ["--window", "--episodes", 3, "--max-steps", 8]
    status, printed = run(capsys, "enjoy", seeds, *arguments)
    assert status == 0 and len(shown) == 12  # closed in the second or third episode
    assert "first of 2 runs" in printed and "Episode 1: return" in printed
    assert shown[0].shape == (400, 600, 3) and (shown[0] != shown[5]).any()


def test_a_checkpoint_of_another_id_is_refused(capsys, trained):
    status, printed = run(
        capsys, "render", "Acrobot-v1", "-o", trained / "b.gif", "--checkpoint", trained
    )
    assert status == 2 and "is for CartPole-v1" in printed


def test_curve_label_names_what_differs_between_runs():
    def named(*settings):
        runs = []
        for number, (algorithm, id, changes) in enumerate(settings):
            config = config_for(algorithm, id).with_settings(changes)
            runs.append([Run(Path(f"runs/{number}"), config)])
        return labels(runs)

    pole, car = "CartPole-v1", "MountainCar-v0"
    assert named(("ppo", pole, {}), ("dqn", pole, {})) == ["PPO", "DQN"]
    assert named(("ppo", pole, {}), ("ppo", car, {})) == [f"PPO {pole}", f"PPO {car}"]
    rates = [("ppo", pole, {"learning_rate": x, "actor.hidden_sizes": [8, 8]}) for x in (1e-3, 0.1)]
    assert named(*rates, ("a2c", pole, {})) == [
        *("PPO learning_rate=0.001", "PPO learning_rate=0.1", "A2C")
    ]
    memory = ("ppo", pole, {"actor.memory": "gru"})
    assert named(("ppo", pole, {}), memory) == ["PPO", "PPO memory=gru memory_size=128"]
    many = ("ppo", pole, {"gamma": 0.5, "epochs": 1, "minibatches": 1, "clip": 0.1})
    assert named(("ppo", pole, {}), many) == ["PPO runs/0", "PPO runs/1"]


def test_runs_are_compared_in_one_picture(capsys, trained, seeds, tmp_path):
    path = tmp_path / "curves.png"
    status, printed = run(capsys, "plot", trained, "-o", tmp_path / "new" / "curves.png")
    assert status == 2 and "no folder" in printed and not (tmp_path / "new").exists()
    status, printed = run(capsys, "plot", trained, seeds, "-o", path)
    assert status == 0 and "2 runs" in printed and "memory=gru" in printed
    with Image.open(path) as picture:
        colors = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)
    assert len(colors) > 20
    status, printed = run(capsys, "plot", trained, "-o", path, "--metric", "entrop")
    assert status == 2 and 'Close: "entropy"' in printed


@pytest.mark.slow
def test_ctrl_c_saves_what_is_trained_in_hosted_environments(tmp_path):
    small = ["--num-envs", "4", "--unroll-length", "32", *SMALL[SMALL.index("--set") :]]
    command = [sys.executable, "-m", "jaxenvs", "train", "ppo", "gymnasium/CartPole-v1", *small]
    process = subprocess.Popen(
        [*command, *("--total-steps", "999936", "--report-every", "300", "--output", "out")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        metrics = tmp_path / "out" / "metrics.csv"
        while process.poll() is None and not (
            metrics.exists() and metrics.read_text().count("\n") > 1  # a row below the names
        ):
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "Traceback" not in errors, errors
    assert "Stopped by SIGINT" in out and "stopping after this step" in errors
    assert (tmp_path / "out" / "checkpoint").is_dir()
