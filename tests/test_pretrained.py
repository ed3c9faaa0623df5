"""Pretrained policies: the files, where they are found, and what they do."""

import dataclasses
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import pretrained, spaces
from jaxenvs.cli import main
from jaxenvs.errors import TrainingError
from jaxenvs.training import ActorCritic, ActorPolicy
from jaxenvs.training.extractors import MLP, SmallCNN

INDEX = pretrained.index()
ID = "CartPole-v1"
CHOICE = spaces.Discrete(3, start=1)
IMAGE = spaces.Box(0, 255, (6, 5, 2), np.uint8)
VECTOR = spaces.Box(-1.0, 1.0, (3,))


def greedy(*both_spaces, **actor):
    """The untrained policy of an actor."""
    networks = ActorCritic(**actor).build(*both_spaces)
    features = networks.features(both_spaces[0].batch(2).sample(jax.random.key(0)))
    params = jax.jit(networks.init)(jax.random.key(0), features)
    return ActorPolicy(params=params, observation_statistics=None, networks=networks)


def assert_same_actions(policy, number=256):
    """Checks that NumPy and JAX agree, also after a step with a memory."""
    space, act = policy.networks.observation_space, policy.to_numpy()
    observation = space.batch(number).sample(jax.random.key(1))
    inputs = jax.tree.map(np.asarray, observation)
    if policy.networks.is_recurrent:
        carry, expected_carry = None, policy.networks.initial_carry(number)
        step = jax.jit(policy._act)
        for _ in range(2):
            expected_carry, expected = step(expected_carry, observation, None)
            carry, actions = act(carry, inputs)
    else:
        expected, actions = jax.jit(policy)(observation, None), act(inputs)
        np.testing.assert_allclose(
            act(jax.tree.map(lambda x: x[3], inputs)), expected[3], rtol=1e-4, atol=1e-5
        )
    assert (actions.shape, actions.dtype) == (expected.shape, expected.dtype)
    if np.issubdtype(actions.dtype, np.integer):
        np.testing.assert_array_equal(actions, expected)
    else:
        np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)


def test_files_are_those_of_the_index_and_small():
    files = {path.name: path.read_bytes() for path in pretrained.FOLDER.glob("*")}
    assert {entry["file"] for entry in INDEX.values()} == set(files)
    for entry in INDEX.values():
        content = files[entry["file"]]
        assert entry["sha256"] == pretrained.checksum(content)
        assert entry["bytes"] == len(content)
    assert sum(map(len, files.values())) < 5e6


@pytest.mark.parametrize("id", INDEX)
def test_numpy_acts_like_the_policy_of_each_file(id):
    file = pretrained.find_policy(id)
    assert file.config.id == id and file.config == file.config.complete()
    assert all(array.dtype == np.float32 for array in file.arrays.values())
    assert {name: file.score[name] for name in ("mean", "random")}.items() <= INDEX[id].items()
    assert_same_actions(file.policy())


@pytest.mark.parametrize("id", [ID, "Acrobot-v1", "MountainCarContinuous-v0"])
def test_policies_reach_the_score_of_the_index(id):
    policy, env, entry = jaxenvs.load_policy(id), jaxenvs.make_vec(id, 30), INDEX[id]
    result = jaxenvs.evaluate(env, policy, 1, jax.random.key(7))
    error = entry["std"] * (1 / 30 + 1 / entry["episodes"]) ** 0.5
    assert result.finished.all()
    assert float(result.mean) == pytest.approx(entry["mean"], abs=4 * error + 1e-3)


def test_a_written_module_needs_only_numpy(tmp_path):
    act = jaxenvs.load_policy(ID).to_numpy(tmp_path / "balance.py")
    code = (
        "import sys, balance, numpy as np\n"
        "print(balance.policy(np.linspace(-0.2, 0.2, 80).reshape(20, 4)).tolist())\n"
        "assert not {'jax', 'jaxenvs', 'flax', 'gymnasium'} & {*sys.modules}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    expected = act(np.linspace(-0.2, 0.2, 80).reshape(20, 4)).tolist()
    assert json.loads(done.stdout) == expected and len(set(expected)) == 2, done.stderr


def test_numpy_translates_a_convolution_of_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # on CPU, it is a product
    assert_same_actions(greedy(IMAGE, CHOICE, extractor=SmallCNN(layer_norm=True)), 8)


@pytest.mark.parametrize("activation", ["elu", "gelu", "silu"])
def test_numpy_translates_each_activation(activation):
    assert_same_actions(greedy(VECTOR, VECTOR, activation=activation), 8)


def test_numpy_refuses_what_it_cannot_translate():
    policy = greedy(VECTOR, CHOICE, extractor=MLP((8,), jax.lax.erf))
    with pytest.raises(TrainingError, match=r"operation erf.*jax.export"):
        policy.to_numpy()
    narrow = greedy(VECTOR, CHOICE, extractor=nn.Dense(4, dtype=jnp.bfloat16))
    with pytest.raises(TrainingError, match="of bfloat16"):
        narrow.to_numpy()
    with pytest.raises(TrainingError, match="samples"):
        dataclasses.replace(policy, greedy=False).to_numpy()


def test_an_unknown_id_gets_the_closest_and_all():
    with pytest.raises(TrainingError, match=f'Close: "{ID}".*{[*INDEX][-1]}'):
        jaxenvs.load_policy("CartPole-v2")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no policy"),
        (b"x", "is not the file"),
        ({"weights": np.zeros(2)}, "is not the file"),
        ({"header": json.dumps({"format": 9, "jaxenvs": "3.0"})}, "format 9.*3.0.*format 1"),
    ],
)
def test_a_file_that_is_no_policy_is_refused(tmp_path, content, message):
    path = tmp_path / "policy.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, **content)
    with pytest.raises(TrainingError, match=message):
        jaxenvs.load_policy(path)


@pytest.fixture
def release(tmp_path, monkeypatch):
    """A folder that stands for the release, outside of a clone, and with an empty cache."""
    content = (pretrained.FOLDER / INDEX[ID]["file"]).read_bytes()
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "policies")
    monkeypatch.setattr(pretrained, "RELEASES", (tmp_path / "releases").as_uri())
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path / 'cache'}")
    folder = tmp_path / "releases" / f"v{jaxenvs.__version__}"
    folder.mkdir(parents=True)
    (folder / INDEX[ID]["file"]).write_bytes(content)
    return folder


def test_a_policy_is_downloaded_once_and_checked(release):
    cached = pretrained.cache_folder() / INDEX[ID]["file"]
    assert pretrained.find_policy(ID).path == cached
    (release / cached.name).unlink()
    assert pretrained.find_policy(ID).path == cached
    assert [*cached.parent.iterdir()] == [cached]
    cached.write_bytes(b"damaged")
    with pytest.raises(TrainingError, match=f"cannot be downloaded.*{cached}"):
        jaxenvs.load_policy(ID)
    (release / cached.name).write_bytes(b"of another version")
    with pytest.raises(TrainingError, match=f"expected {INDEX[ID]['sha256']}"):
        jaxenvs.load_policy(ID)


def test_a_release_has_the_files_that_are_downloaded():
    root = Path(__file__).resolve().parents[1]
    urls = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert f"{urls['Source']}/releases/download" == pretrained.RELEASES
    workflow = (root / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert "gh release create" in workflow and " policies/*.npz" in workflow


def test_a_changed_file_in_a_clone_is_refused(release):
    pretrained.FOLDER.mkdir()
    (pretrained.FOLDER / INDEX[ID]["file"]).write_bytes(b"changed")
    with pytest.raises(TrainingError, match="another checksum"):
        jaxenvs.load_policy(ID)


def test_command_line_plays_pretrained_policies(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["enjoy", ID, "--max-steps", "5"]) == 0
    assert (tmp_path / "CartPole-v1.gif").is_file()
    assert main(["eval", ID, "--episodes", "3"]) == 0
    printed = capsys.readouterr().out
    assert "return 5.0" in printed and "500.0" in printed
    assert main(["eval", ID, "--which", "best"]) == 2
    assert "Omit --which" in capsys.readouterr().err
