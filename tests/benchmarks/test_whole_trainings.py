"""The benchmarks of whole training runs: what they count, and that they run."""

import json
import os
import time

import pytest

from benchmarks import scaling, time_to_solve
from benchmarks._common import new_report
from benchmarks.time_to_solve import EVERY, SOLVED, Clock


def run(name, ready, seconds, returns, again=None):
    runs = {
        "seed": 0,
        "is_solved": returns[-1] >= SOLVED,
        "steps": len(returns) * EVERY,
        "ready_seconds": ready,
        "seconds": seconds,
        "evaluation_seconds": 1.0,
        "returns": returns,
    }
    again = {} if again is None else {"again_seconds": again}
    return {"contestant": name, "runs": [runs | again]}


def test_the_clock_excludes_evaluations():
    clock = Clock(10 * EVERY)
    clock.start()
    time.sleep(0.02)
    clock.ready()

    def mean_return():
        time.sleep(0.2)
        return 10.0

    assert clock.evaluate(mean_return)
    assert clock.evaluate(mean_return)
    assert 0.02 <= clock.ready_seconds < 0.2
    assert clock.seconds < 0.2 and clock.evaluation_seconds >= 0.4
    assert clock.steps == 2 * EVERY and not clock.is_solved


def test_a_training_ends_when_it_is_solved_or_has_no_steps_left():
    clock = Clock(10 * EVERY)
    assert not clock.evaluate(lambda: float(SOLVED))
    assert clock.is_solved and clock.steps == EVERY
    clock = Clock(2 * EVERY + 1)
    assert clock.evaluate(lambda: 0.0)
    assert not clock.evaluate(lambda: 0.0)
    assert not clock.is_solved


def test_ratios_are_to_the_peer_that_trains_faster():
    report = new_report("time_to_solve", [], (), 1) | {
        "measurements": [
            run("jaxenvs", 3.0, 0.5, [100.0, 480.0], again=0.5),
            run("sb3", 0.1, 20.0, [480.0]),
            run("sb3-1thread", 0.2, 9.8, [480.0]),
        ]
    }
    text = time_to_solve.table(report)
    (row,) = (line for line in text.splitlines() if line.startswith("| jaxenvs "))
    training, before, everything = (cell.split()[0] for cell in row.split("|")[-4:-1])
    assert float(training) == pytest.approx(9.8 / 0.5)
    assert float(before) == pytest.approx(10 / 1.0)
    assert float(everything) == pytest.approx(10 / 3.5, abs=0.01)
    assert "Ratios to sb3-1thread" in text


def test_scaling_is_relative_to_the_first_entry_of_a_part():
    def entry(part, number, seconds):
        return {"part": part, "number": number, "seconds": seconds, "compile_seconds": 1.0}

    measurements = [
        entry("seeds", 1, [1.0, 2.0, 4.0]),
        entry("seeds", 8, [4.0, 8.0, 16.0]),
        entry("devices", 0, [1.0, 1.0, 1.0]),
        entry("devices", 2, [1.5, 1.5, 1.5]),
    ]
    report = new_report("scaling", [], (), 3) | {"steps": 10, "measurements": measurements}
    text = scaling.table(report)
    assert "| 8 seeds | 8.00 [6.00, 12.00] | 4.00 [4.00, 4.00] | 1.000 |" in text
    assert "| no shard | 1.00" in text and "| 1.50 [1.50, 1.50] |" in text


def test_forced_device_count_is_set_and_restored(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_a=1 {scaling.FORCED}=8")
    with scaling._flags(2):
        assert os.environ["XLA_FLAGS"].split() == ["--xla_a=1", f"{scaling.FORCED}=2"]
    assert os.environ["XLA_FLAGS"].endswith("=8")


@pytest.mark.slow
def test_scaling_runs_on_seeds_and_devices(tmp_path):
    path = tmp_path / "results.json"
    small = ["--seeds", "2", "--devices", "1", "--steps", "16384", "--repeats", "2", "--quiet"]
    scaling.main([*small, "--output", str(path)])
    measurements = json.loads(path.read_text())["measurements"]
    found = [(entry["part"], entry["number"]) for entry in measurements]
    assert found == [("seeds", 2), ("devices", 0), ("devices", 1)]
    assert all(len(entry["seconds"]) == 2 for entry in measurements)


@pytest.mark.interop
@pytest.mark.slow
def test_time_to_solve_runs_with_both_libraries(tmp_path):
    pytest.importorskip("stable_baselines3")
    path = tmp_path / "results.json"
    names = ["--contestants", "jaxenvs,jaxenvs-zoo,sb3-1thread", "--seeds", "1"]
    time_to_solve.main([*names, "--steps", str(2 * EVERY), "--quiet", "--output", str(path)])
    for entry in json.loads(path.read_text())["measurements"]:
        (run,) = entry["runs"]
        assert run["steps"] == EVERY * len(run["returns"]) and 1 <= len(run["returns"]) <= 2
        assert run["seconds"] > 0 and run["ready_seconds"] > 0
        assert ("again_seconds" in run) == entry["contestant"].startswith("jaxenvs")
