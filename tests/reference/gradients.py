"""Gradients: of the paper's layers in our order, and by central differences."""

import numpy as np
import pytest


def as_rows(dW, dc):
    """The paper's ∂J/∂W and ∂J/∂c (samples are columns there) as one vector of ours."""
    return np.concatenate([part for w, b in zip(dW, dc, strict=True) for part in (w.T.ravel(), b.ravel())])


def check_by_differences(objective, theta, layers, *, tolerance, seed=0):
    """Compare six entries of each W and c with (J(θ + h) − J(θ − h)) / 2h; ``tolerance``: absolute."""
    rng, (_, gradient) = np.random.default_rng(seed), objective(theta)
    start = 0
    for layer in layers:
        for part in layer:
            for i in rng.choice(part.size, min(part.size, 6), replace=False) + start:
                step = np.zeros(len(theta))
                step[i] = 1e-5
                up, down = (sum(objective(theta + sign * step)[0].values()) for sign in (1, -1))
                assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=tolerance)
            start += part.size
    assert start == len(theta)
