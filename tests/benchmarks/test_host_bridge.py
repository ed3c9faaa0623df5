import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks import host_bridge
from benchmarks.host import auto, environments, partial, record, waiting
from benchmarks.host.overlap import share_hidden
from benchmarks.host.record import Figure, Record
from benchmarks.host.simulation import ideal_seconds


def quiet(repeats=3):
    return Record("part", repeats, min_seconds=0, quick=True, quiet=True)


# --- the simulation ---


def test_equal_environments_together_take_one_step_per_batch():
    assert ideal_seconds([[2.0]] * 4, batch_size=4, num_batches=3) == pytest.approx(6)


def test_halves_of_equal_environments_come_at_the_same_time():
    # At 2 both halves are finished, are returned one after the other and sent to at once.
    assert ideal_seconds([[2.0]] * 4, batch_size=2, num_batches=1) == pytest.approx(2)
    assert ideal_seconds([[2.0]] * 4, batch_size=2, num_batches=2) == pytest.approx(2)
    assert ideal_seconds([[2.0]] * 4, batch_size=2, num_batches=5) == pytest.approx(6)


def test_a_slow_environment_is_not_waited_for_until_it_is_needed():
    # The fast one alone: 1, 2, 3; the slow one comes at 10, when the fast one has done 10.
    assert ideal_seconds([[1.0], [10.0]], batch_size=1, num_batches=3) == pytest.approx(3)
    assert ideal_seconds([[1.0], [10.0]], batch_size=1, num_batches=11) == pytest.approx(10)
    assert ideal_seconds([[1.0], [10.0]], batch_size=2, num_batches=3) == pytest.approx(30)


def test_a_batch_waits_for_the_later_of_its_two():
    # Finished: a at 1, b at 3, so {a, b} at 3; then a at 4, c at 5, so {a, c} at 5; then b at 6
    # and a at 6, which c, finished at 10, does not delay.
    durations = [[1.0], [3.0], [5.0]]
    times = [ideal_seconds(durations, batch_size=2, num_batches=n) for n in (1, 2, 3)]
    assert times == pytest.approx([3, 5, 6])


def test_durations_repeat_when_they_run_out():
    assert ideal_seconds([[1.0, 2.0]], batch_size=1, num_batches=5) == pytest.approx(7)


# --- statistics ---


def test_race_alternates_and_takes_ratios_within_a_repetition():
    turns = []

    def side(name, seconds):
        following = iter(seconds)

        def run(calls):
            turns.append(name)
            return next(following) * calls

        return run

    measured = quiet()
    # The first two samples of each warm up.
    took = measured.race("case", {"a": side("a", [9, 9, 1, 2, 8]), "b": side("b", [9, 9, 2, 2, 2])})
    assert turns == list("aabb" + "ab" + "ba" + "ab")
    assert took == {"a": [1, 2, 8], "b": [2, 2, 2]}
    assert record.ratios(took["b"], took["a"]) == [2, 1, 0.25]
    assert record.fastest(took, "ab") == "a"
    assert [each.micros for each in measured.measurements] == [[1e6, 2e6, 8e6], [2e6] * 3]


def test_figure_margin_compares_the_median_with_the_requirement():
    assert Figure("p", "c", "n", [1.0, 3.0, 100.0], required=2.0).margin == 1.5
    assert Figure("p", "c", "n", [1.0, 3.0, 100.0], required=6.0, at_least=False).margin == 2
    assert Figure("p", "c", "n", [1.0, 3.0, 100.0], required=1.5, at_least=False).margin == 0.5
    assert Figure("p", "c", "n", [1.0]).margin is None


def test_share_hidden_is_relative_to_the_shorter_duration():
    assert share_hidden(host=3, device=2, both=3) == 1
    assert share_hidden(host=3, device=2, both=5) == 0
    assert share_hidden(host=1, device=2, both=2.5) == 0.5


def test_log_normal_times_have_the_requested_mean():
    assert np.mean(partial.times(1e-3, 1, 100_000)) == pytest.approx(1e-3, rel=0.02)
    assert np.mean(partial.times(1e-3, 0, 100_000)) == pytest.approx(1e-1, rel=0.02)
    assert partial.times(1e-3, 1) != partial.times(1e-3, 2)


# --- environments and processes ---


def test_iterations_take_as_long_as_was_asked_for():
    count = environments.iterations(0.001)
    best = min(_seconds(environments.loop, count) for _ in range(30))
    assert 0.0003 < best < 0.005


def _seconds(function, *args):
    begin = time.perf_counter()
    function(*args)
    return time.perf_counter() - begin


def test_sleeping_environments_tell_how_long_they_slept():
    env = environments.Sleeping([0.002, 0.01])
    for _ in range(3):
        env.step(0)
    short, long, again = env.pop_durations()
    assert short >= 0.002 and long >= 0.01 and again >= 0.002
    assert env.pop_durations() == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_processes_are_stopped_while_it_is_not_their_turn():
    process = subprocess.Popen(["sh", "-c", "while :; do :; done"])

    def state():
        time.sleep(0.05)
        with open(f"/proc/{process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]

    try:
        with record.paused([process.pid]) as park:
            assert state() == "T"
            seen = []
            assert park(lambda calls: seen.append(state()) or 1.0)(1) == 1.0
            assert seen == ["R"] and state() == "T"
        assert state() == "R"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_exchange_returns_all_durations_and_leaves_none_pending():
    import jaxenvs

    fns = [lambda: environments.Sleeping([0.001])] * 4
    with jaxenvs.make_pool(fns, batch_size=2, num_workers=4, backend="thread") as pool:
        pool.reset()
        seconds, durations = partial.exchange(pool, 5)
        # Four are sent to first, and two after each of the first four batches.
        assert sum(map(len, durations)) == 4 + 2 * 4
        assert ideal_seconds(durations, 2, 5) <= 1.2 * seconds
        pool.step(np.zeros(4, np.int64))  # which refuses while anybody owes a result


def test_auto_cases_with_too_long_steps_are_left_out():
    cases = list(auto._grid((1, 1024), (1e-6, 1e-2), (1e-3,)))
    assert cases == [
        ("busy", 1, 1e-6),
        ("busy", 1, 1e-2),
        ("busy", 1024, 1e-6),
        ("sleeping", 1, 1e-3),
    ]


# --- parts, reports ---


def test_waiting_part_measures_serial_thread_and_asyncio(monkeypatch):
    monkeypatch.setattr(waiting, "NUM_ENVS", 8)
    measured = quiet()
    waiting.measure(measured)
    assert {each.contestant for each in measured.measurements} == {"serial", "thread", "asyncio"}
    assert all(figure.middle > 1 for figure in measured.figures)


@pytest.fixture
def report(monkeypatch):
    """Of two parts: one that is measured in a process of its own, one that fails."""
    monkeypatch.setitem(host_bridge.PARTS, "missing", ("no_such_part", ""))
    options = host_bridge._parse(["--only", "efficiency,missing", "--quick", "--quiet"])
    options.repeats, options.min_seconds = 1, 0.0
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    monkeypatch.setattr(os, "environ", environment)
    return host_bridge.measure(options, ["--only", "efficiency,missing"])


def test_report_of_parts_names_the_machine_and_failed_parts(report, tmp_path):
    assert report["machine"]["versions"]["gymnasium"]
    assert {each["part"] for each in report["figures"]} == {"efficiency"}
    assert len(report["notes"]) == 1 and report["notes"][0].startswith("missing: failed")
    assert set(report["seconds"]) == {"efficiency", "missing"}

    text = host_bridge.table(report)
    for entry in report["measurements"]:
        assert f"| {entry['case']} | {entry['contestant']} |" in text
    assert "missing: failed" in text

    path = tmp_path / "results.json"
    path.write_text(json.dumps(report))
    host_bridge.main(["--load", str(path), "--quiet"])


def test_the_table_says_which_figure_is_reached():
    def entry(values, required, at_least=True):
        return vars(Figure("p", "c", "n", values, required, at_least))

    host = {"cpu": "a", "cores": 2, "platform": "cpu", "device": "cpu", "python": "3"}
    figures = [entry([2.0], 1.5), entry([1.0], 1.5), entry([1.0], 1.5, False), entry([7.0], None)]
    report = {
        "machine": host | {"versions": {}},
        "date": "today",
        "repeats": 1,
        "measurements": [],
        "notes": [],
        "figures": figures,
    }
    lines = host_bridge.table(report).splitlines()
    assert lines[4].endswith("| 2 [2, 2] | ≥ 1.5 | reached |")
    assert lines[5].endswith("| 1 [1, 1] | ≥ 1.5 | **missed** |")
    assert lines[6].endswith("| 1 [1, 1] | ≤ 1.5 | reached |")
    assert lines[7].endswith("| 7 [7, 7] |  |  |")
