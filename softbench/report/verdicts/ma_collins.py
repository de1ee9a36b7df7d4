"""Claims of Ma & Collins 2018, Noise contrastive estimation for conditional models."""

from softbench.report.verdicts.ratios import Numbers
from softbench.report.verdicts.rule import Claim, Part, better
from softbench.report.verdicts.training_ratios import Trained

SMALL = ("ptb_nce", "ptb-lstm_small")
SIZES = tuple(("ptb_nce", f"ptb-lstm_{size}") for size in ("small", "medium", "large"))


def _kl(left: str, right: str, n: int = 64_000) -> Numbers:
    """KL(truth || estimate) with 200 inputs; a side is `method.K`."""
    prefix = f"nce_simulation dataset=n_and_k inputs.200.kl.{n}"
    words = f"KL of {left.replace('.', ', K = ')} / {_plain(right)}, n = {n:,}"
    return Numbers(words, f"{prefix}.{left}", f"{prefix}.{right}")


def _plain(side: str) -> str:
    return side.replace(".-", "").replace(".", ", K = ")


def _inputs(what: str, words: str) -> Numbers:
    """A KL with 400 inputs over that with 100, n = 16,000, K = 32."""
    prefix = "nce_simulation dataset=inputs inputs"
    return Numbers(f"{words}, 400 / 100 inputs", f"{prefix}.400.{what}", f"{prefix}.100.{what}")


def _without(inputs: int) -> Numbers:
    prefix = f"nce_simulation dataset=inputs inputs.{inputs}.kl.16000"
    return Numbers(
        f"KL of binary NCE without / with b_x, {inputs} inputs",
        f"{prefix}.binary_without_b_x.32",
        f"{prefix}.binary.32",
    )


def _counterexample(method: str, truth: float, words: str) -> tuple[Part, ...]:
    prefix = "nce_efficiency dataset=counterexample ratios.100000"
    return tuple(
        Part(Numbers(f"{method}, K = {K} / ({words})", f"{prefix}.{method}.{K}", truth), 0.97, 1.03)
        for K in (1, 5, 25)
    )


def _as_k_grows(method: str) -> tuple[Claim, ...]:
    rows = {K: f"{method}_{K}" for K in (200, 800, 1600, 3200)}
    return (
        Claim(
            f"ma-{method}-k",
            "Tables 1 and 2",
            f"The perplexity of {method} NCE falls as K grows.",
            (better(*SMALL, rows[800], rows[200]), better(*SMALL, rows[1600], rows[800])),
            "The small LSTM",
        ),
        Claim(
            f"ma-{method}-mle",
            "Tables 1 and 2",
            f"With K = 1,600 {method} NCE is better than maximum likelihood.",
            (better(*SMALL, rows[1600], "full"),),
            "The small LSTM",
        ),
        Claim(
            f"ma-{method}-near-mle",
            "Remark 4.2",
            f"{method.capitalize()} NCE comes to maximum likelihood as K grows: with K = 800, and "
            "with 3,200, which the paper does not have, it is at most 2 % behind.",
            tuple(Part(Trained(*SMALL, rows[K], "full"), high=1.02) for K in (800, 3200)),
            "The small LSTM",
        ),
        Claim(
            f"ma-simulated-{method}",
            "section 5.1, Figure 2" if method == "ranking" else "appendix A.1, Figure 3",
            f"The KL divergence of {method} NCE comes to that of maximum likelihood as K grows: "
            "it falls with every doubling, and ends within a factor of 1.5.",
            (
                *(Part(_kl(f"{method}.{2 * K}", f"{method}.{K}"), high=1) for K in (2, 4, 8, 16)),
                Part(_kl(f"{method}.32", "mle.-"), high=1.5),
            ),
            "Our mixtures; the paper's are not given",
        ),
    )


def _more_data() -> Numbers:
    prefix = "nce_simulation dataset=n_and_k inputs.200.kl"
    few, many = (f"{prefix}.{n}.ranking.4 / {prefix}.{n}.ranking.32" for n in (4_000, 64_000))
    words = "KL of ranking, K = 4 over K = 32, at n = 64,000 / at n = 4,000"
    return Numbers(words, many, few)


def _distance(model: str) -> Numbers:
    prefix = f"nce_efficiency dataset={model} measured.ranking"
    words = f"n (estimate - mle)^2 / d of ranking, K = 64 / 1, {model}"
    return Numbers(words, f"{prefix}.64.distance", f"{prefix}.1.distance")


def _over_fisher(model: str) -> Numbers:
    where = f"nce_efficiency dataset={model}"
    words = f"n MSE / d of binary NCE, K = 64 / Fisher limit, {model}"
    return Numbers(words, f"{where} measured.binary.64.mean", f"{where} exact.fisher")


CLAIMS = (
    Claim(
        "ma-mle",
        "Table 1",
        "The small LSTM, trained by maximum likelihood, has a test perplexity of 111.5 on Penn "
        "Treebank (within 2 %).",
        (
            Part(
                Numbers(
                    "test perplexity of `full` / 111.5",
                    "ptb_nce method=full,preset=small final.test_perplexity",
                    111.5,
                ),
                0.98,
                1.02,
            ),
        ),
    ),
    *_as_k_grows("ranking"),
    *_as_k_grows("binary"),
    Claim(
        "ma-binary-ranking",
        "section 5.2",
        "Without regularisation binary NCE is better than ranking and than maximum likelihood.",
        (better(*SMALL, "binary_800", "ranking_800"), better(*SMALL, "binary_800", "full")),
        "The small LSTM, K = 800",
    ),
    Claim(
        "ma-regularised",
        "section 5.2, Table 1",
        "The regulariser lowers the perplexity of maximum likelihood and of ranking.",
        (
            better(*SMALL, "reg_mle", "full"),
            better(*SMALL, "reg_ranking_1600", "ranking_1600"),
        ),
        "The small LSTM",
    ),
    Claim(
        "ma-regularised-ranking",
        "section 6, Table 1",
        "With the regulariser ranking is better than binary NCE.",
        tuple(better(*where, "reg_ranking_1600", "reg_binary_1600") for where in SIZES),
        "In the paper's Table 1 true of the medium and the large LSTM alone",
    ),
    Claim(
        "ma-more-data",
        "section 5.1, Figure 2",
        "The more data, the less ranking depends on K.",
        (Part(_more_data(), high=1),),
        "Our mixtures; the paper's are not given",
    ),
    Claim(
        "ma-without-partition",
        "section 5.1",
        "Without a bias b_x for each input binary NCE is not consistent, and its KL divergence is "
        "much higher: at least twice that with one.",
        tuple(Part(_without(inputs), low=2) for inputs in (100, 400)),
        "Our mixtures; n = 16,000, K = 32",
    ),
    Claim(
        "ma-without-partition-grows",
        "section 5.1",
        "Without b_x the KL divergence grows with the number of inputs.",
        (Part(_inputs("kl.16000.binary_without_b_x.32", "KL without b_x"), low=1),),
        "Our mixtures; n = 16,000, K = 32",
    ),
    Claim(
        "ma-without-partition-size",
        "section 5.1",
        "From 100 to 400 inputs it grows from 0.19 to 0.26: to 1.31 to 1.43 times, as rounded.",
        (Part(_inputs("kl.16000.binary_without_b_x.32", "KL without b_x"), 1.31, 1.43),),
        "Our mixtures; the paper's are not given",
    ),
    Claim(
        "ma-partition-grows",
        "section 5.1, Figure 2",
        "With b_x the KL divergence of binary NCE grows with the number of inputs, and those of "
        "ranking and maximum likelihood do not (within 10 %).",
        (
            Part(_inputs("kl.16000.binary.32", "KL of binary"), low=1),
            Part(_inputs("kl.16000.ranking.32", "KL of ranking"), 0.9, 1.1),
            Part(_inputs("kl.16000.mle.-", "KL of mle"), 0.9, 1.1),
        ),
        "Our mixtures; of the normalised estimate",
    ),
    Claim(
        "ma-partition-grows-unnormalised",
        "section 5.1, Figure 2",
        "It grows where exp(x' theta_y + b_x) is taken as it is.",
        (Part(_inputs("unnormalised.16000.binary.32", "KL of binary as it is"), low=1),),
        "Our mixtures",
    ),
    Claim(
        "ma-counterexample",
        "section 4.3",
        "On the counterexample binary NCE goes to 3/7 at every K, and ranking to the truth, 1/3 "
        "(within 3 %).",
        (
            *_counterexample("binary", 3 / 7, "3/7"),
            *_counterexample("ranking", 1 / 3, "1/3"),
        ),
        "n = 100,000",
    ),
    Claim(
        "ma-ranking-efficiency",
        "Theorem 4.6",
        "The gap of ranking to Fisher efficiency falls at least like 1 / sqrt(K): from K = 1 to "
        "64 to an eighth or less.",
        tuple(Part(_distance(model), high=1 / 8) for model in ("cyclic", "offset")),
    ),
    Claim(
        "ma-binary-efficiency",
        "Theorem 4.7",
        "n MSE / d of binary NCE tends to the Fisher limit as K grows (within 10 % at K = 64).",
        tuple(Part(_over_fisher(model), 0.9, 1.1) for model in ("cyclic", "offset")),
        "Two self-normalised models: at every theta, at the truth alone",
    ),
)
