"""The samplers, and the line that registers each by name."""

from softbench.samplers.base import Sampler
from softbench.samplers.codebook.sampler import Codebook
from softbench.samplers.exp import Exp
from softbench.samplers.in_batch import InBatch
from softbench.samplers.kernel.maclaurin import RandomMaclaurinKernel
from softbench.samplers.kernel.positive import PositiveKernel
from softbench.samplers.kernel.quadratic import QuadraticKernel
from softbench.samplers.kernel.rff import RandomFourierKernel
from softbench.samplers.kernel.sorf import StructuredFourierKernel
from softbench.samplers.log_uniform import LogUniform
from softbench.samplers.mixed import Mixed
from softbench.samplers.proposal import Component, Independent, Proposal, Samples
from softbench.samplers.registry import REGISTRY, get, serialize
from softbench.samplers.static import StaticSampler
from softbench.samplers.top_and_tail.sampler import TopAndTail
from softbench.samplers.tree.adversarial import AdversarialTree
from softbench.samplers.uniform import Uniform
from softbench.samplers.unigram import Unigram

REGISTRY |= {
    "adversarial": AdversarialTree,
    "codebook": Codebook,
    "exp": Exp,
    "in_batch": InBatch,
    "log_uniform": LogUniform,
    "maclaurin": RandomMaclaurinKernel,
    "mixed": Mixed,
    "positive": PositiveKernel,
    "quadratic": QuadraticKernel,
    "rff": RandomFourierKernel,
    "sorf": StructuredFourierKernel,
    "top_and_tail": TopAndTail,
    "uniform": Uniform,
    "unigram": Unigram,
}

__all__ = ["REGISTRY", "Component", "Independent", "Proposal"]
__all__ += ["Sampler", "Samples", "StaticSampler", "get", "serialize"]
__all__ += [sampler.__name__ for sampler in REGISTRY.values()]
