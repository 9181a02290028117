"""Random numbers by position."""

import math

import numpy as np
import pytest

from riot_ops.streams.noise import hash64, normal, ornstein_uhlenbeck, ornstein_uhlenbeck_table, uniform


def hashes(n):
    with np.errstate(over="ignore"):
        return [np.uint64(hash64(np.uint64(i) * np.uint64(0x9E3779B97F4A7C15))) for i in range(n)]


def test_hash64_is_the_finaliser_of_splitmix64():
    # first outputs of the reference splitmix64.c for the seed 0: the finaliser of the golden ratio's multiples
    with np.errstate(over="ignore"):
        found = [int(hash64(np.uint64(k * 0x9E3779B97F4A7C15 % 2**64))) for k in (1, 2, 3)]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_uniform_and_normal_have_their_moments():
    hs = hashes(20_000)
    u = np.array([uniform(h) for h in hs])
    z = np.array([normal(h) for h in hs])
    # the standard errors of mean and standard deviation at n = 20,000 are 0.002 and 0.007 (normal): five of them
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(z.mean()) < 0.035
    assert abs(z.std() - 1) < 0.025
    assert (u > 0).all()
    assert (u < 1).all()


def test_normal_is_the_inverse_of_the_distribution():
    for h in hashes(500):
        p = 0.5 * math.erfc(-normal(h) / math.sqrt(2))
        assert p == pytest.approx(float(uniform(h)), rel=2e-8)


@pytest.mark.long
@pytest.mark.parametrize("phi", [0.9, 0.99])
def test_ornstein_uhlenbeck_has_the_correlation_of_an_ar1_process(phi):
    table = ornstein_uhlenbeck_table(phi)
    keys = hashes(4000)
    with np.errstate(over="ignore"):
        x = np.array([[ornstein_uhlenbeck(k, t, table) for t in (100, 101, 110, 163)] for k in keys])
    assert abs(x.mean()) < 0.08
    assert abs(x.std() - 1) < 0.05
    found = np.corrcoef(x.T)[0]
    for lag, rho in zip((1, 10, 63), found[1:], strict=True):
        # 0.016 is a standard error at n = 4,000; anchors taken as independent cost up to 0.02
        assert rho == pytest.approx(phi**lag, abs=0.07)
    # increments: the variance of x(t+1) - x(t) is 2 (1 - phi), within 5 standard errors
    assert np.var(x[:, 1] - x[:, 0]) == pytest.approx(2 * (1 - phi), rel=0.12)


def test_ornstein_uhlenbeck_is_independent_of_the_start():
    table = ornstein_uhlenbeck_table(0.95)
    key = hashes(2)[1]
    with np.errstate(over="ignore"):
        forward = [ornstein_uhlenbeck(key, t, table) for t in range(300)]
        assert [ornstein_uhlenbeck(key, t, table) for t in reversed(range(300))] == forward[::-1]
