import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training.distributions import (
    Bernoulli,
    Categorical,
    Deterministic,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
    distribution_for,
    masked,
)

BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
NONE = np.zeros(0, np.float32)
KEY = jax.random.key(0)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def choices(logits, action):
    """Log-probability and entropy, by SciPy."""
    probabilities = scipy.special.softmax(np.asarray(logits, np.float64), axis=-1)
    chosen = np.take_along_axis(probabilities, np.asarray(action)[:, None], axis=-1)[:, 0]
    return np.log(chosen), scipy.stats.entropy(probabilities, axis=-1)


@jax.jit
def by_distrax(logits, gaussian, squashed, actions):
    """[log_prob, entropy or NaN, mode] by distrax, of each of its distributions that we have."""
    distrax = pytest.importorskip("distrax")

    def asked(distribution, action):
        return [distribution.log_prob(action), distribution.entropy(), distribution.mode()]

    mean, log_std = gaussian
    chosen, bits, real, inside = actions
    outputs, raw_log_std = jnp.split(squashed, 2, axis=-1)
    normals = distrax.MultivariateNormalDiag(outputs, jnp.exp(jnp.clip(raw_log_std, -20.0, 2.0)))
    tanh = distrax.Block(distrax.Tanh(), 1)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        independent = distrax.Independent(distrax.Bernoulli(logits), 1)
        scales = jnp.broadcast_to(jnp.exp(log_std), mean.shape)
        return {
            "categorical": asked(distrax.Categorical(logits), chosen),
            "bernoulli": asked(independent, bits),
            "gaussian": asked(distrax.MultivariateNormalDiag(mean, scales), real),
            "squashed": [distrax.Transformed(normals, tanh).log_prob(inside)],
        }


def test_the_formulas_agree_with_distrax():
    pytest.importorskip("distrax")
    logits, mean, log_std = 3.0 * normal(1, 64, 5), normal(2, 64, 2), np.float32([-1.0, 0.5])
    # Narrow: near the bounds distrax loses the draw, and then says NaN.
    squashed = np.concatenate([0.5 * normal(3, 64, 2), 0.3 * normal(4, 64, 2) - 1.0], axis=-1)
    space = spaces.MultiBinary(5)
    cases = {
        "categorical": (Categorical(spaces.Discrete(5)), logits, NONE),
        "bernoulli": (Bernoulli(space), logits, NONE),
        "gaussian": (DiagonalGaussian(BOX), mean, log_std),
        "squashed": (SquashedGaussian(BOX), squashed, NONE),
    }

    @jax.jit
    def judged():
        actions = [ours.sample(outputs, spread, KEY) for ours, outputs, spread in cases.values()]
        mine = {
            name: [*ours.log_prob_and_entropy(outputs, spread, action), ours.mode(outputs)]
            for (name, (ours, outputs, spread)), action in zip(cases.items(), actions, strict=True)
        }
        return mine, by_distrax(logits, (mean, log_std), squashed, tuple(actions))

    mine, theirs = judged()
    for name in cases:
        for our, their in zip(mine[name], theirs[name], strict=False):  # squashed: log_prob alone
            np.testing.assert_allclose(our, their, atol=2e-4, err_msg=name)


def test_multi_categorical_is_the_sum_of_its_parts():
    logits = normal(1, 64, 5)
    ours = MultiCategorical(spaces.MultiDiscrete([2, 3]))
    action = jax.jit(ours.sample)(logits, NONE, KEY)
    actual = jax.jit(ours.log_prob_and_entropy)(logits, NONE, action)
    action = np.asarray(action)
    left, right = choices(logits[:, :2], action[:, 0]), choices(logits[:, 2:], action[:, 1])
    np.testing.assert_allclose(actual, np.add(left, right), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "space", "outputs"),
    [
        (distribution_for, spaces.Discrete(3, start=5), [0.0, 1.0, -1.0]),
        (distribution_for, spaces.MultiDiscrete([2, 3], start=[1, -1]), [0.0, 2.0, 0.0, 1.0, 0.5]),
        (distribution_for, spaces.MultiDiscrete([[2, 3], [4, 5]]), [0.0] * 14),
        (distribution_for, spaces.MultiBinary((2, 2)), [0.0, 1.0, -1.0, 3.0]),
        (distribution_for, BOX, [0.9, -0.9]),
        (distribution_for, spaces.Box(-np.inf, np.inf, (2, 2)), [0.0, 5.0, 9.0, -7.0]),
        (SquashedGaussian, BOX, [0.3, 20.0, 1.0, 9.0]),
    ],
    ids=lambda value: str(value) if isinstance(value, spaces.Space) else "",
)
def test_every_draw_becomes_a_member_of_the_space(make, space, outputs):
    distribution = make(space)
    outputs = np.tile(np.float32([outputs]), (200, 1))

    @jax.jit
    def drawn():
        raw = distribution.sample(outputs, jnp.zeros(distribution.num_parameters), KEY)
        best = distribution.to_action(distribution.mode(outputs))
        contains = jax.vmap(space.contains)
        return raw, contains(distribution.to_action(raw)), contains(best)

    raw, is_member, best_is_member = drawn()
    assert is_member.all() and best_is_member.all()
    assert len(np.unique(np.asarray(raw), axis=0)) > 1


def test_a_bounded_box_is_spanned_from_minus_1_to_1():
    raw = jnp.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [-3.0, 3.0]])
    expected = jnp.array([[-2.0, 0.0], [0.0, 5.0], [2.0, 10.0], [-2.0, 10.0]])
    for make in (DiagonalGaussian, SquashedGaussian, Deterministic):
        chex.assert_trees_all_close(jax.jit(make(BOX).to_action)(raw), expected)


def test_half_bounded_box_is_clipped_at_its_finite_bounds():
    low, high = np.array([0.0, -1.0, -np.inf]), np.array([np.inf, 1.0, np.inf])
    distribution = DiagonalGaussian(spaces.Box(low, high, (3,)))
    raw = jnp.array([[-3.0, 5.0, -7.0], [3.0, -0.5, 7.0]])
    expected = jnp.array([[0.0, 1.0, -7.0], [3.0, -0.5, 7.0]])
    chex.assert_trees_all_close(jax.jit(distribution.to_action)(raw), expected)


@pytest.mark.parametrize("n", [2, 6, 40])  # 40 are not unrolled
def test_categorical_draws_match_probabilities_and_mask(n):
    draws = 20_000
    ours, allowed = Categorical(spaces.Discrete(n)), np.arange(n) % 3 != 0
    logits = np.stack([normal(n, n), np.where(allowed, normal(n, n), -1e9), np.zeros(n)])
    logits = logits.astype(np.float32)
    mask = np.stack([np.ones(n, bool), allowed, np.zeros(n, bool)])

    @jax.jit
    def drawn(logits, mask):
        many = jnp.repeat(masked(logits, mask)[:, None], draws, axis=1)
        return ours.sample(many, NONE, KEY)

    action = drawn(logits, mask)
    assert action.dtype == jnp.int32
    expected = draws * scipy.special.softmax(np.asarray(logits, np.float64), axis=-1)
    for drawn, likely in zip(np.asarray(action), expected, strict=True):
        count = np.bincount(drawn, minlength=n)
        assert not count[likely == 0].any()
        assert count.sum() == draws and len(count) == n
        if (likely > 0).sum() > 1:
            assert scipy.stats.chisquare(count[likely > 0], likely[likely > 0]).pvalue > 1e-3


def test_draws_for_multi_discrete_binary_and_box_match_scipy():
    draws = 20_000
    ours = MultiCategorical(spaces.MultiDiscrete([2, 3]))
    logits = normal(1, 5)
    action = np.asarray(jax.jit(ours.sample)(np.tile(logits, (draws, 1)), NONE, KEY))
    joint = np.bincount(3 * action[:, 0] + action[:, 1], minlength=6)
    parts = [scipy.special.softmax(np.asarray(part, np.float64)) for part in np.split(logits, [2])]
    assert scipy.stats.chisquare(joint, draws * np.outer(*parts).ravel()).pvalue > 1e-3

    ours = Bernoulli(spaces.MultiBinary(3))
    bits = jax.jit(ours.sample)(np.tile(logits[:3], (draws, 1)), NONE, KEY)
    joint = np.bincount(np.asarray(bits) @ [4, 2, 1], minlength=8)
    odds = [[1 - p, p] for p in scipy.special.expit(np.asarray(logits[:3], np.float64))]
    expected = draws * np.einsum("i,j,k->ijk", *odds).ravel()
    assert scipy.stats.chisquare(joint, expected).pvalue > 1e-3

    squashed = SquashedGaussian(spaces.Box(-1.0, 1.0, (1,)))
    real = jax.jit(squashed.sample)(np.tile(np.float32([0.5, -0.3]), (draws, 1)), NONE, KEY)
    inside = scipy.stats.norm(0.5, np.exp(-0.3))
    assert scipy.stats.kstest(np.arctanh(np.asarray(real)[:, 0]), inside.cdf).pvalue > 1e-3


def test_mask_restricts_the_distribution_to_allowed_choices():
    ours, logits = Categorical(spaces.Discrete(5)), 3.0 * normal(1, 3, 5)
    mask = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
    action = np.array([2, 3, 1], np.int32)

    def summed(logits, masked_action):
        outputs = ours.masked(logits, mask)
        log_prob, entropy = ours.log_prob_and_entropy(outputs, NONE, masked_action)
        told = log_prob, entropy, ours.log_probs(outputs), ours.mode(outputs)
        return 1e6 * (log_prob + entropy).sum(), told

    gradient_of = jax.jit(jax.grad(summed, has_aux=True))
    gradient, told = jax.device_get(gradient_of(logits, action))
    log_prob, entropy, log_probs, best = told
    by_hand = choices(logits[:1][:, [0, 2, 3]], [1])
    np.testing.assert_allclose(log_prob, [by_hand[0][0], 0.0, -np.log(5)], atol=1e-5)
    np.testing.assert_allclose(entropy, [by_hand[1][0], 0.0, np.log(5)], atol=1e-5)
    assert not np.exp(log_probs[:2])[~mask[:2]].any()
    assert np.isfinite(gradient).all() and not gradient[~mask].any() and gradient[0, 0] != 0
    forbidden, _ = gradient_of(logits, np.array([1, 0, 0], np.int32))
    assert np.isfinite(forbidden).all()
    assert best[1] == 3


def test_multi_discrete_mask_is_accepted_flat_or_padded():
    space = spaces.MultiDiscrete([2, 3])
    ours, logits = MultiCategorical(space), normal(1, 8, 5)
    flat = np.array([True, False, False, True, True])
    padded = np.array([[True, False, True], [False, True, True]])
    expected = np.where(flat, logits, np.float32(-1e9))
    shapes = [(flat, (8, 5)), (padded, (8, 2, 3)), (padded.reshape(-1), (8, 6))]
    masked_by = jax.jit(ours.masked)
    for mask, shape in shapes:
        actual = masked_by(logits, np.broadcast_to(mask[None], shape))
        np.testing.assert_array_equal(actual, expected)
    action = jax.jit(lambda outputs: ours.to_action(ours.sample(outputs, NONE, KEY)))(expected)
    assert (action[:, 0] == 0).all() and (action[:, 1] > 0).all()
    assert ours.masked(logits, None) is logits


def test_mask_of_combinations_allows_only_those():
    space = spaces.MultiDiscrete([4, 3], start=[0, 1])
    ours = distribution_for(space, spaces.MultiBinary((4, 3)))
    allowed = [(0, 2), (3, 0), (2, 1)]  # each choice of the second element is in one of them
    mask = np.zeros((4, 3), bool)
    mask[tuple(zip(*allowed, strict=True))] = True
    outputs = ours.masked(normal(1, 256, 12), jnp.broadcast_to(mask, (256, 4, 3)))
    raw = ours.sample(outputs, NONE, KEY)
    actions = ours.to_action(raw)
    assert actions.dtype == np.int32 and jax.vmap(space.contains)(actions).all()
    assert {(i, j - 1) for i, j in actions.tolist()} == {*allowed}
    logits = outputs.reshape(-1, 4, 3)[:, *np.array(allowed).T]
    place = [allowed.index((i, j - 1)) for i, j in actions.tolist()]
    log_prob, entropy = choices(logits, place)
    found = ours.log_prob_and_entropy(outputs, NONE, raw)
    np.testing.assert_allclose(found[0], log_prob, atol=1e-5)
    np.testing.assert_allclose(found[1], entropy, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 4), (7,), None])
def test_mask_of_each_choice_leaves_the_others_independent(shape):
    mask = None if shape is None else spaces.MultiBinary(shape)
    assert isinstance(distribution_for(spaces.MultiDiscrete([4, 3]), mask), MultiCategorical)


def test_a_mask_that_does_not_fit_is_refused():
    with pytest.raises(TrainingError, match=r"is bool\[3, 2\].*bool\[2, 3\]"):
        MultiCategorical(spaces.MultiDiscrete([2, 3])).masked(
            jnp.zeros((4, 5)), jnp.ones((4, 3, 2), bool)
        )
    logits = jnp.zeros((4, 3))
    for mask in (jnp.ones((4, 2), bool), jnp.ones(3, bool), jnp.ones((4, 3))):
        with pytest.raises(TrainingError, match="mask"):
            Categorical(spaces.Discrete(3)).masked(logits, mask)
    with pytest.raises(TrainingError, match="Discrete"):
        DiagonalGaussian(BOX).masked(jnp.zeros((4, 2)), jnp.ones((4, 2), bool))


def test_squashed_gaussian_density_integrates_to_1_and_entropy():
    ours = SquashedGaussian(spaces.Box(-1.0, 1.0, (1,)))
    outputs = np.float32([[0, 0], [0.7, -1], [-1, 0.5], [1, 5]])  # 5 is clipped to 2
    grid = np.tanh(np.linspace(-7.0, 7.0, 2001))
    actions = np.float32(grid)[:, None, None]
    many = np.tile(outputs[:3], (2001, 1, 1))
    log_prob, _ = jax.jit(ours.log_prob_and_entropy)(many, NONE, actions)
    whole = scipy.integrate.simpson(np.exp(np.asarray(log_prob, np.float64)), x=grid, axis=0)
    np.testing.assert_allclose(whole, 1.0, atol=2e-3)

    _, entropy = jax.jit(ours.log_prob_and_entropy)(outputs, NONE, jnp.zeros((4, 1)))
    for row, (mean, log_std) in enumerate(np.clip(np.asarray(outputs, np.float64), -20, 2)):
        inside = scipy.stats.norm(mean, np.exp(log_std))
        u = mean + np.exp(log_std) * np.linspace(-9.0, 9.0, 20_001)
        log_slope = -2 * np.logaddexp(u, -u) + 2 * np.log(2)  # 1 - tanh**2 is 1 / cosh**2
        surprise = -inside.pdf(u) * (inside.logpdf(u) - log_slope)
        by_hand = scipy.integrate.simpson(surprise, x=u)
        np.testing.assert_allclose(entropy[row], by_hand, atol=3e-3)


def test_gradients_flow_through_a_squashed_draw():
    ours = SquashedGaussian(BOX)
    outputs = np.float32([0.3, -0.5, -0.7, 0.2])

    def drawn(outputs):
        action, log_prob = ours.sample_and_log_prob(outputs, NONE, KEY)
        return jnp.append(action, log_prob)

    @jax.jit
    def told(outputs):
        drawn_now, sampled = drawn(outputs), ours.sample(outputs, NONE, KEY)
        by_density, _ = ours.log_prob_and_entropy(outputs, NONE, drawn_now[:2])
        return drawn_now, jax.jacrev(drawn)(outputs), sampled, by_density

    (*action, log_prob), jacobian, sampled, by_density = jax.device_get(told(outputs))
    action = np.array(action)
    np.testing.assert_allclose(action, sampled, atol=1e-6)
    np.testing.assert_allclose(log_prob, by_density, atol=1e-5)
    # By hand: u = mean + std * z, a = tanh(u), log p = -z**2 / 2 - log std - log(1 - a**2) + ...
    slope, scaled = 1 - action**2, np.arctanh(action) - outputs[:2]
    expected = np.block(
        [
            [np.diag(slope), np.diag(slope * scaled)],
            [2 * action, 2 * action * scaled - 1.0],
        ]
    )
    np.testing.assert_allclose(jacobian, expected, atol=1e-5)


def test_squashed_gaussian_far_out_has_finite_log_prob_and_grad():
    ours = SquashedGaussian(BOX)
    outputs = np.float32([30.0, -30.0, 5.0, -50.0])
    for draw in (
        lambda x: ours.sample_and_log_prob(x, NONE, KEY)[1],
        lambda x: ours.log_prob_and_entropy(x, NONE, jnp.array([1.0, -1.0]))[0],
    ):
        log_prob, gradient = jax.jit(jax.value_and_grad(draw))(outputs)
        assert np.isfinite(log_prob) and np.isfinite(gradient).all()


def test_a_deterministic_actor_has_one_action_and_no_density():
    ours, outputs = Deterministic(BOX), jnp.array([[0.5, -30.0]])
    assert ours.num_outputs == 2
    action = jax.jit(lambda outputs: ours.to_action(ours.sample(outputs, NONE, KEY)))(outputs)
    np.testing.assert_allclose(action, [[2 * np.tanh(0.5), 0.0]], rtol=1e-6)
    with pytest.raises(TrainingError, match="log-prob"):
        ours.log_prob_and_entropy(outputs, NONE, outputs)


def test_distribution_for_an_unsupported_space_is_refused():
    with pytest.raises(TrainingError, match="Discrete"):
        distribution_for(spaces.Box(0, 255, (3,), np.uint8))
    for make in (SquashedGaussian, Deterministic):
        with pytest.raises(TrainingError, match="bounded"):
            make(spaces.Box(np.array([0.0, -np.inf]), 1.0))
