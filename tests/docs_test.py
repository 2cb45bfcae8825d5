"""The documents point at what is there: their links at files, the runs that they name at bench/results; the pages of results
are what bench/results_pages.py writes from the runs, each named once; every program of bench/ is told of, and every decision is in
their index. Usage: docs_test.py SOURCES"""

import re
import subprocess
import sys
from pathlib import Path


def anchors(text):
    """The headings of a page as GitHub links to them."""
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.M)]


root = Path(sys.argv[1])
documents = [*root.glob("*.md"), *root.glob("docs/**/*.md"), root / "bench/README.md"]
runs = {path.name for path in root.glob("bench/results/*/*.json")}
wrong, named = [], set()
for document in documents:
    text = document.read_text()
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text):
        there = document.parent / target if target else document
        if not there.exists():
            wrong.append(f"{document.relative_to(root)}: there is no {target}")
        elif anchor and anchor not in anchors(there.read_text()):
            wrong.append(f"{document.relative_to(root)}: {target} has no heading for #{anchor}")
    for run in re.findall(r"\b20\d\d-\d\d-\d\d-[\w.{},-]*\.json", text):
        named.add(run)
        if run not in runs:
            wrong.append(f"{document.relative_to(root)}: there is no run {run}")
pages = subprocess.run([sys.executable, root / "bench/results_pages.py", "--check"], capture_output=True, text=True)
wrong += [pages.stderr.strip()] if pages.returncode else []
wrong += [f"bench/results: no page shows {run}" for run in sorted(runs - named)]
programs = {path.name for path in root.glob("bench/*.py")} | {path.stem for path in root.glob("bench/*.c*")}
told = set(re.findall(r"`([\w.]+)`", (root / "bench/README.md").read_text()))
wrong += [f"bench/README.md: it does not say what {program} is for" for program in sorted(programs - told)]
index = (root / "docs/decisions/README.md").read_text()
wrong += [f"docs/decisions/README.md: it does not list {page.name}"
          for page in root.glob("docs/decisions/0*.md") if f"({page.name})" not in index]
for page in sorted(root.glob("docs/decisions/*.md")):
    lines = page.read_text().splitlines()
    if len(lines) > 60 and page.name != "README.md":
        wrong.append(f"{page.relative_to(root)} has {len(lines)} lines: a decision takes at most 60")
    wrong += [f"{page.relative_to(root)}:{number} is {len(line)} columns wide: at most 130"
              for number, line in enumerate(lines, 1) if len(line) > 130]
assert len(documents) > 10 and len(runs) > 3, "these are not the sources"
sys.exit("\n".join(wrong) or 0)
