"""One look for a method on all pages: over the committed results. Needs no Keras."""

import itertools

import numpy as np
import pytest
from shipped import ROOT

from softbench.report import claims, colours, pages

# Machado, Oliveira & Fernandes 2009: how linear RGB is seen without one kind of cone.
SEEN = {
    "without red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "without green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
}
_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour, matrix):
    """CIE L*a*b* of a colour `#rrggbb` as it is seen."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = _XYZ @ np.clip(np.array(matrix) @ linear, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.thorough
def test_committed_pages_are_the_same_alone_and_a_method_looks_the_same_on_all():
    """And no two methods of a page share a colour. One test, because every page takes a while."""
    results = ROOT / "results"
    frames, _ = pages.read_all(results)
    seen, count = {}, 0
    for name in ["", *frames]:
        own = {name: frames[name]} if name else frames
        page = pages.Page(own, name, claims.verdicts(own))
        text = pages.render(page, results / name, "page.md" if name else "front.md")
        assert text == (results / name / "README.md").read_text()
        for _, data in page.pictures.values():
            count += 1
            styles = colours.styles(data["lines"], data.get("of"))
            assert len({style["color"] for style in styles.values()}) == len(styles)
            assert len({style["marker"] for style in styles.values()}) == len(styles)
            for line, style in styles.items():
                method = data.get("of", {}).get(line, line)
                seen.setdefault(method, set()).add((style["color"], style["marker"]))
    assert count == len(list(results.glob("**/*.svg"))) and len(seen) > 60
    assert {name: looks for name, looks in seen.items() if len(looks) > 1} == {}


def test_colours_can_be_told_apart_by_the_colour_blind():
    """A distance of 8 in L*a*b* is several times what is just seen; markers differ besides."""
    for matrix in SEEN.values():
        for (a, _), (b, _) in itertools.combinations(colours.LOOKS, 2):
            assert np.linalg.norm(lab(a, matrix) - lab(b, matrix)) > 8, (a, b)


def test_names_begin_with_a_methods_or_have_a_look_of_no_other():
    styles = colours.styles(["unigram_p75", "rows_uniform_shared", "fullness", "full, 0123"])
    names = {"unigram_p75": "unigram", "rows_uniform_shared": "uniform", "full, 0123": "full"}
    for line, method in names.items():
        assert styles[line] == colours.styles([method])[method]
    both = colours.styles(["rff_nu1", "rff"])
    assert both["rff"] == colours.styles(["rff"])["rff"] and both["rff_nu1"] != both["rff"]
    many = colours.styles([f"K = {k}" for k in range(len(colours.LOOKS))])
    assert len({style["color"] for style in many.values()}) == len(colours.LOOKS)
