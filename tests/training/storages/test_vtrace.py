import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.training.storages import GAE, VTrace, vtrace
from jaxenvs.training.types import ValuedUnroll

CASES, LENGTH, NUM_ENVS = 6, 23, 5


def random_segments(seed, *, truncates):
    rng = np.random.default_rng(seed)
    shape = (CASES, LENGTH, NUM_ENVS)
    terminated = rng.random(shape) < 0.15
    truncated = (rng.random(shape) < 0.15) & truncates
    value = rng.normal(size=(CASES, LENGTH + 1, NUM_ENVS))
    next_value = np.where(terminated | truncated, rng.normal(size=shape), value[:, 1:])
    log_ratio = rng.normal(size=shape)
    floats = (rng.normal(size=shape), value[:, :-1], next_value, log_ratio)
    reward, value, next_value, log_ratio = (jnp.asarray(x, jnp.float32) for x in floats)
    return ValuedUnroll(
        reward=reward,
        value=value,
        next_value=next_value,
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        log_ratio=log_ratio,
    )


def test_vtrace_without_truncation_matches_rlax():
    import rlax

    segments = random_segments(0, truncates=False)
    lambdas = jnp.array([0.0, 0.5, 0.9, 0.95, 1.0, 1.0], jnp.float32)
    clips = jnp.array([1.0, 0.7, 1.3, 1.0, 2.0, 1.0], jnp.float32)
    pg_clips = jnp.array([1.0, 1.5, 0.4, 1.0, 1.0, 3.0], jnp.float32)

    @jax.jit
    @jax.vmap
    def ours(unroll, gae_lambda, clip, pg_clip):
        storage = VTrace(clip_rho=clip, clip_pg_rho=pg_clip)
        return storage.estimate(unroll, gamma=0.97, gae_lambda=gae_lambda)

    def theirs(unroll, gae_lambda, clip, pg_clip):
        def one(unroll):
            out = rlax.vtrace_td_error_and_advantage(
                unroll.value,
                unroll.next_value,
                unroll.reward,
                0.97 * (1 - unroll.terminated.astype(jnp.float32)),
                jnp.exp(unroll.log_ratio),
                gae_lambda,
                clip,
                pg_clip,
            )
            return out.pg_advantage, out.errors + unroll.value

        return jax.vmap(one, in_axes=1, out_axes=1)(unroll)

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected = jax.jit(jax.vmap(theirs))(segments, lambdas, clips, pg_clips)
    chex.assert_trees_all_close(
        ours(segments, lambdas, clips, pg_clips), expected, atol=1e-5, rtol=1e-5
    )


def test_vtrace_with_a_truncation_matches_hand_computation():
    advantage, target = vtrace(
        log_ratio=jnp.log(jnp.array([[0.5], [4.0], [0.25]])),
        reward=jnp.array([[1.0], [2.0], [4.0]]),
        value=jnp.array([[10.0], [20.0], [30.0]]),
        next_value=jnp.array([[20.0], [100.0], [8.0]]),
        terminated=jnp.array([[False], [False], [True]]),
        truncated=jnp.array([[False], [True], [False]]),
        gamma=0.5,
        gae_lambda=0.5,
        clip_rho=2.0,
        clip_c=0.25,
        clip_pg_rho=3.0,
    )
    # errors: 0.25 * (4 - 30) = -6.5, the next value unread;  2 * (2 + 50 - 20) = 64, cut;
    # 0.5 * (1 + 10 - 10) + 0.5 * 0.5 * 0.25 * 64 = 4.5
    chex.assert_trees_all_close(target, jnp.array([[14.5], [84.0], [23.5]]))
    # 0.25 * -26;  3 * 32;  0.5 * (1 + 0.25 * 64)
    chex.assert_trees_all_close(advantage, jnp.array([[8.5], [96.0], [-6.5]]))


def test_vtrace_on_policy_matches_gae_with_truncations():
    segments = random_segments(1, truncates=True)
    segments = segments.replace(log_ratio=jnp.zeros_like(segments.reward))
    assert segments.truncated.any()

    @jax.jit
    @jax.vmap
    def both(unroll):
        arguments = {"gamma": 0.97, "gae_lambda": 0.9}
        return VTrace().estimate(unroll, **arguments), GAE().estimate(unroll, **arguments)

    (advantage, target), (gae_advantage, gae_target) = both(segments)
    chex.assert_trees_all_close(target, gae_target, atol=1e-5)
    chex.assert_trees_all_close(advantage, gae_advantage, atol=1e-5)


def test_vtrace_huge_log_ratio_does_not_overflow():
    one, no = jnp.ones((1, 1)), jnp.zeros((1, 1), bool)
    advantage, target = vtrace(200 * one, one, one, one, no, no, gamma=0.5, gae_lambda=1.0)
    assert advantage == 0.5 and target == 1.5
