"""Rawat et al. (2019), Table 1: the error of feature maps as estimates of exp(tau <h, c>).

    softbench --config=configs/kernel_mse.py --data_dir=<folder that holds usps/>

h and c are random images of USPS (d = 256, pixels in [-1, 1], normalised); without `--data_dir`,
noise instead. The paper does not say tau; its figures come out at tau = 1 when
the quadratic map is scored on exp(o) and the random Fourier map on the Gaussian kernel exp(o - 1).
Beside that stand all maps on one target, at tau = 1 and at the 11.1 that training uses.

Five seeds, each with other pairs and other features; a few minutes. (JAX compiles every random
Maclaurin map anew, which takes several times as long.)
"""

from softbench.bench.config import experiment


def row(name, num_features, **fields):
    """A map of D features."""
    return {"map": name, "num_features": num_features, **fields}


def get_config():
    """Returns the experiment; every value can be overridden on the command line."""
    return experiment(
        "kernel_mse",
        title="Error of feature maps: Rawat et al. 2019, Table 1",
        task="kernel_mse",
        dataset={"name": "usps"},
        model={"name": "pairs"},
        method_table={
            # `paper`: the number of Table 1; `scored`: the target that it comes out on.
            "quadratic": {"map": "quadratic", "paper": 2.8e-3, "scored": "mse"},
            "rff_D100": row("rff", 100, paper=2.6e-3, scored="gaussian"),
            "rff_D1000": row("rff", 1000, paper=2.7e-4, scored="gaussian"),
            "rff_D1024": row("rff", 1024),
            "rff_D65536": row("rff", 256**2, paper=5.5e-6, scored="gaussian"),
            "sorf_D1024": row("sorf", 1024),
            "positive_D1024": row("positive", 1024),
            "maclaurin_D65536": row("maclaurin", 256**2, paper=8.8e-2, scored="mse"),
        },
        seeds=(0, 1, 2, 3, 4),
        # `features`: independent maps are averaged until they have this many together.
        options={"pairs": 500, "taus": (1.0, 11.1), "features": 16384},
        presets={
            "smoke": {
                "methods": "quadratic,rff_D100,sorf_D1024,positive_D1024",
                "options": {"pairs": 50, "taus": (1.0,), "features": 1024},
                "seeds": (0,),
            },
            "paper": {},
        },
    )
