"""Learners see agents as instances of their own."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import MultiAgentEnvironment, MultiAgentTimeStep, spaces, struct
from jaxenvs.errors import TrainingError, WrapperError
from jaxenvs.training import A2C, PPO, ActorCritic, Learner, Scheme, make_train, remote, shard
from jaxenvs.wrappers import IndependentAgents
from tests.ids import case, diagonal
from tests.multi_agent_env import Nim

N, STEPS = 4, 10
SMALL = ActorCritic(hidden_sizes=(16,))
AGENTS = ("scout", "carrier", "guard")  # not in alphabetical order, which jit prefers


@chex.dataclass(frozen=True)
class PatrolState:
    steps: jax.Array  # int32[]
    goal: jax.Array  # int32[], the action that is rewarded
    ended: jax.Array  # bool[3]


class Patrol(MultiAgentEnvironment[PatrolState]):
    """Three agents act at once; agent i ends after i + 2 steps and pays for its place.

    An agent that takes the action `goal`, which it sees, receives `bonus`, minus its index.
    """

    bonus: float = 10.0

    @property
    def agents(self) -> tuple[str, ...]:
        return AGENTS

    @property
    def observation_space(self) -> spaces.Dict:
        each = spaces.Dict(
            {
                "observation": spaces.Box(0.0, 10.0, (3,)),
                "action_mask": spaces.Box(False, True, (4,), bool),
            }
        )
        return spaces.Dict(dict.fromkeys(AGENTS, each))

    @property
    def action_space(self) -> spaces.Dict:
        return spaces.Dict(dict.fromkeys(AGENTS, spaces.Discrete(4)))

    def reset(self, key: chex.PRNGKey) -> tuple[PatrolState, MultiAgentTimeStep]:
        goal = jax.random.randint(key, (), 0, 3, jnp.int32)
        state = PatrolState(steps=jnp.int32(0), goal=goal, ended=jnp.zeros(3, bool))
        return state, MultiAgentTimeStep.first(self._observe(state))

    def step(
        self, state: PatrolState, action: dict[str, jax.Array], key: chex.PRNGKey
    ) -> tuple[PatrolState, MultiAgentTimeStep]:
        lives = ~state.ended
        hits = jnp.stack([action[agent] for agent in AGENTS]) == state.goal
        paid = jnp.where(hits, jnp.float32(self.bonus), 0.0) - jnp.arange(3, dtype=jnp.float32)
        reward = jnp.where(lives, paid, 0.0)
        steps = state.steps + 1
        goal = jax.random.randint(key, (), 0, 3, jnp.int32)
        state = PatrolState(
            steps=steps, goal=goal, ended=steps >= jnp.arange(2, 5, dtype=jnp.int32)
        )
        return state, MultiAgentTimeStep.transition(
            self._observe(state),
            reward={agent: reward[i] for i, agent in enumerate(AGENTS)},
            terminated={agent: state.ended[i] for i, agent in enumerate(AGENTS)},
        )

    def _observe(self, state: PatrolState) -> dict[str, dict[str, jax.Array]]:
        actions = jnp.arange(4, dtype=jnp.int32)
        legal = jnp.where(state.ended[:, None], actions == 0, actions < 3)
        numbers = jnp.stack([state.goal, state.steps, state.steps]).astype(jnp.float32)
        return {
            agent: {"observation": numbers.at[2].set(i), "action_mask": legal[i]}
            for i, agent in enumerate(AGENTS)
        }


def agents_of(env, num_envs=N, **settings):
    return IndependentAgents(jaxenvs.vectorize(env, num_envs), **settings)


class Uneven(Patrol):
    """The first agent has fewer actions and a shorter observation than the others."""

    @property
    def observation_space(self):
        sizes = dict(zip(AGENTS, (2, 3, 3), strict=True))
        return spaces.Dict({agent: spaces.Box(0.0, 10.0, (n,)) for agent, n in sizes.items()})

    @property
    def action_space(self):
        sizes = dict(zip(AGENTS, (2, 4, 4), strict=True))
        return spaces.Dict({agent: spaces.Discrete(n) for agent, n in sizes.items()})

    def _observe(self, state):
        seen = {agent: each["observation"] for agent, each in super()._observe(state).items()}
        return {**seen, "scout": seen["scout"][:2]}


class Pair(MultiAgentEnvironment[jax.Array]):
    """Two agents whose observations are their last actions."""

    of_agents: tuple[spaces.Space, spaces.Space] = struct.static()

    @property
    def agents(self):
        return ("b", "a")

    @property
    def observation_space(self):
        return spaces.Dict(dict.fromkeys(self.agents, spaces.Box(-5.0, 5.0, (2,))))

    @property
    def action_space(self):
        return spaces.Dict(dict(zip(self.agents, self.of_agents, strict=True)))

    def reset(self, key):
        zeros = dict.fromkeys(self.agents, jnp.zeros(2))
        return jnp.int32(0), MultiAgentTimeStep.first(zeros)

    def step(self, state, action, key):
        seen = {name: jnp.resize(each, 2) for name, each in action.items()}
        none = dict.fromkeys(self.agents, jnp.float32(0))
        return state, MultiAgentTimeStep.transition(
            seen, reward=none, terminated=dict.fromkeys(self.agents, jnp.bool_(False))
        )


def test_actions_reach_the_whole_box_of_each_agent():
    wide = spaces.Box(np.float32([-0.3, 1.0]), np.float32([0.7, 4.0]))
    env = agents_of(Pair((wide, spaces.Box(-1.0, 1.0, (1,)))), 3)
    assert env.single_action_space == spaces.Box(-1.0, 1.0, (2,))
    state, _ = env.reset(jax.random.key(0))
    actions = jnp.float32([[-1, -1], [-1, 0], [1, 1], [1, 0], [0, 0], [0.5, 0]])
    _, timestep = env.step(state, actions, jax.random.key(1))
    seen = timestep.observation
    np.testing.assert_array_equal(seen[:4], [wide.low, (-1, -1), wide.high, (1, 1)])
    np.testing.assert_allclose(seen[4:], [(0.2, 2.5), (0.5, 0.5)], rtol=1e-6)
    same = agents_of(Pair((spaces.Box(-2.0, 2.0, (2,)), spaces.Box(-2.0, 2.0, (1,)))))
    assert same.single_action_space == spaces.Box(-2.0, 2.0, (2,))  # padded, not scaled


@pytest.mark.parametrize(
    "other",
    [
        spaces.Discrete(2),
        spaces.Box(0.0, np.inf, (2,)),
        spaces.Box(-2, 2, (2,), np.int32),
        spaces.Box(-2.0, 2.0, (2, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_first", [True, False])
def test_actions_that_cannot_be_merged_are_refused(other, is_first):
    both = (other, spaces.Box(-1.0, 1.0, (2,)))
    with pytest.raises(WrapperError, match="agents with different actions"):
        agents_of(Pair(both if is_first else both[::-1]))


@pytest.mark.parametrize(
    ("env", "settings"),
    diagonal(
        [Uneven(), Patrol(), Nim()],
        [{"agent_id": True, "central_critic": True}, {}],
    ),
)
def test_independent_agents_rows_match_the_native_agents(env, settings):
    batch, rows = jaxenvs.vectorize(env, N), agents_of(env, **settings)
    number = len(env.agents)
    assert rows.num_envs == N * number
    sample = jax.jit(batch.action_space.sample, static_argnums=1)
    actions = jax.device_get(sample(jax.random.key(2), (STEPS,)))
    stacked = np.stack([actions[agent] for agent in env.agents], axis=2).reshape(STEPS, -1)

    def run(batch, actions):
        state, first = batch.reset(jax.random.key(0))

        def advance(state, given):
            action, key = given
            return batch.step(state, action, key)

        _, rest = jax.lax.scan(
            advance, state, (actions, jax.random.split(jax.random.key(1), STEPS))
        )
        return first, rest

    (_, theirs), (first, ours) = jax.device_get(
        jax.jit(lambda: (run(batch, actions), run(rows, stacked)))()
    )
    assert rows.observation_space.contains(first.observation)
    for i, agent in enumerate(env.agents):
        mine = jax.tree.map(lambda x, i=i: x[:, i::number], ours)
        np.testing.assert_array_equal(mine.reward, theirs.reward[agent])
        np.testing.assert_array_equal(mine.info["to_act"], theirs.info["to_act"][agent])
        for name in ("observation", "final_observation"):
            seen, raw = getattr(mine, name), getattr(theirs, name)
            own = raw[agent]
            own = own["observation"] if isinstance(own, dict) else own
            seen_own = seen["observation"] if isinstance(seen, dict) else seen
            np.testing.assert_array_equal(seen_own[..., : own.shape[-1]], own)
            assert not seen_own[..., own.shape[-1] :].any()
            if settings:
                np.testing.assert_array_equal(
                    seen["agent"], np.broadcast_to(np.eye(number)[i], seen["agent"].shape)
                )
                size = seen_own.shape[-1]
                following = raw[env.agents[(i + 1) % number]]
                following = following["observation"] if isinstance(following, dict) else following
                part = seen["critic_observation"][..., size : size + following.shape[-1]]
                np.testing.assert_array_equal(part, following)
    done = np.asarray(theirs.done)
    np.testing.assert_array_equal(ours.done, np.repeat(done, number, axis=1))
    assert done.any() and not np.asarray(ours.truncated).any()


def test_padded_choices_are_masked():
    rows = agents_of(Uneven())
    mask = jax.jit(rows.reset)(jax.random.key(0))[1].observation["action_mask"]
    np.testing.assert_array_equal(mask[:3].sum(axis=1), [2, 4, 4])


@pytest.mark.parametrize(
    ("settings", "actor"),
    [
        case({}, ActorCritic(), is_quick=False),
        ({"agent_id": True}, ActorCritic(per_agent=True)),
        case({"central_critic": True}, ActorCritic(), is_quick=False),
    ],
    ids=["shared", "separate", "central critic"],
)
def test_ppo_learns(settings, actor):
    train = make_train(
        agents_of(Patrol(), 64, **settings),
        PPO(learning_rate=3e-3),
        actor=actor,
        unroll_length=16,
        total_steps=30_000,
        evaluate_every=30_000,
        evaluation_episodes=20,
    )
    result = jax.jit(train)(jax.random.key(0))
    # Agents act 2, 3 and 4 times for 10, 9 and 8 each.
    assert result.metrics["evaluation_return"][-1] > 0.9 * (20 + 27 + 32) / 3
    if actor.per_agent:
        shapes = {x.shape[0] for x in jax.tree.leaves(result.learner_state.params["actor"])}
        assert shapes == {len(AGENTS)}


def test_self_play_learns_nim():
    train = make_train(
        Nim(), PPO(learning_rate=3e-3), num_envs=64, unroll_length=32, total_steps=80_000
    )

    @jax.jit
    def learn_and_play():
        policy = train.policy(train(jax.random.key(0)).learner_state)

        def play(observation, key):
            return {
                "white": policy(observation["white"], key),
                "black": jaxenvs.sample_legal(observation["black"], key),
            }

        games = jaxenvs.vectorize(Nim(), 200)
        return jaxenvs.evaluate(games, play, 1, jax.random.key(1)).mean["white"]

    assert learn_and_play() > 0.6


def test_training_is_divided_among_devices():
    train = make_train(agents_of(Patrol(), 8), A2C(), actor=SMALL, unroll_length=4, total_steps=200)
    mesh = jax.make_mesh((2,), ("devices",), devices=jax.devices()[:2])
    sharded = shard(train, mesh)
    assert sharded.train.env.num_envs == 12
    result = jax.jit(sharded)(jax.random.key(0))
    assert np.isfinite(result.metrics["policy_loss"]).all()


def test_a_scheme_divides_agents_among_devices():
    parts = {"num_envs": 4, "unroll_length": 4, "gradients": remote(2)}
    with Learner(Scheme(Patrol(), A2C(), SMALL, **parts), total_steps=96) as learner:
        assert learner.step()["steps"] == 96  # 4 steps of 3 agents in 4 instances, on 2 devices


def test_several_seeds_train_in_one_program():
    settings = {"actor": SMALL, "num_envs": 8, "unroll_length": 4, "total_steps": 96}
    train = make_train(Patrol(), A2C(), **settings)
    assert train.env.num_envs == 24
    one = jax.jit(train)(jax.random.key(1))
    both = jax.jit(jax.vmap(train))(jnp.stack([jax.random.key(0), jax.random.key(1)]))
    chex.assert_trees_all_close(
        one.metrics, jax.tree.map(lambda x: x[1], both.metrics), rtol=1e-3, atol=1e-4
    )


def test_unsupported_multi_agent_training_is_refused():
    with pytest.raises(WrapperError, match="several agents"):
        IndependentAgents(jaxenvs.make_vec("CartPole-v1", 4))
    with pytest.raises(TrainingError, match="agent_id=True"):
        make_train(
            Patrol(), actor=ActorCritic(per_agent=True), num_envs=4, unroll_length=4, total_steps=99
        )
    rows = agents_of(Patrol(), central_critic=True)
    with pytest.raises(TrainingError, match="critic_observation"):
        make_train(rows, actor=ActorCritic(shared=True), unroll_length=4, total_steps=99)
