import dataclasses
import re
import tomllib
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxenvs import struct
from jaxenvs.errors import TrainingError, UnknownEnvironmentError, UnknownParameterError
from jaxenvs.factory import make_vec
from jaxenvs.registry import registry
from jaxenvs.training import (
    GAE,
    PPO,
    ActorCritic,
    ActorTwinQ,
    PrioritizedReplay,
    Replay,
    VTrace,
    remote,
)
from jaxenvs.training.config import Config, config_for
from jaxenvs.training.extractors import ImpalaCNN, NatureCNN
from jaxenvs.training.optimizers import LearningRate
from jaxenvs.training.parts import ALGORITHMS
from jaxenvs.training.tuned import tuned
from tests.ids import every_nth

IDS = {"SAC": "Pendulum-v1", "TD3": "Pendulum-v1"}


@pytest.mark.parametrize(
    ("algorithm", "id"),
    [
        *every_nth(20, tuned()),
        *((name, IDS.get(name, "Acrobot-v1")) for name in ALGORITHMS),
    ],
)
def test_tuned_settings_are_for_registered_ids_and_trace(algorithm, id):
    config = config_for(algorithm, id)
    assert id in registry
    train = config.make_train()
    rows = -(-train.num_updates // train.report_every)
    assert 20 <= rows <= 1000  # enough for a curve, and no more than fit in a picture
    result = jax.eval_shape(train, jax.random.key(config.seed))
    assert result.metrics["episode_return"].shape == (rows,)


@pytest.mark.parametrize("algorithm", ["A2C", "DQN", "PPO", "SAC", "VPG"])
def test_agents_for_bsuite_play_one_instance(algorithm):
    config = config_for(algorithm, "bsuite")
    assert config.num_envs == 1 and (algorithm, "bsuite") not in tuned()
    assert config.make_train(env=make_vec("bsuite/catch_noise/3", 1)).env.num_envs == 1


def test_every_classic_control_id_is_tuned_for_ppo():
    ids = {spec.id for spec in registry.values() if spec.family == "classic_control"}
    assert ids - {"CartPole-v0"} <= {id for algorithm, id in tuned() if algorithm == "PPO"}


@pytest.mark.parametrize(
    ("algorithm", "id", "other"),
    [
        ("PPO", "CartPole-v0", "CartPole-v1"),
        ("PQN", "Taxi-v3", "Taxi-v4"),
        ("DQN", "MinAtar/Seaquest-v1", "MinAtar/Seaquest-v0"),
    ],
)
def test_versions_of_an_id_share_their_settings(algorithm, id, other):
    assert config_for(algorithm, id) == config_for(algorithm, other).replace(id=id)
    assert config_for(algorithm, f"{other}0").settings  # version 10 or 40
    family = "MinAtar/Any-v0" if "/" in id else "Any-v0"
    assert config_for(algorithm, other.replace("-v", "2-v")).settings == (
        config_for(algorithm, family).settings
    )


def test_a_family_of_ids_shares_its_settings(monkeypatch):
    sizes = {"num_envs": 1, "unroll_length": 8, "total_steps": 64}
    family = {"num_envs": 3, "settings": {"gamma": 0.9, "clip": 0.3}}
    own = {"num_envs": 4, "settings": {"clip": 0.1}}
    tables = {
        "default": sizes,
        "MiniGrid-DoorKey-5x5-v0": own,
        "MiniGrid-DoorKey-*": family,
        "MiniGrid-*": {**sizes, "num_envs": 2},
    }
    monkeypatch.setattr("jaxenvs.training.tuned.tuned_tables", lambda cls: tables)
    for id, num_envs in (
        ("CartPole-v1", 1),
        ("MiniGrid-Empty-5x5-v0", 2),
        ("MiniGrid-DoorKey-8x8-v0", 3),
        ("MiniGrid-DoorKey-5x5-v0", 4),
        ("MiniGrid-DoorKey-5x5-v1", 4),
    ):
        config = config_for("PPO", id)
        assert config.num_envs == num_envs and config.unroll_length == 8
        clip = {3: 0.3, 4: 0.1}.get(num_envs)
        assert config.settings == ({} if clip is None else {"gamma": 0.9, "clip": clip})


@pytest.mark.parametrize("id", every_nth(2, ["MiniGrid-Fetch-5x5-N2-v0", "BabyAI-GoToRedBall-v0"]))
def test_a_level_without_settings_of_its_own_traces(id):
    config = config_for("PPO", id)
    assert config.actor["extractor"]["image"]["categories"] == [11, 6, 3]
    jax.eval_shape(config.make_train(), jax.random.key(0))


@pytest.mark.parametrize("algorithm", ["PPO", "PQN"])
def test_games_of_atari_are_learned_from_small_pictures(algorithm):
    pytest.importorskip("ale_py")
    train = config_for(algorithm, "ALE/Pong-v5").make_train()
    assert train.env.single_observation_space.shape == (4, 84, 84)
    assert "ClipReward" in repr(train.env)
    jax.eval_shape(train, jax.random.key(0))
    assert config_for(algorithm, "gymnasium/ALE/Pong-v5").env == {}


def test_tuned_file_names_only_algorithms():
    from importlib.resources import files

    tables = tomllib.loads((files("jaxenvs.training") / "tuned.toml").read_text())
    assert set(tables) == set(ALGORITHMS)
    assert all("default" in ids for ids in tables.values())


def test_hosted_id_has_the_settings_of_its_native_task():
    native, hosted = (config_for("ppo", f"{x}CartPole-v1") for x in ("", "gymnasium/"))
    assert hosted == native.replace(id="gymnasium/CartPole-v1")
    assert native.algorithm == "PPO" and native.make_algorithm().epochs == 10
    other = config_for("PPO", "Unheard-v0")
    assert other.settings == {} and (other.num_envs, other.unroll_length) == (64, 64)


def test_box_actions_have_other_defaults(monkeypatch):
    monkeypatch.setattr("jaxenvs.training.tuned.tuned_tables", lambda cls: known[cls.__name__])
    known = {"PPO": {"default": {"num_envs": 4}, "continuous": {"num_envs": 2}}}
    for sizes in known["PPO"].values():
        sizes |= {"unroll_length": 8, "total_steps": 64}
    for id in ("Pendulum-v1", "gymnasium/Pendulum-v1"):
        config = config_for("ppo", id)
        assert config.num_envs == 2
        assert vars(config.make_algorithm()) == vars(PPO.continuous())
    for id in ("CartPole-v1", "gymnasium/CartPole-v1", "Unheard-v0"):
        config = config_for("ppo", id)
        assert config.num_envs == 4 and config.settings == {}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_file_reads_back_as_what_was_written(tmp_path, algorithm):
    config = config_for(algorithm, "CartPole-v1").replace(seed=7)
    complete = config.complete()
    for each in (config, complete):
        assert Config.read(each.write(tmp_path / "new" / "config.toml")) == each
    assert complete.complete() == complete
    whole, partial = (each.make_algorithm() for each in (complete, config))
    for field in dataclasses.fields(whole):
        assert getattr(whole, field.name) == getattr(partial, field.name)
    assert complete.make_actor() == config.make_actor()
    assert set(complete.settings) >= {"learning_rate", "gamma"} and "type" in complete.storage


def test_handwritten_config_file_may_omit_most_settings(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('id = "CartPole-v1"\nalgorithm = "dqn"\n[settings]\ngamma = 1\n')
    config = Config.read(path)
    assert config.algorithm == "DQN" and config.num_envs == 8
    assert config.settings == {"gamma": 1.0}  # nothing tuned comes in


def test_config_file_in_the_documentation_is_valid(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "usage" / "command_line.md"
    (text,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "mine.toml").write_text(text)
    config = Config.read(tmp_path / "mine.toml")
    assert isinstance(config.make_storage(), VTrace) and config.make_actor().memory is not None


def test_tables_name_parts_and_their_settings():
    config = config_for("DQN", "Acrobot-v1").with_settings(
        {
            "gamma": 1,
            "actor.hidden_sizes": [32],
            "actor.extractor": {
                "image": {"type": "impalacnn", "channels": [4, 8]},
                "other": "NatureCNN",
            },
            "storage.type": "prioritizedreplay",
            "storage.capacity": 500,
        }
    )
    actor, storage = config.make_actor(), config.make_storage()
    assert isinstance(storage, PrioritizedReplay)
    assert (storage.capacity, storage.n_step) == (500, 1)
    assert actor.hidden_sizes == (32,)
    assert actor.extractor == {"image": ImpalaCNN(channels=(4, 8)), "other": NatureCNN()}
    changed = config.with_settings({"actor.extractor.image.features": 16, "gamma": None})
    assert changed.make_actor().extractor["image"] == ImpalaCNN(channels=(4, 8), features=16)
    assert changed.settings == config_for("DQN", "Acrobot-v1").settings
    assert type(config.with_settings({"storage.type": "Replay"}).make_storage()) is Replay
    assert config_for("TD3", "MountainCarContinuous-v0").make_actor() == ActorTwinQ(
        policy="deterministic"
    )


@pytest.mark.parametrize(("memory", "cell"), [("gru", nn.GRUCell), ("LSTM", nn.OptimizedLSTMCell)])
def test_recurrent_memory_is_set_by_name_and_size(memory, cell):
    config = config_for("PPO", "CartPole-v1").with_settings({"actor.memory": memory})
    assert config.make_actor().memory == cell(128)
    sized = config.with_settings({"actor.memory_size": 16})
    assert sized.make_actor().memory == cell(16)
    assert sized.complete().actor["memory_size"] == 16
    jax.eval_shape(sized.make_train().init, jax.random.key(0))


def test_make_train_arguments_override_the_config():
    config = config_for("PPO", "CartPole-v1")
    actor, algorithm = ActorCritic(hidden_sizes=(8,)), PPO(minibatches=1)
    train = config.make_train(
        env="Acrobot-v1", actor=actor, algorithm=algorithm, storage=VTrace(), num_envs=3
    )
    assert train.env.num_envs == 3 and train.algorithm is algorithm
    assert isinstance(train.storage, VTrace)
    assert train.env.single_observation_space.shape == (6,)
    assert isinstance(config.make_train().storage, GAE)


@pytest.mark.parametrize("off", [None, False])
def test_optional_setting_is_switched_off_by_none_or_false(off, tmp_path):
    config = config_for("PPO", "CartPole-v1").with_settings({"max_gradient_norm": off})
    assert config.make_algorithm().max_gradient_norm is None
    assert "max_gradient_norm = false" in config.complete().to_toml()
    read = Config.read(config.complete().write(tmp_path / "a.toml"))
    assert read == config.complete() and read.make_algorithm().max_gradient_norm is None
    on = config.with_settings({"max_gradient_norm": 0.25})
    assert on.make_algorithm().max_gradient_norm == 0.25


def test_imports_are_written_if_set_and_run_when_needed():
    config = config_for("PPO", "CartPole-v1")
    assert "imports" not in config.to_toml()
    config = config.replace(imports=["nowhere_to_be_found"])
    assert config.imports == ("nowhere_to_be_found",)
    assert tomllib.loads(config.to_toml())["imports"] == ["nowhere_to_be_found"]
    for make in (config.make_train, config.make_env, config.make_scheme):
        with pytest.raises(UnknownEnvironmentError, match='no module "nowhere_to_be_found"'):
            make()


class Sized(nn.Module):
    size: int


@struct.pytree_dataclass
class Deep(PPO):
    learning_rate: LearningRate = optax.constant_schedule(1e-3)

    def default_actor(self):
        return ActorCritic(extractor=NatureCNN(), memory=nn.GRUCell(4), hidden_sizes=[8])


def test_complete_config_omits_defaults_that_no_file_expresses(tmp_path):
    config = config_for(f"{__name__}:Deep", "CartPole-v1")
    complete = Config.read(config.complete().write(tmp_path / "a.toml"))
    assert complete.actor["hidden_sizes"] == (8,) and "memory" not in complete.actor
    for each in (config, complete):
        assert each.make_actor().extractor == NatureCNN()
        assert callable(each.make_algorithm().learning_rate)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lerning_rate": 1.0}, ("PPO", '"lerning_rate"', 'Close: "learning_rate"')),
        ({"epochs": "two"}, ('epochs="two"', "a valid integer")),
        ({"epochs": True}, ("epochs=True", "a valid integer")),
        ({"gamma": "high"}, ('gamma="high"', "a valid number")),
        ({"gamma": 7}, ("gamma=7", "between 0 and 1")),
        ({"anneal": 1}, ("anneal=1", "a valid boolean")),
        ({"shuffle": "cards"}, ('shuffle="cards"', "'steps', 'instances' or 'time'")),
        ({"actor.hidden_sizes": 64}, ("hidden_sizes=64", "a list")),
        ({"actor.hidden_sizes": [6.4]}, ("hidden_sizes=[6.4]", "each item a valid integer")),
        ({"actor.activation": ["relu"]}, ("activation=['relu']", "a valid string")),
        ({"actor.memory": "elephant"}, ('memory="elephant"', "'gru' or 'lstm'")),
        ({"actor.extractor": "NatureCN"}, ('"NatureCN"', 'Close: "NatureCNN"')),
        ({"actor.extractor": 3}, ("the extractor 3", "a name, or a table")),
        ({"actor.extractor": {"type": "MLP", "hiden_sizes": [8]}}, ('Close: "hidden_sizes"',)),
        ({"actor.extractor": f"{__name__}:Sized"}, ("the extractor Sized got no size",)),
        ({"storage.type": "Reply"}, ('"Reply"', 'Close: "Replay"', "Choose one of")),
        ({"storage.type": 3}, ("no storage 3",)),
        ({"storage.capacity": 10}, ("GAE", '"capacity"')),
        ({"network.size": 10}, ('"network.size"', "actor.NAME")),
        ({"scheme.update": "both"}, ('update="both"', "'centralized' or 'decentralized'")),
        ({"scheme.type": "PPO"}, ("Scheme", '"type"')),
        ({"scheme.collection": "remote"}, ('"remote:4:async"',)),
        ({"scheme.collection": "remote:4:later"}, ('collection="remote:4:later"',)),
        ({"scheme.collection": "remote:-1"}, ('collection="remote:-1"',)),
        ({"scheme.collection": 4}, ("collection=4",)),
        ({"scheme.collection": {"workers": 0}}, ("n=0",)),
        ({"scheme.collection": {"workers": "two"}}, ('workers="two"',)),
        ({"scheme.collection": {"workers": 2, "resource": {}}}, ('Close: "resources"',)),
        ({"scheme.collection": {"sync": False}}, ("workers = 4",)),
    ],
    ids=str,
)
def test_invalid_setting_error_says_what_is_valid(changes, words):
    with pytest.raises(TrainingError) as refused:
        config_for("PPO", "CartPole-v1").with_settings(changes)
    assert all(word in str(refused.value) for word in words), str(refused.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "no configuration at"),
        ("id = ", "not TOML"),
        ('id = "CartPole-v1"', "no algorithm"),
        ('id = "CartPole-v1"\nalgorithm = 3', "no algorithm 3"),
        ('id = "CartPole-v1"\nalgorithm = "pp"', 'Close: "PPO"'),
        ('id = "CartPole-v1"\nalgorithm = "ppo"\nnum_env = 3', 'Close: "num_envs"'),
        ('id = "CartPole-v1"\nalgorithm = "ppo"\nnum_envs = 0', "num_envs=0"),
        ('id = "CartPole-v1"\nalgorithm = "ppo"\nactor = "small"', 'actor="small"'),
        ('id = "CartPole-v1"\nalgorithm = "ppo"\nseed = 1.5', "seed=1.5"),
        ('id = "CartPole-v1"\nalgorithm = "ppo"\nseed = -1', "from 0 to 4294967295"),
        ('id = "CartPole-v1"\nalgorithm = "ppo"\nseed = 4294967296', "from 0 to 4294967295"),
    ],
)
def test_invalid_config_file_is_named_with_its_mistake(tmp_path, text, word):
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TrainingError) as refused:
        Config.read(path)
    assert word in str(refused.value) and "mine.toml" in str(refused.value)


STICKY = {
    "type": "stickyaction",
    "repeat_action_probability": [0.5, 0, 0.25],
    "repeat_action_duration": [2, 4],
    "batched": ["repeat_action_probability"],
}


def test_wrappers_are_saved_in_the_config_and_wrap_instances(tmp_path):
    config = config_for("PPO", "Pendulum-v1").replace(
        wrappers=[
            {"type": "RescaleObservation", "min_obs": [-1, -1, -2], "max_obs": 1},
            "FlattenObservation",
            STICKY,
            {"type": "scalereward", "scale": 2},
        ]
    )
    assert Config.read(config.write(tmp_path / "config.toml")) == config
    assert Config.read(config.complete().write(tmp_path / "config.toml")) == config.complete()
    env = config.make_env(7)
    assert [each["type"] for each in config.wrappers] == [
        *("RescaleObservation", "FlattenObservation", "StickyAction", "ScaleReward")
    ]
    probability = env.parameters["repeat_action_probability"]
    np.testing.assert_array_equal(probability, np.float32([0.5] * 3 + [0] * 2 + [0.25] * 2))
    assert env.parameters["scale"] == 2.0
    assert env.single_observation_space.low.tolist() == [-1, -1, -2]
    plain = config.make_env(7, training=False)
    assert plain.single_observation_space == env.single_observation_space
    assert not {"scale", "repeat_action_probability"} & set(plain.parameters)
    assert config.make_train(num_envs=2).env.num_envs == 2
    train = config.make_train(env="CartPole-v1")
    assert train.env.single_observation_space.shape == (4,)


def test_parameters_of_the_environment_are_saved_and_used(tmp_path):
    config = config_for("PPO", "CartPole-v1").with_settings({"env.gravity": 5.0})
    assert config.replace(env={"size": [2, 3]}).env == {"size": (2, 3)}
    config = Config.read(config.write(tmp_path / "config.toml"))
    train = config.make_train(total_steps=1_000)
    for made in (config.make_instance(), config.make_env(2), train.env, config.make_scheme().env):
        assert made.parameters["gravity"] == 5.0
    with pytest.raises(UnknownParameterError, match="gravity"):
        config.with_settings({"env.gravty": 1}).make_env()
    hosted = Config("gymnasium/CartPole-v1", "PPO", 2, 8, 64, env={"sutton_barto_reward": True})
    envs = hosted.replace(env={**hosted.env, "backend": "serial"}).make_env()
    state, key = envs.reset(jax.random.key(0))[0], jax.random.key(1)
    _, timestep = envs.step(state, jnp.zeros(2, jnp.int32), key)
    assert (timestep.reward == 0).all()
    envs.close()


def test_mountain_car_has_sticky_actions_only_in_training():
    for name, id in (("DQN", "MountainCar-v0"), ("SAC", "MountainCarContinuous-v0")):
        config = config_for(name, id)
        probability = config.make_train().env.parameters["repeat_action_probability"]
        np.testing.assert_array_equal(probability, np.float32([0.1] * 8 + [0] * 8))
        assert "StickyAction" not in repr(config.make_env(training=False))
        # Instances of a host cannot be told apart.
        assert config_for(name, f"gymnasium/{id}").wrappers == ()


def test_hosted_environment_is_wrapped_or_refused_with_a_reason():
    config = config_for("PPO", "gymnasium/CartPole-v1").replace(wrappers=["FlattenObservation"])
    env = config.make_env(1)
    try:
        assert "FlattenObservation" in repr(env) and env.num_envs == 1
    finally:
        env.close()
    with pytest.raises(TrainingError, match="the same number"):
        config.replace(wrappers=[STICKY]).make_env(1)


@pytest.mark.parametrize(
    ("wrappers", "words"),
    [
        ("StickyAction", ('wrappers="StickyAction"', "a list")),
        ([3], ("the wrapper 3", "a name, or a table")),
        ([{"stack_size": 3}], ("a table with a type",)),
        (["StickyActions"], ('"StickyActions"', 'Close: "StickyAction"')),
        (["TransformReward"], ('"TransformReward"', "Choose one of")),
        (["StickyAction"], ("StickyAction got no repeat_action_probability",)),
        ([{"type": "ScaleReward", "scale": "2"}], ('scale="2"', "a valid number or a list")),
        ([{"type": "ScaleReward", "scales": 2}], ("ScaleReward", 'Close: "scale"')),
        (
            [{"type": "FilterObservation", "filter_keys": [1.5]}],
            ("each item a valid string",),
        ),
        ([{**STICKY, "batched": ["repeat_action_duration"]}], ("repeat_action_probability can",)),
        ([{**STICKY, "repeat_action_probability": 0.1}], ("a list of numbers",)),
        (
            [
                {
                    "type": "RescaleObservation",
                    "min_obs": [0, 1],
                    "max_obs": 1,
                    "batched": ["min_obs"],
                }
            ],
            ("no settings can differ",),
        ),
    ],
    ids=str,
)
def test_invalid_wrapper_error_says_what_is_valid(wrappers, words):
    with pytest.raises(TrainingError) as refused:
        config_for("PPO", "CartPole-v1").replace(wrappers=wrappers)
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_scheme_is_built_from_names_and_gets_the_wrappers(tmp_path):
    config = config_for("PPO", "CartPole-v1")
    assert config.make_scheme().is_fused
    assert config.with_settings({"scheme.collection": "Central"}).make_scheme().is_fused
    ray = {"workers": 3, "sync": False, "resources": {"num_cpus": 1}}
    config = config.with_settings(
        {
            "scheme.collection": ray,
            "scheme.gradients": "remote:2",
            "scheme.update": "decentralized",
            "storage.type": "VTrace",
        }
    )
    assert Config.read(config.write(tmp_path / "config.toml")) == config
    scheme = config.make_scheme()
    assert scheme.collection == remote(3, sync=False, resources={"num_cpus": 1})
    assert scheme.gradients == remote(2) and scheme.update == "decentralized"
    assert (scheme.env, scheme.num_envs, scheme.unroll_length) == ("CartPole-v1", 32, 64)
    assert isinstance(scheme.storage, VTrace) and scheme.algorithm.epochs == 10
    assert config.replace(wrappers=["FlattenObservation"]).make_scheme().env.step
    swings = config.replace(wrappers=[STICKY]).make_scheme().env()
    assert swings.num_envs == 32 and "repeat_action_probability" in swings.parameters


def test_rows_every_limits_metrics_to_about_200_rows():
    config = Config("CartPole-v1", "PPO", num_envs=1, unroll_length=1, total_steps=1000)
    assert config.rows_every() == 5
    assert config.replace(total_steps=50_000).rows_every() == 250
    assert config.replace(total_steps=7).rows_every() == 1
    assert config.replace(total_steps=1009).rows_every() == 5  # a prime: the last row is shorter
    assert config.replace(report_every=3).rows_every() == 3
    parallel = {"collection": "remote:5", "gradients": "remote:2:async"}
    assert config.replace(total_steps=50_000, scheme=parallel).rows_every() == 25
