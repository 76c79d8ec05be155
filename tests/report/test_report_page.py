"""The page as people see it, in headless Chromium: offline, on a desk, on a phone, in the dark and on paper."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from repro.machine.environment import RunGpu
from repro.report.blocks import Origin, Panel, Row
from repro.report.charts import chart
from repro.report.page import page as page_of
from repro.report.sections import compose
from repro.run.reading import read
from tests.support.command_line import ROOT, record, results_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# No sandbox, as root has none; and a browser that calls nobody.
_OPTIONS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
A4: ViewportSize = {"width": 703, "height": 1016}  # within its margins


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if _CHROMIUM is None or find_spec("playwright") is None:
        output = "needs Chromium (Debian: apt-get install chromium) and playwright (./run_all.sh test installs it)"
        pytest.fail(output) if os.environ.get("CI") else pytest.skip(output)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=_CHROMIUM, args=_OPTIONS.split())
        yield found
        found.close()


def test_without_chromium_the_tests_last_line_says_how_many_lack_it_and_where_it_is(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", __file__, "-k", "bar_below_zero"]
    variables = {name: value for name, value in os.environ.items() if name != "CI"} | {"PATH": str(tmp_path)}
    done = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True)
    *_, told, last = done.stdout.splitlines()
    skipped = told.split()[0]
    assert int(skipped) > 0, done.stdout + done.stderr
    assert last.startswith(f"skipped: {skipped} x needs Chromium (Debian: apt-get install chromium) and playwright (")


ON_THE_PUBLISHED = pytest.mark.parametrize("page", ["no run"], indirect=True)  # claims, and the audit of printed days


@pytest.fixture(scope="module", params=["a run without a GPU", "a run on GPUs", "two runs", "no run"])
def page(request: pytest.FixtureRequest, drawn: Callable[[str], Path]) -> Path:
    """A report on disk."""
    return drawn(request.param)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Draws each page once, for all viewports."""
    return cache(lambda of: draw(of, tmp_path_factory.mktemp("page")))


def draw(of: str, folder: Path) -> Path:
    readings = []
    if of == "a run without a GPU":
        readings = [read(ROOT / "results" / "cpu-2-cores")]
    elif of == "two runs":
        readings = [read(ROOT / "results" / "h100" / name) for name in ("text", "vision")]
    elif of == "a run on GPUs":
        trials = [
            record("pythia-1b", "naive", 41.5, true_days=55.0),
            record("pythia-1b", "free_lunch+zero_1", 18.2, true_days=22.0),
            record("pythia-1b", "free_lunch+checkpointing+zero_3+offloading", 1234.5, peak_memory=50 * 2**30),
            record("pythia-1b", "free_lunch+checkpointing+fsdp_3+offloading", None, status="out_of_memory"),
            record("pythia-160m", "free_lunch", 30.0, count=1),
            record("vit", "naive", None, count=1, status="out_of_memory", reason="nothing fits", remedy="offload"),
        ]
        reading = read(results_folder(folder / "run", *trials))
        a100 = RunGpu("A100 80 GB", "NVIDIA A100-SXM4-80GB", 80 * 2**30)
        readings = [replace(reading, environment=replace(reading.environment, gpus=[a100] * 4))]
    file = folder / "report.html"
    file.write_text(page_of(compose(*readings)))
    return file


@pytest.fixture(scope="module", params=[DESK], ids=["desk"])
def tab(browser: Browser, page: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page, opened without a network; nothing but the file itself was asked for, and nothing complained."""
    context = browser.new_context(viewport=request.param, offline=True)
    tab = context.new_page()
    asked, complaints = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(page.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(each => each.atFirst = each.open)")
    yield tab
    assert asked == [page.as_uri()]
    assert complaints == []
    context.close()


@pytest.fixture
def opened(tab: Page) -> Page:
    """The same, as it looked when it was opened."""
    tab.emulate_media(media="null", color_scheme="null")
    tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = each.atFirst)")
    return tab


def test_it_opens_offline_with_its_headline(opened: Page) -> None:
    text = opened.locator("blockquote").inner_text()
    begins = ("Of the 288 cells of Tables 1 and 4, ", "57 of 57 settings ran on this CPU", "135 of the papers' 236 ")
    assert text.startswith(begins)
    assert opened.locator(".tiles dd").count() in (0, 4)


@pytest.mark.parametrize("page", ["two runs", "a run on GPUs", "no run"], indirect=True)
@pytest.mark.parametrize("tab", [PHONE], ids=["phone"], indirect=True)
def test_on_a_phone_a_tables_first_coloured_cell_is_seen_without_scrolling_sideways(opened: Page) -> None:
    table = opened.locator("main .narrow").first
    assert [opened.locator(".wide").first.is_visible(), table.is_visible()] == [False, True]
    coloured = table.locator("td:has(b)").first.bounding_box()
    assert coloured is not None
    assert 0 < coloured["x"] < coloured["x"] + coloured["width"] < PHONE["width"]
    assert table.locator("thead th[colspan]").count() == 1, "a block a GPU"
    assert not any(
        opened.locator(".narrow").evaluate_all("all => all.map(each => each.scrollWidth - each.clientWidth)")
    )


@pytest.mark.parametrize("page", ["two runs"], indirect=True)
def test_on_a_desk_a_table_has_a_row_a_model(opened: Page) -> None:
    assert opened.locator(".narrow").first.is_hidden()
    assert opened.locator("#verdicts .wide table.grid tbody td").count() == 288
    assert opened.locator("#why").bounding_box()["y"] < opened.locator("#verdicts").bounding_box()["y"]  # type: ignore[index]


@ON_THE_PUBLISHED
def test_tables_and_figures_are_there(opened: Page) -> None:
    assert opened.locator("#corrected .wide table.grid tbody tr").count() == 18
    assert opened.locator("#audit .wide table.grid tbody td").count() == 288
    assert opened.locator("#claims table tbody tr").count() == 236
    assert opened.locator("figure").count() == 10
    sizes = opened.locator("figure svg").evaluate_all(
        "all => all.map(each => [each.getBoundingClientRect().width, each.getBoundingClientRect().height])"
    )
    assert len(sizes) >= 22
    assert all(width > 250 and height > 60 for width, height in sizes)


@pytest.mark.parametrize("tab", [DESK, PHONE], ids=["desk", "phone"], indirect=True)
def test_nothing_is_wider_than_the_screen(opened: Page) -> None:
    assert opened.viewport_size is not None
    for state in ("closed", "open"):
        width = opened.evaluate("document.documentElement.scrollWidth")
        assert width == opened.viewport_size["width"], state
        opened.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")


@pytest.mark.parametrize("tables", ["#trials .scroll", "#claims .scroll", ".panels.many .numbers .scroll"])
def test_on_a_desk_every_column_is_seen_without_scrolling(opened: Page, tables: str) -> None:
    opened.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")
    hidden = "all => all.map(each => each.scrollWidth - each.clientWidth)"
    assert not any(opened.locator(tables).evaluate_all(hidden))


@pytest.mark.parametrize("tab", [DESK, PHONE], ids=["desk", "phone"], indirect=True)
def test_no_label_of_a_figure_is_cut_by_its_card(opened: Page) -> None:
    cut = opened.locator("figure svg text").evaluate_all(
        """all => all.filter(text => {
            const card = text.closest('.panel').getBoundingClientRect(), box = text.getBoundingClientRect();
            return box.left < card.left + 1 || box.right > card.right - 4;
        }).map(text => text.textContent)"""
    )
    assert cut == []


@ON_THE_PUBLISHED
@pytest.mark.parametrize("tab", [DESK, PHONE], ids=["desk", "phone"], indirect=True)
def test_a_field_of_a_grid_keeps_its_symbol_and_its_number_on_one_line(opened: Page) -> None:
    steps = opened.locator("#audit td:has(b):visible").evaluate_all(
        """all => all.map(field => {
            const range = document.createRange();
            range.setStart(field, 0);
            range.setEndBefore(field.querySelector('.hidden'));
            const tops = [...range.getClientRects()].map(box => box.top);
            return Math.max(...tops) - Math.min(...tops);
        })"""
    )
    assert len(steps) > 40
    assert max(steps) < 5


def test_the_number_of_a_bar_below_zero_is_clear_of_axis_and_labels(browser: Browser) -> None:
    gains = [("4 x A100", -20.91), ("8 x A100", 25.3), ("2 x A100", -0.4)]
    tab = browser.new_page(viewport=PHONE)
    for rows in (gains, gains[:1], gains[1:]):
        points = [Row(group, "slower" if value < 0 else "faster", value) for group, value in rows]
        panel = Panel("measured", "Gains", "bars", "place", "% less training time", points, "trials.jsonl")
        style = (ROOT / "repro" / "report" / "style.css").read_text()
        tab.set_content(f"<style>{style}</style><div class='panel'>{chart(panel)}</div>")
        edges = "all => all.map(text => [text.getBoundingClientRect().left, text.getBoundingClientRect().right])"
        labels = tab.locator("text", has_text="A100").evaluate_all(edges)
        for _, value in rows:
            output = f"{value:g}".replace("-", "\N{MINUS SIGN}")
            ((left, right),) = tab.get_by_text(output, exact=True).evaluate_all(edges)
            assert left > max(end for _, end in labels) + 8, "the axis stands between"
            assert right < PHONE["width"]
    tab.close()


@pytest.mark.parametrize("tab", [PHONE], ids=["phone"], indirect=True)
def test_figures_can_be_read_on_a_phone(opened: Page) -> None:
    smallest = opened.locator("figure svg text").evaluate_all(
        "all => Math.min(...all.filter(text => text.textContent).map(text => text.getBoundingClientRect().height))"
    )
    assert smallest > 8


@ON_THE_PUBLISHED
@pytest.mark.parametrize("tab", [DESK, PHONE], ids=["desk", "phone"], indirect=True)
def test_every_number_beside_a_mark_can_be_read_and_is_nearest_to_its_own(opened: Page) -> None:
    charts = opened.locator("figure:has(h3:text('Cost')) svg").evaluate_all(
        """all => all.map(svg => {
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            const boxes = found => found.map(each => each.getBoundingClientRect())
                .map(box => [box.left, box.top, box.right, box.bottom].map(at => at / scale));
            const numbers = [...svg.querySelectorAll('text.number')];
            const marks = [...svg.querySelectorAll('path')].filter(path => {
                return path.getAttribute('transform');
            });
            return {numbers: boxes(numbers), marks: boxes(marks), smallest: Math.min(
                ...[...svg.querySelectorAll('text')].map(text => parseFloat(getComputedStyle(text).fontSize) * scale))};
        })"""
    )
    assert len(charts) >= 20
    for each in charts:
        assert each["smallest"] >= 9
        assert len(each["numbers"]) >= 10
        numbers = [((left + right) / 2, (top + bottom) / 2) for left, top, right, bottom in each["numbers"]]
        centres = [((left + right) / 2, (top + bottom) / 2) for left, top, right, bottom in each["marks"]]
        marks = {(round(x, 2), round(y, 2)) for x, y in centres}  # of equal values they lie on each other
        for (one, above), (other, over) in combinations(numbers, 2):
            assert max(abs(one - other), abs(above - over)) > 7
        owners = []
        for number in numbers:
            (near, own), (next_near, _) = sorted((math.dist(number, mark), mark) for mark in marks)[:2]
            assert near < 11
            assert next_near > near
            owners.append(own)
        assert len(set(owners)) >= len(numbers) - (len(centres) - len(marks)), "each number has a mark of its own"


@pytest.mark.parametrize("tab", [DESK, PHONE], ids=["desk", "phone"], indirect=True)
def test_marks_of_equal_values_lie_beside_each_other(opened: Page) -> None:
    charts = opened.locator("figure:has(h3:text('FLOPs and')) svg").evaluate_all(
        """all => all.map(svg => [...svg.querySelectorAll('path[transform]')]
            .map(path => path.getBoundingClientRect()).map(box => [box.left, box.top, box.right, box.bottom]))"""
    )
    assert sum(map(len, charts)) >= 26
    for marks in charts:
        for one, other in combinations(marks, 2):
            across, down = (min(one[2 + at], other[2 + at]) - max(one[at], other[at]) for at in (0, 1))
            assert min(across, down) < 2, "they hardly overlap"


def test_every_chart_has_a_name_a_description_and_its_numbers_below(opened: Page) -> None:
    devtools = opened.context.new_cdp_session(opened)
    nodes = devtools.send("Accessibility.getFullAXTree")["nodes"]
    images = [node for node in nodes if node["role"]["value"] in ("image", "img")]
    assert len(images) == opened.locator("figure svg").count() == opened.locator(".panel > .numbers").count()
    for image in images:
        assert image["name"]["value"].endswith(tuple(f"({origin})" for origin in get_args(Origin)))
        assert image["description"]["value"].endswith("The numbers follow as a table.")
    table = opened.locator(".numbers table").first
    assert not table.is_visible()
    opened.locator(".numbers summary").first.press("Enter")
    assert table.is_visible()
    assert table.locator("th[scope=col]").count() > 1
    opened.emulate_media(media="print")
    assert not table.is_visible(), "on paper the charts alone"


def test_text_stands_out_in_the_light_and_in_the_dark(opened: Page) -> None:
    contrast = """() => {
        const luminance = colour => {
            const [r, g, b] = colour.match(/[0-9.]+/g).map(part => part / 255)
                .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = node => {
            for (; node; node = node.parentElement) {
                const colour = getComputedStyle(node).backgroundColor;
                if (!colour.endsWith(', 0)')) return colour;
            }
            return 'rgb(255, 255, 255)';
        };
        const words = ['p', 'blockquote', '.tiles dt', 'th', 'td', '.chip', 'figcaption', 'a', 'summary span'];
        return words.flatMap(selector => [...document.querySelectorAll(selector)]).map(node => {
            const pair = [getComputedStyle(node).color, behind(node)].map(luminance).sort((a, b) => b - a);
            return (pair[0] + 0.05) / (pair[1] + 0.05);
        }).reduce((least, one) => Math.min(least, one));
    }"""
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        assert opened.evaluate(contrast) >= 4.5, scheme


def test_no_mark_of_a_figure_is_faint_in_the_dark(opened: Page) -> None:
    """Marks that lie over others let them through by a fifth; WCAG asks of a graphic for a contrast of 3."""
    opened.emulate_media(color_scheme="dark")
    contrast = """all => all.map(mark => {
        const rgb = colour => colour.match(/[0-9.]+/g).map(Number);
        const luminance = parts => {
            const [r, g, b] = parts.map(part => part / 255)
                .map(part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const card = rgb(getComputedStyle(mark.closest('.panel')).backgroundColor), style = getComputedStyle(mark);
        const over = rgb(style.fill).map((part, which) => style.opacity * part + (1 - style.opacity) * card[which]);
        const pair = [over, card].map(luminance).sort((a, b) => b - a);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    })"""
    assert min(opened.locator("figure svg path[class^=c]:not(.hollow):not(.span)").evaluate_all(contrast)) >= 3


@ON_THE_PUBLISHED
def test_on_paper_everything_is_unfolded(opened: Page) -> None:
    opened.emulate_media(media="print")
    rows = opened.locator("#claims details:not([open]) tbody tr")
    heights = rows.evaluate_all("all => all.map(row => row.getBoundingClientRect().height)")
    assert len(heights) > 100
    assert min(heights) > 5
    assert opened.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("tab", [A4], ids=["A4"], indirect=True)
def test_on_paper_text_is_large_enough_and_nothing_is_wider_than_the_page(opened: Page) -> None:
    opened.emulate_media(media="print")
    assert opened.evaluate("document.documentElement.scrollWidth") == A4["width"], "else all of it is shrunk"
    smallest = """all => 0.75 * Math.min(...all.filter(each => each.textContent).map(each => {
        const svg = each.closest('svg');
        const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
        return scale * parseFloat(getComputedStyle(each).fontSize);
    }))"""
    for words, least in (("main > section > p, li, dd, figcaption", 9), ("th, td, td *", 7), ("figure svg text", 6)):
        assert opened.locator(words).evaluate_all(smallest) >= least, words


@ON_THE_PUBLISHED
def test_on_paper_headings_and_captions_stay_with_what_they_head(opened: Page) -> None:
    opened.emulate_media(media="print")
    after = "all => [...new Set(all.map(each => getComputedStyle(each).breakAfter))]"
    for heading in ("h2", "figure h3", "figcaption", "section > h3", "section > p.soft", "summary"):
        assert opened.locator(heading).evaluate_all(after) == ["avoid"], heading
    inside = "all => [...new Set(all.map(each => getComputedStyle(each).breakInside))]"
    for whole in (".panel", "tr", ".scroll:has(.grid)", "#audit details"):
        assert opened.locator(whole).evaluate_all(inside) == ["avoid"], whole
