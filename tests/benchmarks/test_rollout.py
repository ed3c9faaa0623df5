import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import _common, first_step, forms, hlo, limit, rollout

needs_compiler = pytest.mark.skipif(limit.compiler() is None, reason="no C compiler")


@pytest.fixture(autouse=True, scope="module")
def allow_implicit_promotion():
    """gymnax promotes dtypes implicitly, which the other tests forbid."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def run(tmp_path, *arguments):
    """Runs the benchmark as from the command line, tiny, and reads its results."""
    path = tmp_path / "results.json"
    small = ["--steps", "8", "--repeats", "3", "--min-seconds", "0", "--quiet"]
    rollout.main([*small, "--output", str(path), *arguments])
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return run(
        tmp_path_factory.mktemp("rollout"),
        *("--ids", "CartPole-v1", "--num-envs", "32", "--variants", "autoreset_mode=disabled"),
    )


def test_every_contestant_is_measured_in_every_repetition(report):
    contestants = {entry["contestant"]: entry for entry in report["measurements"]}
    assert {"jaxenvs", "jaxenvs[autoreset_mode=disabled]"} <= contestants.keys()
    assert any(name.startswith("limit") for name in contestants) == bool(limit.compiler())
    for entry in contestants.values():
        assert len(entry["steps_per_second"]) == 3
        assert all(speed > 0 for speed in entry["steps_per_second"])


def test_ratios_are_taken_within_a_repetition(report):
    ours, *others = report["measurements"]
    assert ours["ours_over_this"] == [1, 1, 1]
    for other in others:
        expected = np.divide(ours["steps_per_second"], other["steps_per_second"])
        np.testing.assert_allclose(other["ours_over_this"], expected)


def test_the_report_names_machine_versions_and_command(report):
    assert report["machine"]["cores"] >= 1 and report["machine"]["cpu"]
    assert f"jax{report['machine']['versions']['jax']}" in _common.slug(report)
    assert "--num-envs 32" in report["command"]


def test_the_table_shows_every_contestant(report):
    text = rollout.table(report)
    assert all(f"| {entry['contestant']} |" in text for entry in report["measurements"])


@pytest.mark.interop
def test_gymnax_does_the_same_work(tmp_path):
    pytest.importorskip("gymnax")
    arguments = ("--ids", "CartPole-v1", "--num-envs", "256", "--steps", "128")
    ours, theirs = run(tmp_path, *arguments, "--peers", "gymnax")["measurements"]
    assert theirs["contestant"] == "gymnax"
    assert ours["mean_episode_length"] == pytest.approx(22.3, abs=1.5)
    assert theirs["mean_episode_length"] == pytest.approx(22.3, abs=1.5)


def test_a_level_can_have_another_time_limit(tmp_path):
    arguments = ("--ids", "MiniGrid-Empty-16x16-v0", "--num-envs", "8", "--max-steps", "4")
    (entry,) = run(tmp_path, *arguments, "--steps", "8", "--peers", "")["measurements"]
    assert entry["id"] == "MiniGrid-Empty-16x16-v0, 4 steps"
    assert entry["mean_episode_length"] == 4
    assert 16 * 16 + 7 * 7 * 3 < entry["bytes_per_instance"] < 16 * 16 + 7 * 7 * 3 + 100


def test_a_variant_sets_arguments_of_make_vec(tmp_path):
    with pytest.raises(TypeError, match="no_such_argument"):
        run(tmp_path, "--ids", "CartPole-v1", "--num-envs", "4", "--variants", "no_such_argument=N")


@needs_compiler
@pytest.mark.parametrize("action", [0, 1])
def test_the_c_loop_steps_as_gymnasium_does(action):
    reference = gymnasium.make("CartPole-v1").unwrapped
    reference.reset(seed=0)
    for state in np.random.default_rng(0).uniform(-0.2, 0.2, (50, 4)) * (10, 10, 1, 10):
        reference.state, reference.steps_beyond_terminated = tuple(state), None
        expected = reference.step(action)[0]
        np.testing.assert_allclose(limit.step(state, action), expected, rtol=1e-5, atol=1e-5)


@needs_compiler
def test_c_loop_gives_the_same_episodes_on_any_thread_count():
    one, two = limit.CartPoleLanes(65), limit.CartPoleLanes(65)
    assert one.rollout(500, num_threads=1) == two.rollout(500, num_threads=2)


@needs_compiler
def test_the_c_loop_truncates_at_500_steps():
    lanes = limit.CartPoleLanes(1)
    lanes.elapsed[:] = 499
    assert lanes.rollout(1) == 1 and lanes.elapsed[0] == 0
    assert np.abs(lanes.state).max() <= 0.05


@needs_compiler
@pytest.mark.parametrize("vectorize", [True, False])
def test_c_loop_episodes_have_the_length_of_a_random_policy(vectorize):
    lanes = limit.CartPoleLanes(1024, vectorize=vectorize)
    finished = lanes.rollout(2000)
    assert 1024 * 2000 / finished == pytest.approx(22.25, abs=0.3)


def test_hlo_counts_loops_and_sines_of_a_compiled_program():
    def program(x):
        return jax.lax.while_loop(lambda x: x[0] < 9, lambda x: jnp.sin(x) + 1, x)

    text = jax.jit(program).lower(jnp.zeros(8)).compile().as_text()
    counts = hlo.count(text, num_envs=8)
    assert counts["while"] == 1 and counts["sine"] == 1 and counts["cosine"] == 0


def test_hlo_sees_a_loop_that_lies_within_one_kernel():
    text = """
%body (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %s = f32[8]{0} sine(%p)
}

%inner (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %w = f32[8]{0} while(%p), condition=%test, body=%body
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %c = f32[8]{0} call(%p), to_apply=%inner, frontend_attributes={xla_cpu_small_call="true"}
}
"""
    counts = hlo.count(text, num_envs=8)
    assert counts["calls compiled as one kernel"] == 1 and counts["kernels on each step"] == 0
    outside = hlo.count(text.replace('xla_cpu_small_call="true"', ""), num_envs=8)
    assert outside["calls compiled as one kernel"] == 0 and outside["kernels on each step"] == 1


@pytest.mark.interop
def test_hlo_prints_ours_beside_a_peer(capsys):
    pytest.importorskip("gymnax")
    hlo.main(["MountainCar-v0", "4", "--steps", "8", "--peer", "gymnax"])
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["jaxenvs"] == ["gymnax"]
    assert all(int(number) >= 1 for number in lines["while"])


def test_every_form_of_a_rollout_is_measured(tmp_path):
    path = tmp_path / "forms.json"
    forms.main(
        ["--ids", "CartPole-v1", "--num-envs", "4", "--steps", "64", "--repeats", "2", "--quiet"]
        + ["--min-seconds", "0", "--peers", "", "--output", str(path)]
    )
    found = json.loads(path.read_text())
    rows = {entry["contestant"]: entry for entry in found["measurements"]}
    assert len(rows) == 7
    lengths = [entry["mean_episode_length"] for entry in rows.values()]
    assert all(10 < length < 60 for length in lengths)  # of random play, 22
    assert all(name in forms.table(found) for name in rows)


def test_first_steps_are_measured_in_stages(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "clear_caches", lambda: None)  # other tests need what is compiled
    path = tmp_path / "first.json"
    first_step.main(["--ids", "NChain-v0", "--quiet", "--output", str(path)])
    found = json.loads(path.read_text())
    (entry,) = found["measurements"]
    assert all(entry[part][stage] > 0 for part in first_step.PARTS for stage in first_step.STAGES)
    assert f"| {first_step.total(entry):.1f} |" in first_step.table(found)
