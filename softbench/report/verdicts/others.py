"""Claims of Bamler & Mandt 2020 and of Stratos, and ours."""

import math

from softbench.report.verdicts.ratios import Numbers, Times
from softbench.report.verdicts.rawat import AT_1, LANGUAGE, XMC
from softbench.report.verdicts.rule import Claim, Part, better
from softbench.report.verdicts.training_ratios import Sooner

HIERARCHY, WD50K, ELTEC = (
    ("adversarial", group) for group in ("hierarchy-bag", "wd50k-pair", "states_eltec-hun-linear")
)
ACCURACY = "valid_accuracy"
BASELINES = ("uniform", "frequency", "nce", "augment_reduce", "one_vs_each")
# {group: (experiment, group, methods, measure, what the data are)}
BY_TIME = {
    "hierarchy": (*HIERARCHY, "adversarial", ACCURACY, "A generated hierarchy, n = 200,000"),
    "wd50k": (*WD50K, "adversarial", ACCURACY, "wd50k, n = 41,334"),
    "eltec": (*ELTEC, "adversarial", ACCURACY, "Fixed states of a language model, n = 197,030"),
    **{
        f"xmc-{group}": ("xmc", group, tree, AT_1, f"{group}, 100 draws, busy machine")
        for group, tree in (
            ("bibtex-bag", "adversarial"),
            ("delicious-bag", "adversarial"),
            ("citeulike-t-bag", "adversarial"),
            ("wd50k-pair", "adversarial_r10"),
        )
    },
}


def _signal(problem: str, noise: str) -> Numbers:
    """1 / SNR with noise like the data over that with another, by the formula."""
    prefix = f"signal_to_noise dataset={problem} noise"
    return Numbers(
        f"noise over signal, the data / {noise}, {problem}",
        f"{prefix}.data.negatives.1.closed_form",
        f"{prefix}.{noise}.negatives.1.closed_form",
        exact=True,
    )


BAMLER_MANDT = (
    *(
        Claim(
            f"bamler-sooner-{name}",
            "section 5, Figure 1",
            "Adversarial negatives come to the accuracy of uniform ones in a tenth of the time.",
            (Part(Sooner(experiment, group, tree, "uniform", metric), high=0.1),),
            f"{what}; other data than the paper's",
        )
        for name, (experiment, group, tree, metric, what) in BY_TIME.items()
    ),
    *(
        Claim(
            f"bamler-frequency-{where[1]}",
            "section 5, Figure 1",
            "Adversarial negatives come to the accuracy of negatives by label frequency sooner "
            "than these.",
            (Part(Sooner(*where, "adversarial", "frequency"), high=1),),
            f"{where[1]}: other data than the paper's",
        )
        for where in (HIERARCHY, WD50K, ELTEC)
    ),
    *(
        Claim(
            f"bamler-accuracy-{where[1]}",
            "section 5, Figure 1",
            "After the same time adversarial negatives have a better accuracy than all baselines.",
            tuple(better(*where, "adversarial", other, ACCURACY) for other in BASELINES),
            f"{where[1]}: other data than the paper's",
        )
        for where in (HIERARCHY, WD50K, ELTEC)
    ),
    Claim(
        "bamler-theorem-2",
        "Theorem 2",
        "The signal-to-noise ratio is largest where the noise is distributed like the data.",
        tuple(
            Part(_signal(problem, noise), high=1)
            for problem in ("n10_sharpness3", "n100_sharpness3")
            for noise in ("uniform", "frequency", "power_150")
        ),
        "One negative for each example",
    ),
    Claim(
        "bamler-theorem-2-size",
        "sections 1 and 2.2",
        "That explains the speed: against uniform noise the ratio is ten times as large.",
        tuple(
            Part(_signal(problem, "uniform"), high=0.1)
            for problem in ("n10_sharpness3", "n100_sharpness3")
        ),
    ),
)


def _bound(data: str, critic: str, draws: int, right: float | str, words: str) -> Numbers:
    where = f"mutual_information dataset={data}"
    return Numbers(
        f"bound of the {critic} critic, N = {draws} / {words}, {data}",
        f"{where} critics.{critic}.{draws}.bound",
        right,
        error="bound_error",
    )


def _information(data: str, critic: str) -> Numbers:
    right = f"mutual_information dataset={data} mutual_information"
    return _bound(data, critic, 512, right, "I(X, Y)")


def _local(critic: str, draws: int) -> Numbers:
    where = "mutual_information dataset=table"
    return Numbers(
        f"loss of local NCE of the {critic} critic, N = {draws} / Lemma 2.1",
        f"{where} critics.{critic}.{draws}.local",
        f"{where} local_optimum.{draws}",
        error="local_error",
    )


DATA = ("table", "gaussian")
STRATOS = (
    Claim(
        "stratos-bound",
        "Corollary 1.2",
        "InfoNCE bounds the mutual information from below.",
        tuple(
            Part(_information(data, critic), high=1)
            for data in DATA
            for critic in ("ranking", "binary")
        ),
    ),
    Claim(
        "stratos-ceiling",
        "Corollary 1.2",
        "The bound cannot be more than log N.",
        tuple(
            Part(_bound(data, "optimal", N, math.log(N), f"log {N}"), high=1)
            for data in DATA
            for N in (2, 4)
        ),
    ),
    Claim(
        "stratos-tight",
        "Corollary 1.2",
        "With the optimal critic the bound comes to the mutual information as N grows: within 3 % "
        "at N = 512.",
        tuple(Part(_information(data, "optimal"), 0.97, 1.03) for data in DATA),
    ),
    Claim(
        "stratos-local",
        "Lemma 2.1",
        "The least loss of local NCE is that of the lemma: the optimal critic has it (within 1 %), "
        "and no trained one a smaller one.",
        (
            *(Part(_local("optimal", N), 0.99, 1.01) for N in (2, 64, 512)),
            *(Part(_local("binary", N), low=1) for N in (2, 64, 512)),
        ),
    ),
    Claim(
        "stratos-recovers",
        "equation 2",
        "p(y|x) follows from the optimal critic of global NCE.",
        (
            Part(
                Numbers(
                    "KL divergence in nats",
                    "mutual_information dataset=table critics.optimal.512.kl",
                    exact=True,
                ),
                -1e-9,
                1e-9,
            ),
        ),
    ),
)


def _codebook_bias(other: str) -> Numbers:
    def address(name: str) -> str:
        return f"gradient_bias among={name} samplers.{name}.bias.100.worst"

    words = f"bias of `codebook_K128` / `{other}`"
    return Numbers(words, address("codebook_K128"), address(other), error="error")


def _codebook_time(other: str, backend: str) -> Times:
    prefix = f"wall_time dataset=random500000codebook,model=b10_m10,backend={backend} wall_time"
    words = f"`codebook` / `{other}`, {backend}"
    return Times(words, f"{prefix}.codebook.loss.step_ms", f"{prefix}.{other}.loss.step_ms")


def _codebook_perplexity(data: str, model: str) -> Numbers:
    prefix = f"what_ranks dataset={data},model={model} samplers"
    return Numbers(
        f"perplexity of `codebook_16x64` / `unigram_16x64`, {model}",
        f"{prefix}.codebook_16x64.valid_perplexity",
        f"{prefix}.unigram_16x64.valid_perplexity",
    )


BEAUTY = ("sequences_equal_time", "beauty-sasrec")
OURS = (
    *(
        Claim(
            f"codebook-{where[1]}",
            "ours",
            "Codebook draws train better than uniform, unigram and RFF draws in as many steps.",
            tuple(better(*where, "codebook", other) for other in ("uniform", "unigram", "rff")),
            what,
        )
        for where, what in (
            (LANGUAGE, "A generated language of 2,000 words"),
            (XMC, "Generated labels, n = 2,048"),
        )
    ),
    Claim(
        "codebook-what-ranks",
        "ours",
        "Codebook draws train better than as many unigram draws for each of 16 groups.",
        tuple(
            Part(_codebook_perplexity(data, f"{model}-{optimizer}"), high=1)
            for data, model in (("language", "lstm"), ("xmc", "bag"))
            for optimizer in ("adagrad", "adam", "sgd")
        ),
        "Generated data, n = 10,000",
    ),
    Claim(
        "codebook-beauty",
        "ours",
        "In as much time codebook draws train better (nDCG@10) than popularity draws, as many or "
        "four times as many, the mixed ones and `top_and_tail`.",
        tuple(
            better(*BEAUTY, "codebook", other, "valid_ndcg_at_10")
            for other in ("popularity", "popularity_1024", "mixed", "top_and_tail")
        ),
        "Amazon Beauty, n = 12,101",
    ),
    Claim(
        "codebook-beauty-full",
        "ours",
        "In as much time they train better (nDCG@10) than the full softmax.",
        (better(*BEAUTY, "codebook", "full", "valid_ndcg_at_10"),),
        "Amazon Beauty, n = 12,101",
    ),
    Claim(
        "codebook-bias",
        "ours",
        "Codebook draws have less bias than RFF, quadratic, unigram and uniform ones.",
        tuple(
            Part(_codebook_bias(other), high=1)
            for other in ("rff_D1024_nu4", "quadratic", "unigram", "uniform")
        ),
        "A trained Penn Treebank head, 100 draws",
    ),
    Claim(
        "codebook-cheaper",
        "ours",
        "At n = 500,000 codebook draws cost less than exact ones and than RFF with D = 1,000.",
        tuple(
            Part(_codebook_time(other, backend), high=1)
            for backend in ("jax", "tensorflow")
            for other in ("exp", "rff_1000")
        ),
    ),
)
