"""What the fields of parts, schemes and learners may be is told when they are assembled."""

import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxenvs
from jaxenvs import spaces, struct
from jaxenvs.core import Wrapper
from jaxenvs.errors import TrainingError
from jaxenvs.training import (
    A2C,
    DQN,
    PPO,
    PQN,
    SAC,
    TD3,
    ActorCritic,
    HindsightReplay,
    Learner,
    PrioritizedReplay,
    QNetwork,
    Replay,
    Scheme,
    make_train,
    ranges,
    remote,
)
from jaxenvs.training.extractors import MLP
from jaxenvs.training.storages import OnPolicyStorage

SIZES = {"num_envs": 4, "unroll_length": 4, "total_steps": 32}
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (PPO(epochs=0), "PPO got epochs=0; it must be at least 1"),
        (PPO(minibatches=-1), "PPO got minibatches=-1; it must be at least 1"),
        (PPO(epochs=1.5), "PPO got epochs=1.5; it should be a valid integer"),
        (PPO(epochs=True), "epochs=True; it should be a valid integer"),
        (PPO(shuffle="foo"), "shuffle='foo'; it should be 'steps', 'instances' or 'time'"),
        (PPO(anneal="no"), "anneal='no'; it should be a valid boolean"),
        (PPO(gamma=7), "gamma=7; it must be between 0 and 1"),
        (PPO(gae_lambda=-0.1), "gae_lambda=-0.1; it must be between 0 and 1"),
        (PPO(learning_rate=-1.0), "learning_rate=-1.0; it must not be below 0"),
        (PPO(learning_rate="x"), "learning_rate='x'; it should be a valid number or a schedule"),
        (PPO(gamma=lambda step: 0.9), "gamma=<function .*; it should be a valid number"),
        (A2C(target_kl="x"), "A2C got target_kl='x'; it should be a valid number"),
        (DQN(batch_size=0), "DQN got batch_size=0; it must be at least 1"),
        (DQN(replay_ratio=0), "replay_ratio=0; it must be 1e-4 or more"),
        (DQN(replay_ratio=float("inf")), "replay_ratio=inf; it must be 1e-4 or more"),
        (PPO(entropy_coefficient=float("nan")), "entropy_coefficient=nan; it must be a number"),
        (DQN(replay_ratio="x"), "replay_ratio='x'; it should be a valid number"),
        (DQN(exploration_steps=0), "exploration_steps=0; it must be at least 1"),
        (DQN(target_update_every=0), "target_update_every=0; it must be at least 1"),
        (SAC(tau=2.0), "tau=2.0; it must be between 0 and 1"),
        (SAC(critic_learning_rate=-2.0), "critic_learning_rate=-2.0; it must not be below 0"),
        (TD3(policy_delay=0), "policy_delay=0; it must be at least 1"),
        (PPO(clip=-0.2), "clip=-0.2; it must be above 0"),
        (PPO(clip=float("nan")), "clip=nan; it must be a number"),
        (PPO(target_kl=0.0), "target_kl=0.0; it must be above 0"),
        (PPO(max_gradient_norm=0), "max_gradient_norm=0; it must be above 0"),
        (PPO(adam_epsilon=-1.0), "adam_epsilon=-1.0; it must be above 0"),
        (PPO(reward_clip=0.0), "reward_clip=0.0; it must be above 0"),
        (PPO(observation_clip=-1), "observation_clip=-1; it must be above 0"),
        (A2C(decay=1.5), "decay=1.5; it must be between 0 and 1"),
        (A2C(rms_epsilon=0.0), "rms_epsilon=0.0; it must be above 0"),
        (DQN(initial_epsilon=5), "initial_epsilon=5; it must be between 0 and 1"),
        (DQN(final_epsilon=-1), "final_epsilon=-1; it must be between 0 and 1"),
        (DQN(learning_starts=-5), "learning_starts=-5; it must not be below 0"),
        (SAC(initial_temperature=0.0), "initial_temperature=0.0; it must be above 0"),
        (TD3(exploration_noise=-0.1), "exploration_noise=-0.1; it must not be below 0"),
    ],
    ids=str,
)
def test_invalid_hyper_parameter_is_named(algorithm, words):
    id = "Pendulum-v1" if isinstance(algorithm, SAC | TD3) else "CartPole-v1"
    with pytest.raises(TrainingError, match=words):
        make_train(id, algorithm, **SIZES)


def test_a_subclass_inherits_ranges_and_may_replace_them():
    @struct.pytree_dataclass
    class KLPPO(PPO):
        beta: float = 2.0  # the name of a fraction in another class
        clip: float = -1.0
        weight: ranges.Fraction = 1.0

    make_train("CartPole-v1", KLPPO(), **SIZES)
    for wrong in ({"gamma": 1.5}, {"weight": 1.5}):
        with pytest.raises(TrainingError, match=r"KLPPO got .*=1\.5; it must be between 0 and 1"):
            make_train("CartPole-v1", KLPPO(**wrong), **SIZES)


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        (Replay(capacity=0), "Replay got capacity=0; it must be at least 1"),
        (Replay(n_step=0), "Replay got n_step=0; it must be at least 1"),
        (PrioritizedReplay(capacity=1e6), "capacity=1000000.0; it should be a valid integer"),
        (PrioritizedReplay(alpha=-1.0), "alpha=-1.0; it must not be below 0"),
        (PrioritizedReplay(beta=2.0), "beta=2.0; it must be between 0 and 1"),
    ],
    ids=str,
)
def test_invalid_replay_setting_is_refused(storage, words):
    with pytest.raises(TrainingError, match=words):
        make_train("CartPole-v1", DQN(), storage=storage, **SIZES)


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        (ActorCritic(memory="gru"), r"memory='gru'; expected a flax cell.*GRUCell\(64\)"),
        (ActorCritic(memory=nn.Dense(8)), "expected a flax cell"),
        (ActorCritic(memory=nn.GRUCell), r"memory=<class .*; expected a flax cell"),
        (ActorCritic(hidden_sizes=64), r"hidden_sizes=64; it takes the width of each layer"),
        (
            ActorCritic(hidden_sizes=(8, 0)),
            r"a layer of hidden_sizes=0; it must be an integer",
        ),
        (ActorCritic(extractor=MLP), r"the class MLP; expected an instance: MLP\(\)"),
        (ActorCritic(initial_std=0.0), r"initial_std=0.0; expected a positive number"),
    ],
    ids=["name", "no cell", "a cell's class", "a number", "no width", "class", "no deviation"],
)
def test_networks_that_cannot_be_built_are_refused(actor, words):
    with pytest.raises(TrainingError, match=words):
        make_train("CartPole-v1", PPO(), actor=actor, **SIZES)
    if "hidden_sizes=" in words:
        q_network = QNetwork(hidden_sizes=actor.hidden_sizes)
        with pytest.raises(TrainingError, match=words):
            make_train("CartPole-v1", DQN(), actor=q_network, **SIZES)


class Norm(nn.Module):
    """Keeps statistics, which a training run has no place for."""

    @nn.compact
    def __call__(self, x):
        return nn.BatchNorm(use_running_average=False)(nn.Dense(4)(x))


class Drop(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dropout(0.5, deterministic=False)(nn.Dense(4)(x))


@pytest.mark.parametrize("extractor", [Norm(), Drop()], ids=["state", "dropout"])
def test_extractor_with_state_or_dropout_is_refused(extractor):
    actor = ActorCritic(extractor=extractor)
    with pytest.raises(TrainingError, match="does not support observations"):
        make_train("CartPole-v1", PPO(), actor=actor, **SIZES)


class Half(nn.Module):
    """Computes in half precision, with weights in full precision."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(4, dtype=jnp.bfloat16)(x)


class Linear(nnx.Module):
    def __init__(self, inputs, outputs, *, rngs):
        self.layer = nnx.Linear(inputs, outputs, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


class Matrix(nn.Module):
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(x)[..., None] if self.dtype == jnp.float32 else x.astype(self.dtype)


@pytest.mark.parametrize(
    "settings",
    [
        {"extractor": Half()},
        {"extractor": Half(), "memory": nn.GRUCell(4, dtype=jnp.bfloat16)},
        {"extractor": nnx.bridge.to_linen(Linear, 4, 8)},
    ],
    ids=["bfloat16", "memory", "nnx"],
)
def test_half_precision_and_nnx_networks_are_trained_in_float32(settings):
    with jax.numpy_dtype_promotion("standard"):  # flax's cells mix types
        actor = ActorCritic(**settings)
        train = make_train("CartPole-v1", PPO(epochs=1, minibatches=1), actor=actor, **SIZES)
        result = jax.eval_shape(train, KEY)
    assert {x.dtype for x in jax.tree.leaves(result.learner_state.params)} == {jnp.dtype("f4")}


@pytest.mark.parametrize(
    ("extractor", "words"),
    [
        (Linear(4, 8, rngs=nnx.Rngs(0)), r"type Linear; .*flax.nnx.bridge.to_linen\(Class"),
        (Matrix(), "Flatten all axes"),
        (Matrix(jnp.int32), "Convert them to floats"),
    ],
    ids=["nnx", "shape", "dtype"],
)
def test_extractor_that_cannot_be_used_says_how_to_mend_it(extractor, words):
    with pytest.raises(TrainingError, match=words):
        make_train("CartPole-v1", PPO(), actor=ActorCritic(extractor=extractor), **SIZES)


class Masked(Wrapper):
    """CartPole whose observations say what is allowed."""

    num_choices: int = struct.static(2)
    shows: bool = struct.static(True)

    @property
    def observation_space(self):
        entries = {"seen": self.env.observation_space} if self.shows else {}
        return spaces.Dict({"action_mask": spaces.MultiBinary(self.num_choices), **entries})

    def reset(self, key):
        return self.env.reset(key)  # nobody looks at what it shows

    def step(self, state, action, key):
        return self.env.step(state, action, key)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"num_choices": 3}, r"action_mask of Dict.*does not fit the actions Discrete\(2\)"),
        ({"shows": False}, "has only the entry"),
    ],
    ids=str,
)
def test_action_mask_that_does_not_fit_is_refused(choices, words):
    env = Masked(jaxenvs.make("CartPole-v1"), **choices)
    for algorithm in (PPO(), DQN(), PQN(), SAC()):
        with pytest.raises(TrainingError, match=words):
            make_train(env, algorithm, **SIZES)


def test_hyper_parameters_of_any_number_type_are_accepted():
    for rate in (1, 0.5, np.float32(0.5), np.asarray(0.5), jnp.float32(0.5)):
        make_train("CartPole-v1", PPO(learning_rate=rate, gamma=rate), **SIZES)
    make_train("CartPole-v1", PPO(epochs=np.int64(2)), **SIZES)
    for algorithm in (PPO, A2C, DQN, PQN):  # without a clip
        sizes = {**SIZES, "total_steps": 1_000}
        train = make_train("CartPole-v1", algorithm(max_gradient_norm=None), **sizes)
        jax.eval_shape(train.init, KEY)
    traced = jax.vmap(lambda rate: make_train("CartPole-v1", PPO(gamma=rate), **SIZES).init(KEY))
    jax.eval_shape(traced, jnp.ones(3))


@pytest.mark.parametrize(
    ("estimate", "words"),
    [
        (lambda reward: (reward[0], reward[0]), r"arrays of \[\(4,\), \(4,\)\]"),
        (lambda reward: reward, "no pair"),
        (lambda reward: (reward, reward, reward), r"\[\(4, 4\), \(4, 4\), \(4, 4\)\]"),
    ],
    ids=["rows", "one", "three"],
)
def test_custom_storage_with_wrong_estimate_shape_is_refused(estimate, words):
    @struct.pytree_dataclass
    class Own(OnPolicyStorage):
        def estimate(self, segment, *, gamma, gae_lambda):
            return estimate(segment.reward)

    train = make_train("CartPole-v1", A2C(), storage=Own(), **SIZES)
    with pytest.raises(TrainingError, match=rf"Own.estimate returned.*{words}.*\[4, 4\]"):
        jax.eval_shape(train, KEY)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sync": "async"}, "sync='async'; expected True or False"),
        ({"resources": []}, "resources=.*; expected a list of devices"),
        ({"resources": "cpu"}, "resources='cpu'; expected a list of devices"),
        ({"resources": ["cpu:0"]}, "expected a list of devices"),
    ],
    ids=str,
)
def test_remote_with_invalid_arguments_is_refused(settings, words):
    with pytest.raises(TrainingError, match=words):
        remote(2, **settings)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"num_envs": "4"}, "num_envs='4'; it must be an integer"),
        ({"unroll_length": 8.0}, "unroll_length=8.0; it must be an integer"),
        ({"fraction_workers": "a"}, "fraction_workers='a'; it must be above 0"),
    ],
    ids=str,
)
def test_scheme_with_invalid_numbers_is_refused(parts, words):
    with pytest.raises(TrainingError, match=words):
        Scheme("CartPole-v1", **parts)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"total_steps": "x"}, "total_steps='x'; it must be an integer"),
        ({"total_steps": 0}, "total_steps=0; it must be an integer of at least 1"),
        ({"report_every": 0}, "report_every=0; it must be an integer of at least 1"),
        ({"resume": True}, "resume=True without log_dir"),
        ({"seed": "a"}, "seed='a'; it must be an integer"),
        ({"evaluate_every": 0}, "evaluate_every=0; it must be an integer of at least 1"),
        ({"evaluate_every": 1.5}, "evaluate_every=1.5; it must be an integer"),
        ({"evaluation_episodes": 0}, "evaluation_episodes=0; it must be an integer of at least 1"),
    ],
    ids=str,
)
def test_learner_with_invalid_numbers_is_refused(arguments, words):
    with pytest.raises(TrainingError, match=words):
        Learner(Scheme("CartPole-v1"), **{"total_steps": 64, **arguments})


def test_learner_without_a_scheme_is_refused():
    with pytest.raises(TrainingError, match=r"Learner got PPO.*expected a scheme"):
        Learner(PPO(), total_steps=64)


def test_hindsight_strategies_given_as_a_string_are_refused():
    with pytest.raises(TrainingError, match=r'strategies="final".*\("final",\)'):
        make_train("BitFlipping-v0", DQN(), storage=HindsightReplay(strategies="final"), **SIZES)


def test_a_run_is_not_written_over(tmp_path):
    actor = ActorCritic(hidden_sizes=(8,))
    scheme = Scheme("CartPole-v1", A2C(), actor, num_envs=4, unroll_length=4)
    with Learner(scheme, total_steps=512, log_dir=tmp_path) as learner:
        learner.step()
        learner.save()
    written = (tmp_path / "metrics.csv").read_text()
    with pytest.raises(TrainingError, match=r"already contains a run.*resume=True"):
        Learner(scheme, total_steps=512, log_dir=tmp_path)
    assert (tmp_path / "metrics.csv").read_text() == written
    with Learner(scheme, total_steps=512, log_dir=tmp_path, resume=True) as learner:
        with pytest.raises(TrainingError, match=r"is the folder of a run.*checkpoint"):
            learner.restore(tmp_path)
        assert learner.step()["steps"] == 2 * learner.steps_per_update


@pytest.mark.parametrize("algorithm", [DQN(), SAC(), TD3()], ids=str)
def test_a_training_in_which_nothing_is_learned_is_warned_of(algorithm):
    id = "CartPole-v1" if isinstance(algorithm, DQN) else "Pendulum-v1"
    sizes = {"num_envs": 4, "unroll_length": 4}
    with pytest.warns(UserWarning, match="learning_starts=1000 and total_steps=999") as warned:
        make_train(id, algorithm, total_steps=999, **sizes)
    assert warned[0].filename == __file__  # where it was asked for
    scheme = Scheme(id, algorithm, collection=remote(2), **sizes)
    with pytest.warns(UserWarning, match="it learns nothing"), Learner(scheme, total_steps=900):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_train(id, algorithm, total_steps=1000, **sizes)


@pytest.mark.parametrize(
    ("gradients", "words"),
    [
        (lambda found: found[:2], "returned 2 values; it must return three"),
        (lambda found: found[0], "returned dict; it must return three"),
        (lambda found: ({}, *found[1:]), "structure differs from that of the weights"),
        (lambda found: (found[0], jnp.zeros(3), None), "a dict from names to single"),
        (lambda found: (found[0], {"loss": jnp.zeros(3)}, None), "a dict from names to single"),
    ],
)
@pytest.mark.parametrize("place", [{}, {"gradients": remote(1)}], ids=str)
def test_custom_gradients_of_wrong_form_are_refused(gradients, words, place):
    @struct.pytree_dataclass
    class Own(A2C):
        def gradients(self, *arguments):
            return gradients(super().gradients(*arguments))

    sizes = {"num_envs": 4, "unroll_length": 4}
    with (
        pytest.raises(TrainingError, match=f"(?s)Own.gradients .*{words}"),
        Learner(Scheme("CartPole-v1", Own(), **place, **sizes), total_steps=32) as learner,
    ):
        learner.step()


def test_env_function_that_needs_arguments_is_refused():
    scheme = Scheme(lambda i: jaxenvs.make("CartPole-v1"), A2C(), num_envs=4, unroll_length=4)
    with pytest.raises(TrainingError, match=r"needs arguments: missing .*'i'"):
        Learner(scheme, total_steps=32)


def test_closed_learner_refuses_step_and_replace():
    actor = ActorCritic(hidden_sizes=(8,))
    scheme = Scheme("CartPole-v1", A2C(), actor, num_envs=4, unroll_length=4)
    with Learner(scheme, total_steps=512) as learner:
        learner.step()
        with pytest.raises(TrainingError, match="num_episodes=-1; it must be an integer"):
            learner.evaluate(-1)
    for call in (learner.step, learner.replace):
        with pytest.raises(TrainingError, match="on a learner that is closed"):
            call()
    assert learner.updates == 1  # and what was learned is there
