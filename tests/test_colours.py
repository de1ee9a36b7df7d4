"""One look for a method on all pages: over the committed results. Needs no Keras."""

from shipped import ROOT

from softbench.report import colours
from softbench.report.front import overviews, read_all


def looks(data):
    """[{label: (colour, marker, filling)}] of the plots in a picture, and {label: method}."""
    panels = data.get("panels")
    if panels:
        kinds = [{k: v.get("kind", "measured") for k, v in p["lines"].items()} for p in panels]
        groups = [[name for name, kind in own.items() if kind == "measured"] for own in kinds]
    else:
        groups = [[name for name in data["lines"] if name not in data.get("dashed", ())]]
    for labels in groups:
        styles = colours.styles(labels, data.get("of"))
        yield {k: (v["color"], v["marker"], v["markerfacecolor"]) for k, v in styles.items()}


def test_a_method_looks_the_same_on_all_committed_pages_and_unlike_any_other_on_its_plot():
    pages, _ = read_all(ROOT / "results")
    pictures = [data for page in pages for _, data in page.plots.values()]
    pictures += [data for _, data in overviews(pages).values()]
    seen = {}
    for data in pictures:
        for styles in looks(data):
            assert len(set(styles.values())) == len(styles), styles
            for label, look in styles.items():
                name = data.get("of", {}).get(label, label)
                if colours.colour(name):
                    seen.setdefault(name, set()).add(look)
    assert len(pictures) > 20 and len(seen) > 40
    assert {name: own for name, own in seen.items() if len(own) > 1} == {}


def test_families_have_colours_that_the_colour_blind_tell_apart():
    okabe_and_ito = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}
    names = ("full", "nce_ranking", "rff_D1024_nu4", "codebook_K128", "unigram_p75", "in_batch")
    assert {colours.colour(name) for name in names} == okabe_and_ito
    assert colours.colour("uniform_each_25") == colours.GREY
    assert colours.colour("rows_uniform_shared") == colours.GREY
    assert colours.colour("K = 1") is None and colours.colour("fullness") is None


def test_lines_that_are_no_methods_can_be_told_apart_too():
    styles = colours.styles([f"K = {k}" for k in range(30)] + ["full"])
    assert len({(v["color"], v["marker"], v["markerfacecolor"]) for v in styles.values()}) == 31
    assert styles["full"] == colours.styles(["exp", "full, jax, 0123"])["full, jax, 0123"]


def test_a_family_with_more_lines_than_markers_borrows_colours():
    styles = colours.styles(f"rff_{k}" for k in range(30)).values()
    assert len({tuple(map(str, style.values())) for style in styles}) == 30
