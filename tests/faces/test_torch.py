import functools

import gymnasium
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ActionError
from jaxenvs.wrappers import AddRenderObservation, RecordEpisodeStatistics

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.interop

SIZES = (4, 9_000)  # returned in one buffer, and as separate arrays
LIMIT = 12


def cartpoles(num_envs, output="torch", **options):
    return jaxenvs.make_gym("CartPole-v1", num_envs, output=output, time_limit=LIMIT, **options)


def alternating(num_envs, step):
    return (np.arange(num_envs) // 2 + step) % 2


@pytest.mark.parametrize("num_envs", SIZES)
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_tensors_equal_the_arrays(num_envs, mode):
    ours = cartpoles(num_envs, autoreset_mode=mode, wrappers=[RecordEpisodeStatistics])
    plain = cartpoles(num_envs, "numpy", autoreset_mode=mode, wrappers=[RecordEpisodeStatistics])
    tensors, arrays = ours.reset(seed=1), plain.reset(seed=1)
    for t in range(LIMIT + 2):
        mine, other = jax.tree.leaves(tensors), jax.tree.leaves(arrays)
        for tensor, array in zip(mine, other, strict=True):
            if array.dtype == object or not isinstance(tensor, torch.Tensor):
                continue  # final_obs and masks are compared below
            assert tensor.device.type == "cpu"
            assert tensor.numpy().dtype == array.dtype
            np.testing.assert_array_equal(tensor, array)
        actions = alternating(num_envs, t)
        tensors, arrays = ours.step(torch.from_numpy(actions)), plain.step(actions)
    observations, rewards, terminated, truncated, infos = tensors
    kinds = [part.dtype for part in (observations, rewards, terminated, truncated)]
    assert kinds == [torch.float32, torch.float32, torch.bool, torch.bool]
    assert infos["episode_length"].dtype == torch.int32


def test_final_observations_are_tensors():
    ours = cartpoles(4, autoreset_mode="same_step")
    plain = cartpoles(4, "numpy", autoreset_mode="same_step")
    ours.reset(seed=0), plain.reset(seed=0)
    ends = 0
    for t in range(LIMIT):
        infos, reference = (e.step(alternating(4, t))[4] for e in (ours, plain))
        for i in np.flatnonzero(reference.get("_final_obs", [])):
            ends += 1
            assert isinstance(infos["final_obs"][i], torch.Tensor)
            np.testing.assert_array_equal(infos["final_obs"][i], reference["final_obs"][i])
    assert ends >= 4


@pytest.mark.parametrize("num_envs", SIZES)
def test_a_tensor_shares_memory_with_the_array(num_envs, monkeypatch):
    seen = []
    original = torch.from_dlpack

    def remember(array):
        seen.append(array)
        return original(array)

    monkeypatch.setattr(torch, "from_dlpack", remember)
    envs = cartpoles(num_envs)
    first, _ = envs.reset(seed=0)
    parts = [first, *envs.step(alternating(num_envs, 0))[:4]]
    assert len(seen) == len(parts) == 5
    for array, tensor in zip(seen, parts, strict=True):
        assert tensor.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("num_envs", SIZES)
def test_tensors_belong_to_the_caller(num_envs):
    envs, other = cartpoles(num_envs), cartpoles(num_envs, "numpy")
    tensors, copies = [envs.reset(seed=0)[0]], [other.reset(seed=0)[0].copy()]
    for t in range(20):
        actions = alternating(num_envs, t)
        tensors += envs.step(actions)[:4]
        copies += [part.copy() for part in other.step(actions)[:4]]
    for tensor, copy in zip(tensors, copies, strict=True):
        np.testing.assert_array_equal(tensor, copy)
    tensors[-4].zero_()
    assert (envs.step(alternating(num_envs, 20))[0] != 0).any()


def test_tensors_outlive_their_environment():
    envs = cartpoles(4)
    observations = envs.reset(seed=0)[0]
    copy = observations.clone()
    envs.close()
    del envs
    cartpoles(4).reset(seed=1)
    assert torch.equal(observations, copy)


def test_actions_can_be_tensors_or_arrays():
    runs = []
    for kind in (torch.int64, torch.int32, torch.uint8, np.int64, np.int32):
        envs = cartpoles(4)
        envs.reset(seed=0)
        actions = alternating(4, 0)
        is_torch = isinstance(kind, torch.dtype)
        runs.append(envs.step(torch.tensor(actions, dtype=kind) if is_torch else kind(actions))[0])
    assert all(torch.equal(runs[0], run) for run in runs)


def test_actions_may_require_a_gradient():
    envs, plain = (jaxenvs.make_gym("Pendulum-v1", 3, output=o) for o in ("torch", "numpy"))
    envs.reset(seed=0), plain.reset(seed=0)
    torques = torch.full((3, 1), 0.5, requires_grad=True)
    observations = envs.step(torques * 2)[0]
    np.testing.assert_array_equal(observations, plain.step(np.ones((3, 1), np.float32))[0])


def test_invalid_tensors_are_refused():
    envs = cartpoles(4)
    envs.reset(seed=0)
    with pytest.raises(ActionError, match="float32"):
        envs.step(torch.zeros(4))
    with pytest.raises(ActionError, match="num_envs=4"):
        envs.step(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ActionError, match="instances"):
        envs.step(torch.tensor([0, 1, 2, 0]))


def test_trees_of_observations_become_trees_of_tensors():
    pixels = functools.partial(AddRenderObservation, render_only=False)
    envs = cartpoles(2, wrappers=[pixels])
    observations, _ = envs.reset(seed=0)
    assert {name: part.dtype for name, part in observations.items()} == {
        "state": torch.float32,
        "pixels": torch.uint8,
    }


def test_step_async_returns_tensors():
    envs = cartpoles(4)
    envs.reset(seed=0)
    envs.step_async(torch.zeros(4, dtype=torch.int64))
    assert isinstance(envs.step_wait()[0], torch.Tensor)


def test_infos_are_pytorch_trees():
    from torch.utils._pytree import tree_map

    envs = cartpoles(4, "numpy", wrappers=[RecordEpisodeStatistics])
    envs.reset(seed=0)
    infos = tree_map(torch.from_numpy, envs.step(alternating(4, 0))[4])
    assert infos["episode_length"].tolist() == [1] * 4


def test_no_gymnasium_wrapper_is_needed_for_tensors():
    pytest.importorskip("array_api_compat")
    wrapped = gymnasium.wrappers.vector.NumpyToTorch(cartpoles(4, "numpy"))
    ours = cartpoles(4)
    assert torch.equal(wrapped.reset(seed=0)[0], ours.reset(seed=0)[0])
    actions = torch.from_numpy(alternating(4, 0))
    for mine, other in zip(ours.step(actions)[:4], wrapped.step(actions)[:4], strict=True):
        assert mine.dtype == other.dtype and torch.equal(mine, other)
