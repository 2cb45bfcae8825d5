"""A page of a report as the tests see it: its structure by html.parser, its colours by their contrast, and, where
Chromium is installed, what a browser makes of it. Standard library only.
"""

import functools
import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "hr", "img", "input"}
OPTIONAL_END = {"tr", "td", "th", "li", "dt", "dd"}  # as far as our pages leave them out
# Colours that text has, and those that only shapes have, which may be paler.
TEXT, SHAPES = ("text", "quiet", "link", "bad"), ("own", "best", "peer", "roof", "bad")


class Page(HTMLParser):
    """Elements of a page: (tag, attributes, text inside), in order; and what is wrong with its nesting."""

    def __init__(self, html):
        super().__init__()
        self.html, self.elements, self.open, self.wrong = html, [], [], []
        self.feed(html)
        self.close()
        if self.open:
            self.wrong.append(f"not closed: {[element[0] for element in self.open]}")

    def handle_starttag(self, tag, attrs):
        if tag in ("tr", "td", "th"):
            closes = {"td", "th"} if tag != "tr" else {"td", "th", "tr"}
            while self.open and self.open[-1][0] in closes:
                self.open.pop()
        element = [tag, dict(attrs), "", [one[0] for one in self.open]]
        if len(dict(attrs)) != len(attrs):
            self.wrong.append(f"<{tag}> has an attribute twice")
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), "", [one[0] for one in self.open]])

    def handle_endtag(self, tag):
        while self.open and self.open[-1][0] != tag and self.open[-1][0] in OPTIONAL_END:
            self.open.pop()
        if not self.open or self.open[-1][0] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-1][0] if self.open else 'nothing'}")
        else:
            self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    def all(self, tag):
        return [element for element in self.elements if element[0] == tag]

    def text(self):
        return " ".join(self.all("body")[0][2].split())


def contrast(one, other):
    """Contrast of two colours "#rrggbb", as WCAG 2 reckons it."""
    def luminance(colour):
        channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def schemes(html):
    """The colours of the light and of the dark page, by their names."""
    style = re.search(r"<style>(.*?)</style>", html, re.S).group(1)
    roots = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    return {"light": roots[0], "dark": {**roots[0], **roots[1]}}


def complaints(html):
    """Lists everything that is wrong with a page, for a reader who sees, listens, prints or has no network."""
    page = Page(html)
    wrong = list(page.wrong)
    if page.all("html")[0][1].get("lang") != "en":
        wrong.append("no lang")
    levels = [int(element[0][1]) for element in page.elements if re.fullmatch("h[1-6]", element[0])]
    if levels.count(1) != 1 or levels[:1] != [1]:
        wrong.append("no one h1 first")
    wrong += [f"a heading leaps from {a} to {b}" for a, b in zip(levels, levels[1:]) if b > a + 1]
    ids = [element[1]["id"] for element in page.elements if "id" in element[1]]
    wrong += [f"two of id {one}" for one in set(ids) if ids.count(one) > 1]
    for tag, attributes, text, _ in page.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            wrong += [f"{name} of no element: {one}" for one in attributes.get(name, "").split() if one not in ids]
        if attributes.get("href", "#").startswith("#") and attributes.get("href", "#")[1:] not in ["", *ids]:
            wrong.append(f"a link to nowhere: {attributes['href']}")
        if tag in ("a", "summary", "title", "caption", "h1", "h2", "h3", "h4", "h5") and not text.strip():
            wrong.append(f"an empty {tag}")
    for name in ("src", "style", "onclick", "srcset", "background"):
        wrong += [f"{name}= in <{element[0]}>" for element in page.elements if name in element[1]]
    if re.search(r"https?:|url\(|@import", html):
        wrong.append("a reference to elsewhere")
    if sum(tag == "script" for tag, *_ in page.elements) != 1:
        wrong.append("not one script")
    for _, attributes, _, above in page.all("svg"):
        if attributes.get("role") != "img" or not attributes.get("aria-labelledby") or not attributes.get("aria-describedby"):
            wrong.append("an svg without role, title and description")
        if "figure" not in above:
            wrong.append("an svg in no figure")
    if len(page.all("figcaption")) != len(page.all("figure")):
        wrong.append("a figure without caption")
    if len(page.all("caption")) != len(page.all("table")):
        wrong.append("a table without caption")
    wrong += ["a th without scope" for element in page.all("th") if element[1].get("scope") not in ("row", "col")]
    for scheme, colours in schemes(html).items():
        for names, least in ((TEXT, 4.5), (SHAPES, 3)):
            for name in names:
                for ground in ("page", *(["soft"] if name == "text" else [])):
                    found = contrast(colours[name], colours[ground])
                    if found < least:
                        wrong.append(f"{scheme}: {name} on {ground} has a contrast of {found:.2f}")
    return wrong


@functools.cache
def chromium():
    """Its path; None where there is none."""
    return next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


def in_chromium(page, folder, *options):
    """Runs headless Chromium on the file `page`: its console's complaints, and what else it printed."""
    result = subprocess.run(
        [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--v=0",
         f"--log-net-log={folder / 'net.json'}", *options, page.as_uri()],
        text=True, capture_output=True, timeout=300)
    said = [line for line in result.stderr.splitlines() if ":CONSOLE" in line]
    return said, result.stdout


def requests(folder):
    """The addresses that the page asked for, by Chromium's own log. What Chromium asks for itself has no initiator."""
    log = (folder / "net.json").read_text()
    try:
        events = json.loads(log)
    except ValueError:  # it ended before the log's end was written
        events = json.loads(log.rstrip().rstrip(",") + "]}")
    starts = [event["params"] for event in events["events"] if "url" in event.get("params", {})]
    return {one["url"] for one in starts if one.get("initiator", "not an origin") != "not an origin"}


MEASURING = """<script>
const shown = (element) => element.getClientRects().length > 0;
const right = (element) => element.getBoundingClientRect().right;
const texts = [...document.querySelectorAll("svg text")].filter(shown);
parent.postMessage({
  page: document.documentElement.scrollWidth,
  cut: [...texts, ...document.querySelectorAll("svg rect, svg circle, p, h1, h2, h3, summary")].filter(shown)
    .filter((element) => right(element) > innerWidth + 0.5).map((element) => element.textContent || element.outerHTML),
  letters: Math.min(...texts.map((text) => parseFloat(getComputedStyle(text).fontSize) *
                                          text.ownerSVGElement.clientWidth / text.ownerSVGElement.viewBox.baseVal.width)),
  speed_ups: [...document.querySelectorAll("thead th")].filter((head) => head.textContent === "speed-up" && shown(head)).map(right),
}, "*");
</script>"""


def measured(page, folder, width):
    """Returns a page's layout in a browser `width` pixels wide: its width, the elements cut at its edge, the least size of
    letters in charts, and where the columns of speed-ups end. A frame is as narrow as it likes; a window is not."""
    inner, outer = folder / "inner.html", folder / "outer.html"
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    inner.write_text(html.replace("</body>", MEASURING + "</body>"))
    outer.write_text(f"<iframe src='{inner.name}' width='{width}' height='900' frameborder='0'></iframe><pre></pre><script>"
                     "onmessage = (e) => document.querySelector('pre').textContent = JSON.stringify(e.data)</script>")
    _, dom = in_chromium(outer, folder, "--window-size=1000,1000", "--dump-dom")
    return json.loads(unescape(re.search(r"<pre>(.*?)</pre>", dom, re.S)[1]))


def screenshots(page, folder):
    """The page in light, dark and narrow, and printed: files in `folder`."""
    name = Path(page).stem
    for look, options in {"light": ["--window-size=1100,2400"],
                          "dark": ["--window-size=1100,2400", "--blink-settings=preferredColorScheme=0"],
                          "narrow": ["--window-size=500,2400"]}.items():
        in_chromium(page, folder, *options, f"--screenshot={folder / f'{name}-{look}.png'}")
    in_chromium(page, folder, f"--print-to-pdf={folder / f'{name}.pdf'}")
