"""Claims of Rawat et al. 2019, Sampled softmax with random Fourier features."""

from softbench.report.verdicts.ratios import Numbers, Times
from softbench.report.verdicts.rule import Claim, Part, better
from softbench.report.verdicts.training_ratios import Trained

PTB, EARLY = ("ptb_rff", "ptb-lstm_small"), ("ptb_rff", "ptb-lstm_small_1162_steps")
LANGUAGE, XMC = ("quickstart", "language-lstm"), ("quickstart", "xmc-bag")
AT_1 = "valid_precision_at_1"
BACKENDS = ("jax", "tensorflow")


def _error(features: int, tau: str, target: str) -> Numbers:
    """The error of RFF over that of the best quadratic, which is fitted to exp(tau o)."""
    prefix = "kernel_mse backend=tensorflow errors"
    scored = "on the Gaussian kernel" if target == "gaussian" else "on the same target"
    return Numbers(
        f"error of RFF, D = {features:,}, {scored} / of the best quadratic, tau = {tau}",
        f"{prefix}.rff_D{features}.{tau}.{target}",
        f"{prefix}.quadratic.{tau}.mse",
    )


def _time(left: str, right: str, backend: str, n: int = 500_000, other: int = 0) -> Times:
    """The loss of ten examples with ten draws each; `other`: the n of the right side."""

    def address(method: str, size: int) -> str:
        where = f"wall_time dataset=random{size},model=b10_m10,backend={backend}"
        return f"{where} wall_time.{method}.loss.step_ms"

    words = f"`{left}` at n = {n:,} / `{right}` at {other or n:,}, {backend}"
    return Times(words, address(left, n), address(right, other or n))


def _bias(left: str, right: str) -> Numbers:
    """The largest bias of a logit's gradient, the mean over contexts, with 100 draws."""

    def address(name: str) -> str:
        return f"gradient_bias among={name} samplers.{name}.bias.100.worst"

    return Numbers(f"bias of `{left}` / `{right}`", address(left), address(right), error="error")


def _within(name: str) -> Numbers:
    bias = f"gradient_bias among={name} samplers.{name}.bias.100"
    words = f"largest bias of `{name}` / upper bound"
    return Numbers(words, f"{bias}.worst", f"{bias}.upper", error="error")


def _table_3(experiment: str, group: str, data: str, rows: str = "") -> Claim:
    names = [f"{name}{rows}" for name in ("rff", "uniform", "quadratic")]
    where = (experiment, group)
    return Claim(
        f"rawat-table-3-{group.rpartition('-')[0]}",
        "Table 3",
        "After as many steps, RFF has a better precision@1 than uniform draws, quadratic draws "
        "have one too, and RFF is comparable to quadratic (at least 0.97 of it) or better.",
        (
            better(*where, names[0], names[1], AT_1),
            better(*where, names[2], names[1], AT_1),
            Part(Trained(*where, names[0], names[2], AT_1), low=0.97),
        ),
        f"{group}: {data}",
    )


def _figure_3(suffix: str, where: tuple[str, str], data: str) -> tuple[Claim, ...]:
    order = (("exp", "rff"), ("rff", "quadratic"), ("quadratic", "uniform"))
    return (
        Claim(
            f"rawat-exp-full{suffix}",
            "Figure 3",
            "Exact draws (`exp`) are very close to the full softmax: within 2 %.",
            (Part(Trained(*where, "exp", "full"), 0.98, 1.02),),
            data,
        ),
        Claim(
            f"rawat-rff-full{suffix}",
            "Figure 3",
            "RFF with D = 1,024 comes near the full softmax: within 5 %.",
            (Part(Trained(*where, "rff", "full"), high=1.05),),
            data,
        ),
        Claim(
            f"rawat-order{suffix}",
            "Figure 3",
            "The order is `exp`, RFF, quadratic, uniform, the best first.",
            tuple(better(*where, *pair) for pair in order),
            data,
        ),
    )


CLAIMS = (
    Claim(
        "rawat-error",
        "Table 1",
        "Random Fourier features approximate the Gaussian kernel with a smaller error than the "
        "best quadratic features the exponential one.",
        tuple(Part(_error(D, "1.0", "gaussian"), high=1) for D in (100, 1000, 65536)),
    ),
    Claim(
        "rawat-error-one-target",
        "Table 1",
        "They do so where both are scored on the exponential kernel.",
        (
            *(Part(_error(D, "1.0", "mse"), high=1) for D in (100, 1000, 65536)),
            Part(_error(1000, "11.1", "mse"), high=1),
        ),
        "Not the paper's reading, which scores them on two targets",
    ),
    Claim(
        "rawat-cheaper",
        "Table 2",
        "At n = 500,000 RFF draws are cheaper than exact ones.",
        tuple(
            Part(_time(rff, "exp", backend), high=1)
            for backend in BACKENDS
            for rff in ("rff_50", "rff_1000")
        ),
    ),
    Claim(
        "rawat-how-much-cheaper",
        "Table 2",
        "At n = 500,000 exact draws take 20 times as long as RFF with D = 50 and 13.5 times as "
        "long as with D = 1,000, or more.",
        tuple(
            Part(_time("exp", rff, backend), low=low)
            for backend in BACKENDS
            for rff, low in (("rff_50", 20.0), ("rff_1000", 13.5))
        ),
    ),
    Claim(
        "rawat-cheaper-than-quadratic",
        "Table 2",
        "At n = 500,000 RFF draws with D = 1,000 are cheaper than quadratic ones.",
        tuple(Part(_time("rff_1000", "quadratic", backend), high=1) for backend in BACKENDS),
    ),
    Claim(
        "rawat-log-n",
        "section 3.2, Table 2",
        "The cost of RFF draws grows like log n: from 10,000 to 1,000,000 classes, where log n is "
        "1.5 times as large, by less than twice that.",
        tuple(
            Part(_time("rff_1000", "rff_1000", backend, 1_000_000, 10_000), high=3)
            for backend in BACKENDS
        ),
    ),
    Claim(
        "rawat-nu",
        "Figure 1",
        "RFF trains best with nu = 4 (T = 0.5).",
        tuple(better(*EARLY, "rff", f"rff_nu{nu}") for nu in (1, 2, 8, 11)),
        "Half an epoch",
    ),
    Claim(
        "rawat-dimension",
        "Figure 2",
        "RFF trains better with more features.",
        tuple(
            better(*EARLY, *pair)
            for pair in (("rff_d256", "rff_d64"), ("rff", "rff_d256"), ("rff_d4096", "rff"))
        ),
        "Half an epoch",
    ),
    *_figure_3("", PTB, "Four epochs"),
    *_figure_3("-early", EARLY, "Half an epoch"),
    *(
        Claim(
            f"rawat-order-{where[1].partition('-')[0]}",
            "Figure 3",
            "The order is `exp`, RFF, uniform, the best first.",
            (better(*where, "exp", "rff"), better(*where, "rff", "uniform")),
            f"{what}; no quadratic row",
        )
        for where, what in (
            (LANGUAGE, "A generated language of 2,000 words"),
            (XMC, "Generated labels, n = 2,048"),
        )
    ),
    Claim(
        "rawat-bnews",
        "Figure 4",
        "On BNEWS, RFF with D = 8,192 trains better than quadratic draws.",
        (better("bnews", "bnews-lstm_medium", "rff_d8192", "quadratic"),),
        "The data are not available here",
    ),
    *(
        _table_3("xmc", f"{name}-bag", "the data are not available here", "_rows")
        for name in ("amazoncat-13k", "delicious-200k", "wikilshtc-325k")
    ),
    *(
        _table_3("xmc", group, "other data than the paper's")
        for group in ("bibtex-bag", "delicious-bag", "citeulike-t-bag", "wd50k-pair")
    ),
    Claim(
        "rawat-normalised",
        "section 4.2",
        "Normalised vectors lower the validation perplexity of the full softmax on Penn Treebank.",
        (
            Part(
                Numbers(
                    "lowest validation perplexity of `full`, normalised / not",
                    "ptb_equal_time method=full curve.min.valid_perplexity",
                    "ptb_nce method=full,preset=small curve.min.valid_perplexity",
                ),
                high=1,
            ),
        ),
        "Other optimizers; the paper's is not named",
    ),
    Claim(
        "rawat-theorem-1",
        "Theorem 1",
        "The bias of a logit's gradient is within the bounds.",
        tuple(
            Part(_within(name), high=1)
            for name in ("uniform", "unigram", "quadratic", "rff_D1024_nu4")
        ),
        "A trained Penn Treebank head, 100 draws",
    ),
    Claim(
        "rawat-unbiased",
        "Theorem 1",
        "Draws from the softmax itself have no bias, and RFF draws less than quadratic and "
        "uniform ones.",
        (
            Part(_bias("exp", "uniform"), high=1e-3),
            Part(_bias("rff_D1024_nu4", "quadratic"), high=1),
            Part(_bias("rff_D1024_nu4", "uniform"), high=1),
        ),
        "A trained Penn Treebank head, 100 draws",
    ),
    Claim(
        "rawat-bias-dimension",
        "Theorem 2, Corollary 1",
        "The bias of RFF draws shrinks with D.",
        tuple(
            Part(_bias(f"rff_D{more}_nu4", f"rff_D{less}_nu4"), high=1)
            for less, more in ((64, 256), (256, 1024), (1024, 4096))
        ),
        "A trained Penn Treebank head, 100 draws",
    ),
    Claim(
        "rawat-bias-nu",
        "Remarks 1 and 2",
        "At D = 1,024 the bias is least at a nu between: smaller with 4 than with 1, 2 and 8.",
        tuple(Part(_bias("rff_D1024_nu4", f"rff_D1024_nu{nu}"), high=1) for nu in (1, 2, 8)),
        "A trained Penn Treebank head, 100 draws, tau = 11.1",
    ),
)
