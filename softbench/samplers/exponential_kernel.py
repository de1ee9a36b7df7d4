"""What the samplers with random features of an exponential kernel share."""

from typing import Any

from softbench.checks import check_number, check_positive
from softbench.samplers.kernel import KernelSampler

LARGEST_DEFAULT_NU = 4.0


class ExponentialKernelSampler(KernelSampler):
    """A `KernelSampler` whose map estimates K(h, c) = exp(nu <h, c>) with random features.

    Args:
        num_features: D, the number of random directions.
        nu: of the kernel; the paper's best is 4 for 1 / temperature = 11.1. None takes the
            smaller of that and 1 / temperature: the softmax's own kernel where its estimate is
            good enough.
    """

    def __init__(self, num_features: int = 1024, nu: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive(num_features=num_features)
        if nu is not None:
            check_number(0, exclusive=True, nu=nu)
        self.num_features = int(num_features)
        self.nu = nu

    def kernel_nu(self, temperature: float) -> float:
        """nu for a table of this temperature."""
        return min(LARGEST_DEFAULT_NU, 1.0 / temperature) if self.nu is None else self.nu

    def get_config(self) -> dict:
        return {**super().get_config(), "num_features": self.num_features, "nu": self.nu}
