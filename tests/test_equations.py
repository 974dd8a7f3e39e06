"""Every equation against numbers worked out by hand, and against the properties that the paper promises."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from halflabel import equations as eq

torch.set_num_threads(1)

PI = math.pi
few = settings(max_examples=20, deadline=None, database=None)
seeds = st.integers(0, 2**31 - 1)


def at(*degrees: float) -> Tensor:
    """Unit vectors of the plane at the given angles, in double precision."""
    radians = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([radians.cos(), radians.sin()], dim=1)


def tensor(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def same(got: Tensor, wanted: Tensor | list | float, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(got, torch.as_tensor(wanted, dtype=got.dtype), rtol=tolerance, atol=tolerance)


def draw(seed: int, n: int = 7, k: int = 4, d: int = 5) -> dict[str, Tensor]:
    """A random problem: features, weights, soft targets, means and variances."""
    g = torch.Generator().manual_seed(seed)
    double = {"generator": g, "dtype": torch.float64}
    return {
        "f": torch.randn(n, d, **double),
        "w": torch.randn(k, d, **double),
        "y": torch.rand(n, k, **double).softmax(1),
        "mu": torch.rand(k, **double) + 0.3,
        "var": torch.rand(k, **double) * 0.2 + 0.01,
        "order": torch.randperm(k, generator=g),
    }


# cosines


def test_cosines_of_known_angles_whatever_the_lengths() -> None:
    f = at(0, 90) * tensor([3.0], [0.2])
    w = at(0, 60, 180) * 7
    same(eq.cosines(f, w), [[1, 0.5, -1], [0, math.sqrt(0.75), 0]])


def test_cosines_of_a_zero_vector_are_zero() -> None:
    assert eq.cosines(torch.zeros(1, 2), torch.ones(3, 2)).tolist() == [[0, 0, 0]]
    assert eq.cosines(torch.ones(1, 2), torch.zeros(3, 2)).tolist() == [[0, 0, 0]]


def bdd_loss(cos: Tensor, y: Tensor, mu: Tensor, var: Tensor, s: float, m: float) -> Tensor:
    """Eq. 3: the loss of Eq. 1 on balanced cosines."""
    return eq.am_loss(eq.balanced(cos, mu, eq.slopes(var)), y, s, m)


# Eq. 1


def test_am_loss_by_hand() -> None:
    cos = tensor([1.0, 0.5], [0.0, 0.0])
    y = tensor([1.0, 0.0], [0.0, 1.0])
    # s (cos - y m) = [1.4, 1.0] and [0, -0.6]
    same(eq.am_loss(cos, y, 2.0, 0.3), [math.log(1 + math.exp(-0.4)), math.log(1 + math.exp(0.6))])


def test_am_loss_of_soft_targets_takes_a_partial_margin() -> None:
    # logits 4 * (0 - 0.25 * 0.2) = -0.2 and 4 * (0 - 0.75 * 0.2) = -0.6
    total = math.log(math.exp(-0.2) + math.exp(-0.6))
    wanted = 0.25 * (total + 0.2) + 0.75 * (total + 0.6)
    same(eq.am_loss(tensor([0.0, 0.0]), tensor([0.25, 0.75]), 4.0, 0.2), [wanted])


def test_am_loss_of_two_labels_sums_and_of_no_label_is_zero() -> None:
    cos = tensor([0.3, 0.3, -50.0], [0.9, 0.1, 0.2])
    y = tensor([1.0, 1.0, 0.0], [0.0, 0.0, 0.0])
    same(eq.am_loss(cos, y, 20.0, 0.3), [2 * math.log(2), 0])  # n log n is the floor of n positives


def test_am_loss_without_margin_is_cross_entropy() -> None:
    x = draw(0)
    cos = eq.cosines(x["f"], x["w"])
    wanted = torch.nn.functional.cross_entropy(5 * cos, x["y"], reduction="none")
    same(eq.am_loss(cos, x["y"], 5.0, 0.0), wanted)


@pytest.mark.parametrize("loss", ["am", "bdd"])
def test_targets_carry_no_gradient(loss: str) -> None:
    x = draw(1)
    cos = eq.cosines(x["f"], x["w"]).requires_grad_()
    y = x["y"].requires_grad_()
    value = eq.am_loss(cos, y, 3.0, 0.2) if loss == "am" else bdd_loss(cos, y, x["mu"], x["var"], 3.0, 0.2)
    value.sum().backward()
    assert y.grad is None
    assert cos.grad is not None and cos.grad.abs().sum() > 0


# Eq. 2


def test_slopes_and_psi_by_hand() -> None:
    var = tensor(0.01, 0.07)  # mean 0.04: slopes 2 and 2 / sqrt 7
    mu = tensor(0.5, 1.0)
    same(eq.slopes(var), [2, 2 / math.sqrt(7)])
    same(eq.psi(tensor([0.6, 1.7]), mu, eq.slopes(var)), [[0.7, 1 + 0.7 * 2 / math.sqrt(7)]])


def test_psi_is_not_clamped() -> None:
    same(eq.psi(tensor([0.1, 4.0]), tensor(0.5, 4.0), eq.slopes(tensor(0.01, 0.07))), [[-0.3, 4.0]])


@few
@given(seeds)
def test_psi_keeps_the_means(seed: int) -> None:
    x = draw(seed)
    same(eq.psi(x["mu"][None], x["mu"], eq.slopes(x["var"]))[0], x["mu"])


@few
@given(seeds)
def test_psi_equalises_the_spread_and_keeps_the_mean_within_each_class(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    y = torch.eye(3, dtype=torch.float64).repeat(6, 1)
    spread = tensor(0.05, 0.2, 0.4)
    theta = 1 + spread * torch.randn(18, 3, generator=g, dtype=torch.float64)
    mu, var = eq.angle_moments(theta, y)
    after_mu, after_var = eq.angle_moments(eq.psi(theta, mu, eq.slopes(var)), y)
    same(after_mu, mu)
    same(after_var.sqrt(), var.mean().sqrt().expand(3))


def test_a_floor_keeps_zero_variances_finite() -> None:
    theta, mu = tensor([0.2, 2.0]), tensor(0.4, 0.6)
    same(eq.psi(theta, mu, eq.slopes(tensor(0.0, 0.0), floor=1e-6)), theta)
    same(eq.slopes(tensor(0.0, 0.2), floor=0.1), [math.sqrt(0.15 / 0.1), math.sqrt(0.15 / 0.2)])
    assert eq.slopes(tensor(0.0, 0.2))[0] == math.inf  # as written, the paper has no floor


def test_a_limit_bounds_the_slopes_from_both_sides() -> None:
    var = tensor(1e-6, 1.0, 1.0)
    assert eq.slopes(var)[0] > 100
    same(eq.slopes(var, limit=3.0)[0], 3.0)
    same(eq.slopes(tensor(1.0, 1e-9, 1e-9, 1e-9), limit=1.5)[0], 1 / 1.5)


def test_labels_that_no_text_has_keep_their_angles_and_are_left_out_of_the_mean() -> None:
    seen = torch.tensor([True, True, False])
    same(eq.slopes(tensor(0.01, 0.07, 5.0), seen=seen), [2, 2 / math.sqrt(7), 1])
    same(eq.slopes(tensor(0.01, 0.07, 5.0), seen=torch.zeros(3, dtype=torch.bool)), [1, 1, 1])


def test_a_leak_clamps_the_value_and_leaves_a_small_slope() -> None:
    theta = tensor([0.1, 1.0, 3.0]).requires_grad_()
    mu, a = tensor(1.0, 1.0, 1.0), tensor(2.0, 2.0, 2.0)
    got = eq.psi(theta, mu, a, leak=0.01)
    same(got, [[0.0, 1.0, PI]])
    got.sum().backward()
    same(theta.grad, [[0.02, 2.0, 0.02]])


# Eq. 3


def test_balanced_by_hand() -> None:
    cos = eq.cosines(at(45), at(0, 105))  # angles 45 and 60 degrees
    got = eq.balanced(cos, tensor(PI / 6, PI / 3), eq.slopes(tensor(0.01, 0.07)))
    same(got, [[0.5, 0.5]])  # 30 + 2 * 15 = 60 degrees; the second sits on its mean of 60


def test_balanced_leaves_single_labels_alone() -> None:
    cos = tensor([0.1234, 0.5678, 1.0])
    var = tensor(0.02, 0.01, 0.03)  # only the first equals the mean
    got = eq.balanced(cos, tensor(0.4, 0.4, 0.4), eq.slopes(var))
    assert got[0, 0] == cos[0, 0]
    assert (got[0, 1:] - cos[0, 1:]).abs().min() > 1e-3


@few
@given(seeds, st.integers(1, 120), st.floats(1e-6, 3.0), st.sampled_from([torch.float32, torch.float64]))
def test_equal_variances_give_am_bit_for_bit(seed: int, k: int, variance: float, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(seed)
    cos = torch.rand(6, k, generator=g, dtype=dtype) * 2 - 1
    cos[0], cos[1] = 1, -1
    y = torch.rand(6, k, generator=g, dtype=dtype).softmax(1)
    mu, var = torch.rand(k, generator=g, dtype=dtype), torch.full((k,), variance, dtype=dtype)
    plain, twin = cos.clone().requires_grad_(), cos.clone().requires_grad_()
    am, bdd = eq.am_loss(plain, y, 20.0, 0.3), bdd_loss(twin, y, mu, var, 20.0, 0.3)
    am.sum().backward(), bdd.sum().backward()
    assert torch.equal(eq.balanced(cos, mu, eq.slopes(var)), cos)
    assert torch.equal(am, bdd)
    assert torch.equal(plain.grad, twin.grad)


def test_bdd_loss_by_hand() -> None:
    cos = eq.cosines(at(45), at(0, 105))
    got = bdd_loss(cos, tensor([1.0, 0.0]), tensor(PI / 6, PI / 3), tensor(0.01, 0.07), 10.0, 0.1)
    same(got, [math.log(1 + math.exp(1.0))])  # both balanced cosines are 0.5; only the target loses s m = 1


def test_bdd_gradient_is_the_chain_rule_of_the_angles() -> None:
    cos = tensor([0.8, -0.3]).requires_grad_()
    mu, var = tensor(0.5, 1.2), tensor(0.01, 0.07)
    a = eq.slopes(var)
    eq.balanced(cos, mu, a).sum().backward()
    theta = cos.detach().arccos()
    same(cos.grad, a * eq.psi(theta, mu, a).sin() / theta.sin())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_gradients_are_finite_along_and_against_the_weights(sign: float, dtype: torch.dtype) -> None:
    w = at(10, 100, 190).to(dtype).requires_grad_()
    f = (sign * 3 * w.detach()).requires_grad_()
    mu, var = torch.tensor([0.2, 0.3, 0.4], dtype=dtype), torch.tensor([0.0, 0.01, 0.2], dtype=dtype)
    scores = eq.balanced(eq.cosines(f, w), mu, eq.slopes(var, floor=1e-4))
    loss = eq.am_loss(scores, torch.eye(3, dtype=dtype), 20.0, 0.3)
    (loss.sum() + eq.entropy(eq.probabilities(scores)).sum()).backward()
    assert loss.isfinite().all()
    assert f.grad.isfinite().all() and w.grad.isfinite().all()


# probabilities


def test_probabilities_are_a_softmax_without_scale() -> None:
    same(eq.probabilities(tensor([math.log(1), math.log(2), math.log(5)])), [[1 / 8, 2 / 8, 5 / 8]])
    ceiling = eq.probabilities(tensor([1.0, -1.0, -1.0, -1.0]))[0, 0]
    assert ceiling.item() == pytest.approx(0.7112, abs=1e-4)  # the most that four labels allow


# Eq. 6


def test_prototypes_by_hand() -> None:
    f = tensor([2.0, 0.0], [0.0, 4.0], [6.0, 6.0])
    y = tensor([1.0, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.25, 1.0, 0.0])
    # two texts; soft 2:1; a single text; no mass
    same(eq.prototypes(f, y), [[1, 2], [10 / 3, 2], [6, 6], [0, 0]])


def test_prototypes_and_moments_of_no_texts_are_zero() -> None:
    none = torch.zeros(0, 3)
    assert eq.prototypes(torch.zeros(0, 2), none).tolist() == [[0, 0]] * 3
    assert [v.tolist() for v in eq.angle_moments(none, none)] == [[0, 0, 0]] * 2


def test_a_little_mass_is_enough_for_a_prototype() -> None:
    same(eq.prototypes(at(30), tensor([1e-30, 1.0])), at(30, 30))


# Eq. 7


def test_angles_by_hand() -> None:
    same(eq.angles(eq.cosines(at(20), at(20 + 60, 110, 140))), [[PI / 3, PI / 2, 2 * PI / 3]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_angles_at_the_ends_are_near_and_their_gradients_finite(dtype: torch.dtype) -> None:
    cos = torch.tensor([[1.0, -1.0, 1 + 1e-6, 1 - 1e-6, 1e-6 - 1, 0.0]], dtype=dtype, requires_grad=True)
    beta = eq.angles(cos)
    beta.sum().backward()
    same(beta[0, :3], [0.0014142, PI - 0.0014142, 0.0014142], 5e-5)
    assert cos.grad.isfinite().all()
    assert cos.grad.abs().max() < 730
    assert cos.grad[0, 5] == -1


# Eq. 8


def test_moments_by_hand() -> None:
    beta = tensor([0.1, 0.2, 0.3, 0.4, 0.5], [0.3, 0.2, 0.3, 0.4, 0.5], [0.5, 0.8, 0.3, 0.4, 0.9])
    y = tensor([1.0, 1, 1, 0, 0.5], [1.0, 0, 0, 0, 0], [1.0, 1, 0, 0, 0.5])
    mu, var = eq.angle_moments(beta, y)
    # three texts (0.08 / 2); two texts (0.18 / 1); one text; no text; one text's mass on two: 0.5 * 0.08 / 1
    same(mu, [0.3, 0.5, 0.3, 0, 0.7])
    same(var, [0.04, 0.18, 0, 0, 0.04])


def test_two_texts_make_the_same_angle_with_their_own_mean() -> None:
    f, y = at(10, 50), tensor([1.0], [1.0])
    mu, var = eq.angle_moments(eq.angles(eq.cosines(f, eq.prototypes(f, y))), y)
    same(mu, [math.radians(20)])
    same(var, [0.0])


@few
@given(seeds, st.integers(1, 9), st.integers(1, 5))
def test_prototypes_and_moments_agree_with_numpy(seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    f, y = rng.normal(size=(n, 3)), rng.random((n, k)) * rng.integers(0, 2, (n, k))
    c, mu, var = np.zeros((k, 3)), np.zeros(k), np.zeros(k)
    for j in range(k):
        mass = sum(y[i, j] for i in range(n))
        if mass == 0:
            continue
        c[j] = np.average(f, axis=0, weights=y[:, j])
        cos = [f[i] @ c[j] / np.linalg.norm(f[i]) / np.linalg.norm(c[j]) for i in range(n)]
        beta = np.arccos(np.clip(cos, -0.999999, 0.999999))
        mu[j] = np.average(beta, weights=y[:, j])
        var[j] = sum(y[i, j] * (beta[i] - mu[j]) ** 2 for i in range(n)) / max(mass - 1, 1)
    features, targets = torch.from_numpy(f), torch.from_numpy(y)
    got = eq.prototypes(features, targets)
    same(got, c)
    got_mu, got_var = eq.angle_moments(eq.angles(eq.cosines(features, got)), targets)
    # A text that is its own mean has a clamped cosine of 1, where rounding moves an angle by up to 1e-7.
    same(got_mu, mu, 1e-6)
    same(got_var, var, 1e-6)


def test_blend_keeps_the_share_of_the_past() -> None:
    new, old = tensor(1.0, 2.0), tensor(5.0, -2.0)
    same(eq.blend(new, old, 0.25), [2, 1])
    assert torch.equal(eq.blend(new, old, 0.0), new)
    assert torch.equal(eq.blend(new, old, 1.0), old)


# Eq. 9


def test_sharpen_by_hand() -> None:
    same(eq.sharpen(tensor([0.6, 0.3, 0.1]), 0.5), [[36 / 46, 9 / 46, 1 / 46]])
    same(eq.sharpen(tensor([0.8, 0.2]), 2.0), [[2 / 3, 1 / 3]])


@few
@given(seeds, st.floats(0.05, 5))
def test_sharpen_keeps_the_order_and_is_the_identity_at_one(seed: int, temperature: float) -> None:
    p = draw(seed)["y"]
    got = eq.sharpen(p, temperature)
    same(got.sum(1), torch.ones(len(p)))
    assert torch.equal(got.argsort(1), p.argsort(1))
    same(eq.sharpen(p, 1.0), p)


@few
@given(seeds, st.floats(0.05, 5))
def test_sharpening_probabilities_is_a_softmax_at_temperature(seed: int, temperature: float) -> None:
    x = draw(seed)
    scores = eq.cosines(x["f"], x["w"])
    same(eq.sharpen(eq.probabilities(scores), temperature), (scores / temperature).softmax(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-5, 1e-20, 1e-45, 1e-300, 0.0])
def test_sharpen_ends_one_hot(temperature: float, dtype: torch.dtype) -> None:
    p = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.0, 1e-30, 1.0], [0.5, 0.0, 0.5]], dtype=dtype)
    got = eq.sharpen(p, temperature)
    assert got.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0.5, 0, 0.5]]
    flat = eq.probabilities(0.1 * torch.eye(103, dtype=dtype))  # many labels: even the largest p is small
    assert torch.equal(eq.sharpen(flat, temperature), torch.eye(103, dtype=dtype))


def test_sharpen_keeps_exact_zeros_with_finite_gradients() -> None:
    p = tensor([0.25, 0.75, 0.0]).requires_grad_()
    got = eq.sharpen(p, 4.0)  # flattening would make something of a zero that is only nearly one
    got[0, 0].backward()
    assert got[0, 2] == 0
    assert p.grad.isfinite().all()
    same(eq.sharpen(tensor([0.0, 0.4, 0.6]), 1.0), [[0, 0.4, 0.6]])


# Eq. 10


def test_entropy_by_hand() -> None:
    p = tensor([0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.75, 0.25, 0, 0])
    same(eq.entropy(p), [math.log(4), math.log(2), 0, math.log(4) - 0.75 * math.log(3)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entropy_has_finite_gradients_at_zero(dtype: torch.dtype) -> None:
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=dtype, requires_grad=True)
    eq.entropy(p).sum().backward()
    assert p.grad.isfinite().all()
    same(p.grad[1], [math.log(2) - 1] * 2, 1e-6)


# Eq. 12


def test_cap_counts_round_half_up() -> None:
    counts = eq.cap_counts(tensor(0.0, 0.04, 0.05, 0.14, 0.25, 0.96, 1.0), 10)
    assert counts.dtype == torch.long
    assert counts.tolist() == [0, 0, 1, 1, 3, 10, 10]
    assert eq.cap_counts(torch.tensor([3, 17, 100]) / 100, 20_000).tolist() == [600, 3400, 20_000]


def test_cap_by_hand() -> None:
    p = tensor([0.1, 0.9, 0.5, 0.2], [0.4, 0.8, 0.6, 0.3], [0.3, 0.7, 0.7, 0.1], [0.2, 0.6, 0.8, 0.9])
    labels = eq.cap_labels(p, eq.cap_counts(tensor(0.5, 0.25, 0.0, 1.0), len(p)))
    assert labels.dtype == p.dtype
    assert labels.tolist() == [[0, 1, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]]


def test_cap_ties_go_to_the_first_texts() -> None:
    p = tensor([0.2], [0.7], [0.7], [0.7])
    assert eq.cap_labels(p, torch.tensor([2])).tolist() == [[0], [1], [1], [0]]


@few
@given(seeds, st.integers(1, 40), st.integers(1, 6), st.sampled_from([1, 2, 5, 1000]))
def test_cap_gives_each_label_exactly_its_share(seed: int, n: int, k: int, levels: int) -> None:
    g = torch.Generator().manual_seed(seed)
    p = torch.randint(0, levels, (n, k), generator=g) / levels  # few levels, many ties
    prior = torch.rand(k, generator=g)
    prior[0], prior[-1] = 0, 1
    counts = eq.cap_counts(prior, n)
    labels = eq.cap_labels(p, counts)
    assert torch.equal(labels.sum(0).long(), counts)
    assert counts[-1] == n and (k == 1 or labels[:, 0].sum() == 0)
    for j in range(k):
        ranked = sorted(range(n), key=lambda i: (-p[i, j].item(), i))
        assert set(labels[:, j].nonzero().flatten().tolist()) == set(ranked[: counts[j]])
        if 0 < counts[j] < n:  # gamma_k is the smallest p among the positives
            assert p[labels[:, j] > 0, j].min() >= p[labels[:, j] == 0, j].max()


def test_cap_of_no_texts_is_empty() -> None:
    p, prior = torch.zeros(0, 2), torch.tensor([0.5, 1.0])
    assert eq.cap_labels(p, eq.cap_counts(prior, 0)).shape == (0, 2)


def test_cap_is_fast_enough_for_the_largest_corpus() -> None:
    g = torch.Generator().manual_seed(0)
    p, prior = torch.rand(20_000, 103, generator=g), torch.rand(103, generator=g) * 0.3
    spent = []
    for _ in range(3):
        start = time.process_time()
        counts = eq.cap_counts(prior, len(p))
        labels = eq.cap_labels(p, counts)
        spent.append(time.process_time() - start)
    assert torch.equal(labels.sum(0).long(), counts)
    assert min(spent) < 1.0  # about 0.25 s on an idle core; a loop over cells would take a minute


# Eqs. 13 to 16


def test_nuclear_norm_by_hand_and_its_gradient_at_rank_one() -> None:
    same(eq.nuclear_norm(tensor([3.0, 0.0], [0.0, -4.0])), 7)
    w = tensor([1.0, 2.0], [2.0, 4.0]).requires_grad_()  # rank one: its Frobenius norm
    norm = eq.nuclear_norm(w)
    norm.backward()
    same(norm.detach(), 5)
    assert w.grad.isfinite().all() and torch.linalg.matrix_norm(w.grad, 2) < 1 + 1e-9


def test_singular_value_threshold_by_hand() -> None:
    # [[3, 1], [1, 3]] has the values 4 and 2 along (1, 1) and (1, -1).
    w = tensor([3.0, 1.0], [1.0, 3.0])
    same(eq.singular_value_threshold(w, 1.0), [[2, 1], [1, 2]])
    same(eq.singular_value_threshold(w, 3.0), [[0.5, 0.5], [0.5, 0.5]])
    same(eq.singular_value_threshold(w, 9.0), [[0, 0], [0, 0]])
    same(eq.singular_value_threshold(w, 0.0), w)


@few
@given(seeds, st.integers(1, 6), st.integers(1, 6), st.floats(0, 3))
def test_singular_values_shrink_by_exactly_tau(seed: int, k: int, d: int, tau: float) -> None:
    w = draw(seed, k=k, d=d)["w"].requires_grad_()
    got = eq.singular_value_threshold(w, tau)
    assert got.shape == w.shape and not got.requires_grad
    same(torch.linalg.svdvals(got), (torch.linalg.svdvals(w.detach()) - tau).clamp_min(0))


@few
@given(seeds, st.floats(0.01, 2))
def test_singular_value_threshold_minimises_what_the_paper_asks(seed: int, tau: float) -> None:
    def objective(x: Tensor) -> float:
        return (tau * eq.nuclear_norm(x) + (x - w).square().sum() / 2).item()

    x = draw(seed)
    w, best = x["w"], eq.singular_value_threshold(x["w"], tau)
    for step in (1e-3, 1e-1, 1.0):
        assert objective(best) <= objective(best + step * x["f"][:4]) + 1e-12


def test_lagrangian_penalty_by_hand() -> None:
    w, twin, dual = tensor([1.0, 2.0]), tensor([2.0, 1.0]), tensor([0.5, 1.0])
    same(eq.lagrangian_penalty(w, twin, dual, 0.5), 0.25 * (2**2 + 1**2))  # twin - w + dual / tau = (2, 1)


@few
@given(seeds, st.floats(0.01, 10))
def test_lagrangian_pulls_the_weights_by_tau_times_gap_less_dual(seed: int, tau: float) -> None:
    x = draw(seed)
    w, twin, dual = x["w"].clone().requires_grad_(), x["f"][:4], x["f"][3:]
    eq.lagrangian_penalty(w, twin, dual, tau).backward()
    same(w.grad, tau * (x["w"] - twin) - dual)


def test_dual_ascent_by_hand() -> None:
    w = tensor([1.0, 2.0]).requires_grad_()
    got = eq.dual_ascent(tensor([0.5, 1.0]), tensor([2.0, 1.0]), w, 0.1)
    same(got, [[0.6, 0.9]])
    assert not got.requires_grad


@few
@given(seeds, st.floats(1e-3, 10), st.floats(1e-3, 1))
def test_the_dual_never_exceeds_lambda3(seed: int, tau: float, lambda3: float) -> None:
    x = draw(seed)
    w, dual = x["w"], x["f"][:4]
    for _ in range(3):
        twin = eq.singular_value_threshold(w - dual / tau, lambda3 / tau)
        dual = eq.dual_ascent(dual, twin, w, tau)
        assert torch.linalg.matrix_norm(dual, 2) <= lambda3 * (1 + 1e-9)
        w = w + 0.1 * x["f"][3:]


# All of them


@few
@given(seeds)
def test_permuting_the_labels_permutes_everything(seed: int) -> None:
    x = draw(seed)
    f, w, y, mu, var, o = (x[name] for name in ("f", "w", "y", "mu", "var", "order"))
    cos = eq.cosines(f, w)
    p = eq.probabilities(cos)
    same(eq.cosines(f, w[o]), cos[:, o])
    same(eq.am_loss(cos[:, o], y[:, o], 9.0, 0.2), eq.am_loss(cos, y, 9.0, 0.2))
    same(eq.slopes(var[o]), eq.slopes(var)[o])
    a = eq.slopes(var)
    same(eq.psi(eq.angles(cos)[:, o], mu[o], a[o]), eq.psi(eq.angles(cos), mu, a)[:, o])
    same(eq.balanced(cos[:, o], mu[o], a[o]), eq.balanced(cos, mu, a)[:, o])
    same(bdd_loss(cos[:, o], y[:, o], mu[o], var[o], 9.0, 0.2), bdd_loss(cos, y, mu, var, 9.0, 0.2))
    same(eq.probabilities(cos[:, o]), p[:, o])
    same(eq.prototypes(f, y[:, o]), eq.prototypes(f, y)[o])
    for permuted, plain in zip(eq.angle_moments(cos[:, o], y[:, o]), eq.angle_moments(cos, y), strict=True):
        same(permuted, plain[o])
    same(eq.sharpen(p[:, o], 0.3), eq.sharpen(p, 0.3)[:, o])
    same(eq.entropy(p[:, o]), eq.entropy(p))
    counts = eq.cap_counts(mu / 2, len(p))
    assert torch.equal(eq.cap_labels(p[:, o], counts[o]), eq.cap_labels(p, counts)[:, o])
    same(eq.nuclear_norm(w[o]), eq.nuclear_norm(w))
    same(eq.singular_value_threshold(w[o], 0.4), eq.singular_value_threshold(w, 0.4)[o])
