"""All claims by paper: another one is an entry in the module of its paper."""

from softbench.report.verdicts import ma_collins, others, rawat
from softbench.report.verdicts.rule import Claim

LIBRARY: dict[str, tuple[Claim, ...]] = {
    "Rawat et al. 2019": rawat.CLAIMS,
    "Ma & Collins 2018": ma_collins.CLAIMS,
    "Bamler & Mandt 2020": others.BAMLER_MANDT,
    "Stratos": others.STRATOS,
    "Ours": others.OURS,
}
