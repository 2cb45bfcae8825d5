"""Pages of reports: of one measured row, and of a model, which needs no PyTorch to be drawn."""

import html
import json
import sys
from pathlib import Path

import convtune
import pytest
from convtune.optimize_report import Layer, OptimizeReport

sys.path.append(str(Path(__file__).parent.parent / "cli"))
from html_page import Page, complaints  # noqa: E402

PROBLEM = "mb1ic3ih8oc4kh3ph1"


def optimized():
    problem = convtune.Problem.parse(PROBLEM)
    layers = [
        Layer(["stem.conv", "again"], problem, 2, 100.0, 80.0, 0.2, "direct", "vectors=4", "nchw", True, "swapped",
              low=0.175, high=0.221),
        Layer(["odd"], None, 1, 400.0, decision="<not> one of ours"),
    ]
    return OptimizeReport("cpu", False, layers, 900.0, 850.0, 0.056, 0.03, 0.07, True, notes=["a note"], pytorch="2.99.0")


def test_of_a_measurement(tmp_path):
    report = convtune.bench(PROBLEM, "cpu", seconds=0.05)
    report.save(tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert complaints(html) == []
    text = Page(html).text()
    assert PROBLEM in text and f"{100 * report.own.roofline_fraction:.1f} %" in text
    report.save(tmp_path / "page.json")
    saved = json.loads((tmp_path / "page.json").read_text())
    assert saved["rows"] == [report.json] and saved["environment"]["versions"]["convtune"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "page.json"]


def test_of_a_model(tmp_path):
    optimized().save(tmp_path / "model.html")
    html = (tmp_path / "model.html").read_text()
    assert complaints(html) == []
    text = Page(html).text()
    for words in ("Convolutions of a model", "5.6 % less (3.0 to 7.0 %)", "stem.conv and 1 more", "<not> one of ours",
                  "direct vectors=4 in nchw", "The swaps stay.", "a note", "20.0 % (17.5 to 22.1 %)", "PyTorch", "2.99.0"):
        assert words in text
    first = text.index("odd", text.index("by the time that they take"))
    assert first < text.index("stem.conv and 1 more", first), "where most of the time goes stands first"


def test_a_residual_step_has_its_sizes(tmp_path):
    """It is a row beside its two layers, and none of their kinds."""
    report, pair = optimized(), "pair n1c8t9k3d1k3 dtype=bf16 act=snake"
    report.layers.append(Layer(["step"], None, 1, 50.0, 40.0, 0.2, "pair", "config", "", True, "one kernel", pair=pair))
    report.save(tmp_path / "model.html")
    assert pair in Page((tmp_path / "model.html").read_text()).text()
    assert pair in str(report) and "1 of 2 kinds of layers swapped" in str(report)


def test_the_version_that_was_measured_is_kept(tmp_path):
    optimized().save(tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text())["environment"]["versions"]["PyTorch"] == "2.99.0"


def test_in_a_notebook():
    """Tables, and what others wrote is text."""
    report = convtune.bench(PROBLEM, "cpu", seconds=0.05)
    cells = optimized()
    plan = convtune.Convolution(PROBLEM, "cpu").plan
    for value, words in ((report, [PROBLEM, html.escape(report.json["verdict"]), report.own.name]),
                         (cells, ["&lt;not&gt; one of ours", "stem.conv and 1 more", "a note", "5.6 % less"]),
                         (plan, [plan.algorithm, plan.source])):
        page = Page(value._repr_html_())
        assert page.wrong == [] and len(page.all("table")) == 1
        for word in words:
            assert word in page.html


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(OSError):
        optimized().save(tmp_path / "no" / "model.html")
    assert list(tmp_path.iterdir()) == []
