import json

import numpy as np
import pytest

from benchmarks import schemes


def test_every_combination_that_schemes_accept_is_a_case_once():
    names = [case.name for case in schemes.cases(["PPO"], ["threads"], [])]
    assert len(names) == len(set(names)) == 12
    assert all("/sync/" in name for name in names if name.endswith("decentralized"))
    assert len(schemes.cases(["PPO", "DQN"], ["ray"], [])) == 22  # one has no workers
    (case,) = schemes.cases(["DQN"], ["devices"], [])
    assert case.name == "central/sync/decentralized"
    for case in schemes.cases(["PPO", "DQN"], list(schemes.PLACES), []):
        chosen = case.scheme()  # which refuses what contradicts itself
        assert (chosen.collection.n, chosen.gradients.n) == tuple(
            1 if mode == "central" else 2 for mode in (case.collection, case.gradients)
        )


def test_report_has_every_requested_combination_and_seed(tmp_path, monkeypatch, capsys):
    def train(case, seed, limit):
        told = {"return": 474.0 + seed, "steps": 512.0, "seconds": 1.5, "start_seconds": 2.5}
        return told | {"collection_lag": 0.25, "gradient_lag": float("nan")}

    monkeypatch.setattr(schemes, "train", train)
    path = tmp_path / "results.json"
    chosen = ["--algorithms", "PPO", "--places", "threads", "--seeds", "0,1", "--share", "0.5"]
    only = ["--only", "async/central/centralized,sync/central/centralized"]
    schemes.main([*chosen, *only, "--output", str(path), "--quiet"])
    assert capsys.readouterr().err == ""
    report = json.loads(path.read_text())
    assert [entry["collection"] for entry in report["measurements"]] == ["sync", "async"]
    for entry in report["measurements"]:
        assert entry["return"] == [474, 475] and entry["limit"] == 200_000
    row = schemes.table(report).splitlines()[-1]
    assert row.startswith(
        "| PPO | threads | async | central | centralized | 1 of 2 | 474 [474, 475]"
    )
    assert row.endswith("| 0.25 |  |")


@pytest.mark.slow
def test_training_ends_when_an_evaluation_reaches_the_target(monkeypatch):
    means = iter([500.0, 20.0, 475.0, 500.0])

    class Told:
        mean = property(lambda self: next(means))

    monkeypatch.setattr(schemes.Learner, "evaluate", lambda self, number: Told())
    monkeypatch.setattr(schemes, "EVALUATE_EVERY", 1000)
    (case,) = schemes.cases(["PPO"], ["threads"], ["async/central/centralized"])
    told = schemes.train(case, 0, 400_000)
    # The first evaluation compiles, and two updates of 512 steps lie between the others.
    assert told["return"] == 475 and told["steps"] == 2048
    assert told["seconds"] > 0 and told["start_seconds"] > 0
    assert 0 < told["collection_lag"] <= 2 and np.isnan(told["gradient_lag"])


@pytest.mark.slow
def test_training_ends_when_its_steps_are_used_up(monkeypatch):
    class Told:
        mean = 20.0

    monkeypatch.setattr(schemes.Learner, "evaluate", lambda self, number: Told())
    (case,) = schemes.cases(["PPO"], ["threads"], ["central/central/centralized"])
    told = schemes.train(case, 0, 1200)
    assert told["return"] == 20 and told["steps"] == 1536
    assert np.isnan(told["collection_lag"])
