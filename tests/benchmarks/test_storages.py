import json

import jax
import numpy as np
import pytest

from benchmarks import storages


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Runs the benchmark as from the command line, tiny, and reads its results."""
    pytest.importorskip("flashbax")
    path = tmp_path_factory.mktemp("storages") / "results.json"
    small = ["--capacities", "64", "--batch-sizes", "4", "--repeats", "3", "--min-seconds", "0"]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        storages.main([*small, "--quiet", "--output", str(path)])
    return json.loads(path.read_text())


def test_storages_are_measured_and_compared_in_each_repetition(report):
    for ours, theirs in np.reshape(report["measurements"], (-1, 2)):
        assert (ours["contestant"], theirs["contestant"]) == ("jaxenvs", "flashbax")
        assert ours["kind"] == theirs["kind"] and ours["this_over_ours"] == [1, 1, 1]
        expected = np.divide(theirs["seconds"], ours["seconds"])
        np.testing.assert_allclose(theirs["this_over_ours"], expected)
    assert [each["kind"] for each in report["measurements"][::2]] == ["uniform", "prioritized"]


def test_bytes_are_those_of_the_transitions_and_of_priorities(report):
    held = {(each["id"], each["storage"]): each for each in report["bytes"]}
    cartpole = held["CartPole-v1", "jaxenvs Replay"]
    assert cartpole["transition"] == 2 * 16 + 4 + 4 + 2 and cartpole["once"] == 26
    assert cartpole["allocated"] == 100_000 * 42 + 4
    prioritized = held["CartPole-v1", "jaxenvs PrioritizedReplay"]["allocated"]
    assert (prioritized - cartpole["allocated"]) / 100_000 == pytest.approx(4 * 8 / 7, rel=1e-3)
    image = held["84x84x4 images", "jaxenvs Replay"]
    assert image["allocated"] / 100_000 / image["once"] == pytest.approx(2, rel=1e-3)
    goals = held["goals", "jaxenvs Hindsight"]["allocated"]
    assert goals - held["goals", "jaxenvs Replay"]["allocated"] == pytest.approx(8e5, rel=1e-3)


def test_the_table_shows_every_storage(report):
    text = storages.table(report)
    assert all(f"| {each['storage']} |" in text for each in report["bytes"])
    assert text.count("| flashbax |") == 2
