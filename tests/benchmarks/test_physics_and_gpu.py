"""The measurements of physics and of GPUs, with tiny numbers."""

import dataclasses
import functools
import json
import time

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies

from benchmarks import gpu, gpu_kernels, mujoco_training, physics, rollout


def test_contestants_of_physics_have_equal_threads_and_peers():
    for num_envs, expected in (
        (1, [("jit", 1), ("make_gym", 1), ("Gymnasium", 1)]),
        (16, [(name, count) for name in ("make_gym", "EnvPool") for count in (1, 2)]),
        (256, [(name, count) for name in ("jit", "EnvPool") for count in (1, 2)]),
    ):
        assert physics.contestants("Ant-v5", num_envs, [1, 2], False) == expected
    assert ("pool", 2) in physics.contestants("Ant-v5", 64, [1, 2], False)
    assert ("mjx", 1) in physics.contestants("Ant-v5", 64, [1, 2], True)


def test_report_of_physics_has_every_contestant(tmp_path, capsys):
    path = tmp_path / "results.json"
    small = ["--repeats", "2", "--min-seconds", "0", "--steps", "2", "--quiet"]
    chosen = ["--ids", "InvertedPendulum-v5", "--num-envs", "1"]
    physics.main([*chosen, *small, "--output", str(path)])
    report = json.loads(path.read_text())
    names = [entry["contestant"] for entry in report["measurements"]]
    assert names == ["jit", "make_gym", "Gymnasium"]
    for entry in report["measurements"]:
        assert len(entry["steps_per_second"]) == 2 and min(entry["steps_per_second"]) > 0
    assert "| InvertedPendulum-v5 | 1 | jit | 1 |" in physics.table(report)


@pytest.mark.slow
def test_report_of_trainings_has_every_contestant(tmp_path, capsys):
    path = tmp_path / "results.json"
    small = ["--id", "InvertedPendulum-v5", "--steps", "2048", "--repeats", "1", "--quiet"]
    chosen = ["--contestants", "jaxenvs,pool"]
    mujoco_training.main([*small, *chosen, "--output", str(path)])
    report = json.loads(path.read_text())
    assert [entry["contestant"] for entry in report["measurements"]] == ["jaxenvs", "pool"]
    assert "| InvertedPendulum-v5 | jaxenvs |" in mujoco_training.table(report)


def test_gpu_parts_measure_steps(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "MOST_SAMPLES", 2)
    path = tmp_path / "results.json"
    chosen = ["--ids", "Hopper-v5", "--engines", "c", "--num-envs", "2", "--steps", "2"]
    gpu.main(["--only", "physics,atari", *chosen, "--minutes", "2", "--output", str(path)])
    physics, game = json.loads(path.read_text())["measurements"]
    assert physics["part"] == "physics" and physics["physics_steps"] == 4
    assert min(*physics["steps_per_second"], *game["steps_per_second"]) > 0
    assert "| Hopper-v5 | c | 2 |" in capsys.readouterr().out


def test_gpu_rollouts_and_trainings_have_ratios_to_peers(tmp_path, monkeypatch):
    def gymnax(*args):
        return dataclasses.replace(rollout.ours(*args), name="gymnax")

    monkeypatch.setattr(gpu, "MOST_SAMPLES", 3)
    monkeypatch.setattr(gpu._common, "version", lambda package: "1.0")
    monkeypatch.setattr(rollout, "gymnax", gymnax)
    monkeypatch.setattr(gpu.peers, "install", lambda: None)
    monkeypatch.setattr(gpu.peers, "purejaxrl_ppo", lambda folder, settings: lambda key: key)
    (tmp_path / "ppo.py").touch()
    path = tmp_path / "results.json"
    chosen = ["--ids", "CartPole-v1", "--num-envs", "4", "--steps", "512", "--quiet"]
    others = ["--purejaxrl", str(tmp_path), "--output", str(path)]
    gpu.main(["--only", "rollout,training", *chosen, *others])
    report = json.loads(path.read_text())
    assert [entry["part"] for entry in report["measurements"]] == ["rollout", "training"]
    for entry, name in zip(report["measurements"], ("gymnax", "PureJaxRL"), strict=True):
        (peer,) = entry["peers"]
        speeds = zip(entry["steps_per_second"], peer["steps_per_second"], strict=True)
        assert peer["ours_over_this"] == [a / b for a, b in speeds]
        assert f"| {name} " in gpu.table(report)


def test_gpu_measures_only_what_is_missing_when_resumed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "MOST_SAMPLES", 2)
    path = tmp_path / "results.json"
    chosen = ["--ids", "FrozenLake-v1", "--num-envs", "4", "--steps", "512", "--output", str(path)]
    gpu.main(["--only", "rollout", *chosen])
    first = json.loads(path.read_text())["measurements"]
    assert first[0]["engine"] == "jaxenvs"
    assert f"| {first[0]['kernels']} |" in capsys.readouterr().out

    variants = ["--variants", "unroll=2,xla_gpu_graph_min_graph_size=1", "xla_no_such_flag=1"]
    gpu.main(["--only", "rollout,pools,variants", *chosen, *variants, "--resume"])
    second = json.loads(path.read_text())["measurements"]
    assert second[: len(first)] == first
    *measured, failed = second
    assert {entry["part"] for entry in measured} == {"rollout", "pools", "variants"}
    assert all(min(entry["steps_per_second"]) > 0 for entry in measured)
    assert "No such compile option" in failed["error"]


@pytest.mark.parametrize("failure", ["slow", "wrong"])
def test_gpu_report_says_what_was_not_measured(failure, tmp_path, monkeypatch):
    def run(kind, until):
        if kind == "slow":
            time.sleep(60)
        if kind == "wrong":
            raise ValueError("no such thing\nand more")
        return {"steps_per_second": [2.0], "physics_steps": 3, "compile_seconds": 100.0}

    kinds = ["right", "right", failure]
    monkeypatch.setitem(
        gpu.PARTS,
        "physics",
        lambda options: (
            gpu.Case({"id": kind, "engine": "c", "num_envs": 1}, kind, functools.partial(run, kind))
            for kind in kinds
        ),
    )
    path, start = tmp_path / "results.json", time.perf_counter()
    gpu.main(["--only", "physics", "--minutes", "0.005", "--output", str(path), "--quiet"])
    assert time.perf_counter() - start < 20
    first, second, third = json.loads(path.read_text())["measurements"]
    assert first["steps_per_second"] == [2.0]
    assert second["error"] == "no time was left"  # its program took 100 seconds to compile
    slow, wrong = "it had not ended when the time was over", "ValueError: no such thing"
    assert third["error"] == (slow if failure == "slow" else wrong)


def test_kernels_are_those_of_one_step_of_a_rollout():
    def run(carry, key):
        def step(carry, key):
            return jnp.sort(carry) + jax.random.uniform(key), None

        return jax.lax.scan(step, carry, jax.random.split(key, 5))[0]

    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    one = gpu_kernels.kernels(rollout.Contestant("", jnp.zeros(64), run), place)
    twice = gpu_kernels.kernels(
        rollout.Contestant("", jnp.zeros(64), lambda carry, key: run(run(carry, key), key)), place
    )
    assert 2 <= one == twice < 40


def test_kernels_without_a_plugin_name_what_to_install(monkeypatch):
    def refuse(*args, **kwargs):
        raise NotImplementedError("topology not implemented for cuda")

    monkeypatch.setattr(topologies, "get_topology_desc", refuse)
    with pytest.raises(SystemExit, match="pip install --no-deps jax-cuda12-plugin"):
        gpu_kernels.main(["--quiet"])
