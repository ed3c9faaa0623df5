"""Small training runs reach, with one seed, most of what benchmarks/learning.py shows of five."""

import dataclasses
import json

import pytest

from benchmarks import _common, learning

pytestmark = pytest.mark.optimized  # they run for longer than they compile

TASKS = {task.name: task for task in learning.TASKS}


def trained(name, total_steps):
    task = TASKS[name]
    config = task.config.replace(total_steps=total_steps)
    return learning.learn(dataclasses.replace(task, config=config), 1, 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "total_steps", "enough"),
    [
        ("A2C CartPole-v1", 250_000, 150),
        ("SAC Pendulum-v1", 8_000, -300),
        ("PPO GRU bsuite/memory_len-v0", 120_000, 0.8),
        ("DQN hindsight BitFlipping-v0", 40_000, 0.6),
        ("PPO CartPole-v1", 150_000, 300),
        ("PPO Acrobot-v1", 150_000, -150),
        ("DQN CartPole-v1", 25_000, 120),
        ("TD3 Pendulum-v1", 12_000, -400),
        ("PPO CNN bsuite/catch-v0", 60_000, 0.8),
        ("PPO LSTM bsuite/memory_len-v0", 120_000, 0.8),
        ("PQN CartPole-v1", 100_000, 200),
        ("PQN Taxi-v4", 1_000_000, 6.0),
        ("PPO MiniGrid-Empty-8x8-v0", 100_000, 0.9),
    ],
)
def test_algorithm_learns_its_task(name, total_steps, enough):
    assert trained(name, total_steps)["scores"][0] >= enough


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "total_steps"),
    [("PPO feed-forward bsuite/memory_len-v0", 120_000), ("DQN replay BitFlipping-v0", 40_000)],
)
def test_agents_without_memory_or_hindsight_do_not_learn(name, total_steps):
    """Without memory, and without hindsight: 100 episodes of a coin average within 0.4 of 0."""
    assert trained(name, total_steps)["scores"][0] <= 0.4


def test_the_table_counts_the_seeds_that_reach_the_target(tmp_path):
    entry = {
        "task": "A2C CartPole-v1", "id": "CartPole-v1", "steps": 64, "num_envs": 4, "target": 475,
        "at_most": False, "score": "mean return", "scores": [500.0, 480.0, 10.0],
        "compile_seconds": 1.0, "run_seconds": 2.0, "curve_steps": [32, 64],
        "curves": [[None, 20.0], [10.0, 30.0], [10.0, 10.0]],
    }  # fmt: skip
    report = _common.new_report("learning", [], [], 3) | {"episodes": 5, "measurements": [entry]}
    assert "| ≥ 475 | 480 | [245, 490] | 10 | 2 of 3 |" in learning.table(report)
    entry |= {"at_most": True, "target": 20}
    assert "| ≤ 20 | 480 | [245, 490] | 500 | 1 of 3 |" in learning.table(report)
    learning.plot(report, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_measurements_of_other_tasks_are_kept_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "learn", lambda task, *_: {"task": task.name, "scores": [1.0]})
    path = tmp_path / "kept.json"
    names = ["TD3 Pendulum-v1", "PPO CartPole-v1", "DQN CartPole-v1"]
    for i, name in enumerate(names):
        keep = ["--keep", str(path)] if i else []
        options = learning._parse(["--only", name, "--output", str(path), "--quiet", *keep])
        report = learning.measure(options)
        path.write_text(json.dumps(report))
    assert [entry["task"] for entry in report["measurements"]] == [names[1], names[2], names[0]]
    report["machine"]["cores"] += 1
    path.write_text(json.dumps(report))
    with pytest.raises(SystemExit, match="another machine"):
        learning.measure(options)


def test_tasks_are_chosen_by_name_and_id():
    def names(*arguments):
        return [task.name for task in learning.selected_tasks(learning._parse(arguments))]

    assert names() == list(TASKS)
    assert names("--ids", "Pendulum-v1") == ["SAC Pendulum-v1", "TD3 Pendulum-v1"]
    assert names("--only", "SAC Pendulum-v1", "--ids", "CartPole-v1") == []
    with pytest.raises(SystemExit):
        names("--only", "SAC Pendulum-v0")
