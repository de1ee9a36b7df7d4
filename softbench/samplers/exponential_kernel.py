"""What the samplers with random features of an exponential kernel share."""

from typing import Any

from softbench.checks import check_number, check_positive
from softbench.ops import assign_when
from softbench.samplers.kernel import KernelSampler

Tensor = Any

LARGEST_DEFAULT_NU = 4.0


class ExponentialKernelSampler(KernelSampler):
    """A `KernelSampler` whose map estimates K(h, c) = exp(nu <h, c>) with random features.

    Args:
        num_features: D, the number of random directions.
        nu: of the kernel; the paper's best is 4 for 1 / temperature = 11.1. None takes the
            smaller of that and 1 / temperature: the softmax's own kernel where its estimate is
            good enough.
        redraw: draw new directions at each refresh. Directions that stay let training find the
            classes and inputs whose kernel they underestimate: these are seldom drawn, so nothing
            pushes their scores down, and the proposal gets worse as the model learns. Needs an
            ordinary optimizer, under which a refresh computes all features anyway.

    Raises:
        ValueError: when built with `redraw` for a table that has a row optimizer.
    """

    def __init__(
        self,
        num_features: int = 1024,
        nu: float | None = None,
        redraw: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_features=num_features)
        if nu is not None:
            check_number(0, exclusive=True, nu=nu)
        self.num_features = int(num_features)
        self.nu = nu
        self.redraw = redraw

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        if self.redraw and table is not None and table.row_optimizer is not None:
            raise ValueError(
                "`redraw` must be False for a table with a `row_optimizer`, whose sums follow the "
                "touched rows and are not computed afresh. Received: redraw=True"
            )
        super().build(table_shape, num_sampled, table)

    def _before_refresh(self, due: Tensor) -> None:
        if self.redraw:
            # drawn at every step: a generator cannot be asked inside a branch on JAX
            noise = self.features.noise(self.seed_generator)
            assign_when(due, [self.features.drawn], lambda: [self.features.fresh(noise)])

    def kernel_nu(self, temperature: float) -> float:
        """nu for a table of this temperature."""
        return min(LARGEST_DEFAULT_NU, 1.0 / temperature) if self.nu is None else self.nu

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "num_features": self.num_features,
            "nu": self.nu,
            "redraw": self.redraw,
        }
