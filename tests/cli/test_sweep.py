import json

import numpy as np
import pytest

from jaxenvs.training import sweeps
from jaxenvs.training.config import Config
from tests.cli._running import run


@pytest.fixture(autouse=True)
def _fake(monkeypatch):
    """Replaces training: the score of a trial is its gamma, and of the second seed one more."""

    def _train(configs, keys, part, metric, parallel):
        for trial, config in configs.items():
            scores = config.settings.get("gamma", 0.5) + np.arange(len(keys))
            yield trial, config.total_steps // part, scores

    monkeypatch.setattr(sweeps, "_train", _train)


def sweep(capsys, *arguments):
    return run(capsys, "sweep", "a2c", "CartPole-v1", "--total-steps", 9000, *arguments)


def test_sweep_ranks_trials_and_writes_the_best(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    arguments = ["--search", "gamma=0.9..0.99", "--search", "anneal=true,false", "--seed", 5]
    arguments += ["--seeds", 2, "--trials", 8, "--rungs", 2, "--factor", 4]
    status, printed = sweep(capsys, *arguments)
    folder = tmp_path / "runs" / "sweep" / "a2c" / "CartPole-v1"
    names = ["best.toml", "sweep.json", "sweep.png", "trials.jsonl"]
    assert status == 0 and f"Wrote runs/sweep/a2c/CartPole-v1/: {', '.join(names)}" in printed
    assert sorted(path.name for path in folder.iterdir()) == names
    rows = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == [2250] * 8 + [9000] * 2
    best = max(rows, key=lambda row: (row["rung"], row["scores"]))
    shown = printed.partition("the best by")[2].splitlines()
    table = [line.split() for line in shown if line[1:2].isdigit()]
    assert len(table) == 8 and table[0][0] == f"{best['trial']}" and table[0][1] == "9,000"
    assert float(table[0][2]) == pytest.approx(0.5 + best["settings"]["gamma"], abs=1e-3)
    config = Config.read(folder / "best.toml")
    assert config.settings["gamma"] == best["settings"]["gamma"] and config.seed == 7
    assert config == config.complete() and config.total_steps == 9000
    assert sweep(capsys, *arguments)[1] == printed  # from the file
    status, printed = sweep(capsys, *arguments[:-2])
    assert status == 2 and "contains another sweep" in printed


def test_sweep_reads_spaces_from_file_and_command_line(capsys, tmp_path):
    path = tmp_path / "space.toml"
    path.write_text("""
        learning_rate = "1e-4..1e-2:log"
        gamma = 0.5
        actor.hidden_sizes = [[8], [16, 16]]
        num_envs = "4..8"
    """)
    status, printed = sweep(
        capsys,
        *("--space", path, "--search", "max_gradient_norm=none,0.5", "--trials", 64, "--dry-run"),
        *("--search", "actor.memory=['gru', 'lstm']"),
    )
    trials = json.loads(printed)
    assert status == 0 and len(trials) == 64
    rates = np.array([trial["learning_rate"] for trial in trials])
    assert rates.min() >= 1e-4 and rates.max() <= 1e-2 and 0.4 < (rates < 1e-3).mean() < 0.6
    values = {name: {json.dumps(trial[name]) for trial in trials} for name in trials[0]}
    assert values["gamma"] == {"0.5"} and values["actor.hidden_sizes"] == {"[8]", "[16, 16]"}
    assert values["num_envs"] == {*"45678"} and values["max_gradient_norm"] == {"null", "0.5"}
    assert values["actor.memory"] == {'"gru"', '"lstm"'}
