#!/usr/bin/env python3
"""Writes docs/results/: a page a machine from the runs in bench/results/MACHINE/*.json. The words and the order of a page are
in MACHINE/page.md, where a line {{RUN.json ...}} stands for what the named runs say: conditions, means, tables. With --check
nothing is written, and what would change is said. Usage: results_pages.py [--check]"""

import json
import math
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS, PAGES = ROOT / "bench/results", ROOT / "docs/results"
TIE = 0.02  # a difference that is within 2 % is a tie
NAMES = {"onednn": "oneDNN", "torch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "cudnn": "cuDNN",
         "torch_eager": "PyTorch, eager", "torch_fused": "PyTorch, cuDNN fused", "torch_compile": "torch.compile",
         "triton": "Triton", "export_cuda": "exported CUDA", "export_triton": "exported Triton"}


def number(value):
    """A number as a reader wants it: three digits or all before the point."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows])


def wrapped(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def told(ratios):
    """The mean, the worst row, wins, ties and losses of (name, ratio)."""
    worst = min(ratios, key=lambda pair: pair[1])
    wins = sum(ratio > 1 + TIE for _, ratio in ratios)
    losses = sum(ratio < 1 - TIE for _, ratio in ratios)
    return (f"geometric mean **{geomean([ratio for _, ratio in ratios]):.2f}×**, worst row {worst[0]} {worst[1]:.2f}×; "
            f"wins {wins}, ties {len(ratios) - wins - losses}, losses {losses}")


def conditions(run):
    """When, with which libraries and how a run was made, from whatever of it the file says."""
    env = run.get("environment", {})
    env = {**run, **env}
    versions = dict(env.get("versions") or {key: env[key] for key in ("torch", "cudnn") if key in env})
    if "environment" in versions:
        versions = versions["environment"]["versions"]
    said = [str(env["date"])[:16].replace("T", " ") + (" UTC" if "T" in str(env["date"]) else "")] if env.get("date") else []
    said += [f"{name} {version}" for name, version in versions.items()]
    if env.get("threads") and str(env.get("fingerprint", "")).startswith("cpu"):
        said.append("1 thread" if env["threads"] == 1 else f"{env['threads']} threads")
    if env.get("clock") == "thread":
        said.append("processor time of the thread, other work beside it")
    command = env.get("command")
    said += [f"`{one}`" for one in ([command] if isinstance(command, str) else command or [])]
    what = next((run[key] for key in ("claim", "what", "how", "method", "note") if isinstance(run.get(key), str)), "")
    return (what[0].upper() + what[1:].rstrip(".") + ". " if what else "") + "; ".join(said)


def spread(rows, name, pattern, default):
    """Returns the match of `pattern` that all problem lines of a report share, or that rows differ."""
    found = {(re.search(pattern, row["problem"]) or ("", default))[1] for row in rows}
    listed = sorted(found - {""}, key=lambda one: (len(one), one))
    return f"{name} {' to '.join((listed[0], listed[-1])) if len(listed) > 2 and name == 'batch' else ' or '.join(listed)}" if listed else ""


def library(provider):
    name = NAMES.get(provider["algorithm"], provider["algorithm"])
    return name + (" in fp32" if provider["config"].endswith("f32") else "")


def report(run):
    """A report of tune, bench or the peers: the rows, and what they come to."""
    ran = [{**row, "timed": [one for one in row["providers"] if one.get("time_us") and not one.get("failure")]}
           for row in run["rows"]]
    peers = list(dict.fromkeys(library(one) for row in ran for one in row["timed"]
                               if one["algorithm"] and not one["name"].startswith("convtune")))
    roof = any(row["timed"][0].get("roofline_fraction") for row in ran if row["timed"])
    all_runs = any("best_peer_us_of_all_runs" in row for row in ran)
    each = peers if len(peers) <= 5 else []
    rows, ratios, of_all, fractions, called = [], [], [], [], []
    for row in ran:
        own = sorted((one for one in row["timed"] if one["name"].startswith("convtune")), key=lambda one: one["time_us"])
        times = {}
        for one in row["timed"]:
            if one not in own and one["algorithm"]:
                times.setdefault(library(one), []).append((one["time_us"], one["name"]))
        case = row["case"].removeprefix("bf16_").removeprefix("tf32_") or row["problem"]
        cells = [case, number(own[0]["time_us"]) if own else "–"]
        cells += [number(min(times[peer])[0]) if peer in times else "–" for peer in each]
        if not each:
            best = min((min(found) for found in times.values()), default=None)
            cells += [number(best[0]), best[1]] if best else ["–", "–"]
        if own and row.get("speedup"):
            ratios.append((case, row["speedup"]))
            if all("mean_us" in one for one in row["timed"]):
                called.append((case, own[0], [one for one in row["timed"] if one not in own]))
        cells.append(f"{row['speedup']:.2f}" if row.get("speedup") else "–")
        if all_runs:
            of_all.append((case, row["best_peer_us_of_all_runs"] / own[0]["time_us"]))
            cells += [number(row["best_peer_us_of_all_runs"]), f"{of_all[-1][1]:.2f}"]
        if roof:
            fractions.append((case, own[0]["roofline_fraction"]) if own else (case, 0))
            cells += [f"{fractions[-1][1]:.0%}".replace("%", " %")]
        rows.append([*cells, own[0]["algorithm"] if own else "–"])
    if len(rows) != len(run["rows"]):
        raise ValueError("a row is missing")
    columns = ["layer", "convtune, µs", *(each or ["best of the others", "by"]), "ratio",
               *(["best of all runs", "ratio"] if all_runs else []), *(["of the roofline"] if roof else []), "kernel"]
    sums = ["Problems: " + "; ".join(part for part in (spread(ran, "batch", r"mb(\d+)", "1"), spread(ran, "type", r"dtype=([\w:]+)", "f32"),
                                        spread(ran, "precision", r"precision=(\w+)", ""),
                                        spread(ran, "layout", r"layout=(\w+)", "nchw"),
                                        spread(ran, "activation", r"act=(\w+)", "")) if part) + "."]
    if ratios:
        sums.append(f"Over the best of {', '.join(peers)}: {told(ratios)}.")
    means = [(name, min(one["mean_us"] for one in others) / own["mean_us"]) for name, own, others in called]
    if means and run["environment"].get("busy"):
        sums.append(f"By the mean of a library's calls, with those that waited for a processor: {told(means)}.")
    if of_all:
        sums.append(f"Over the best that any run of those days found: {told(of_all)}.")
    above = [fraction for _, fraction in fractions if fraction > 0]
    if above:
        sums.append(f"Of the roofline: geometric mean {geomean(above):.2f}, least {min(above):.2f}.")
    return " ".join(sums), columns, rows


def pairs(run):
    """Plans of two versions of the library in turns."""
    ratios = [(row["layer"], row["before_over_after"]) for row in run["rows"]]
    rows = [[row["layer"], *(number(min(plan["time_us"] for plan in row["plans"] if plan["library"] == library_))
                             for library_ in ("before", "after")), f"{row['before_over_after']:.2f}"] for row in run["rows"]]
    return f"Before over after: {told(ratios)}.", ["layer", "before, µs", "after, µs", "ratio"], rows


def candidates(run):
    """Many configs of each problem, all timed: the best, and the first that the model or the list would try."""
    rows = []
    for case in run["cases"]:
        listed = case["candidates"]["rows"]
        place = {name: index for index, name in enumerate(case["candidates"]["columns"])}
        best = min(listed, key=lambda row: row[place["measured_us"]])
        first = [row for row in listed if "guess" in place and row[place["guess"]] == 0]
        guess = min((row[place["measured_us"]] for row in first), default=None)
        name = re.sub(r'n"\w+"', "", case["problem"]) if "case" not in case else case["case"]
        rows.append([name, len(listed), number(best[place["measured_us"]]), best[place["algorithm"]],
                     number(guess) if guess else "–", number(case["floor_us"]) if "floor_us" in case else "–"])
    return "", ["problem", "candidates", "best, µs", "by", "best first guess, µs", "floor, µs"], rows


def flat(row, depth=2):
    """The short values of a row by their path; lists of a few numbers as they stand."""
    found = {}
    for key, value in row.items():
        if key in ("device", "torch", "n", "mad_us", "mad", "process_seconds"):
            continue
        key = key.replace("_us", ", µs").replace("_ms", ", ms").replace("_", " ")
        if isinstance(value, dict) and depth:
            found |= {f"{key}: {name}": one for name, one in flat(value, depth - 1).items()}
        elif isinstance(value, list) and 0 < len(value) <= 4 and all(isinstance(one, int | float | str) for one in value):
            found[key] = " / ".join(number(one) for one in value)
        elif isinstance(value, int | float) or isinstance(value, str) and len(value) <= 60:
            found[key] = re.sub(r'n"\w+"', "", number(value))
    return found


def plain(run):
    """Any other run: each list or mapping of rows in it as a table of its short values."""
    blocks = []
    for key, value in run.items():
        if key in ("environment", "versions") or not isinstance(value, list | dict) or not value:
            continue
        listed = value if isinstance(value, list) else [value]
        if isinstance(value, dict) and all(isinstance(one, dict) for one in value.values()):
            listed = [{key: name, **one} for name, one in value.items()]
        listed = [flat(row) for row in listed if isinstance(row, dict)]
        columns = list(dict.fromkeys(name for row in listed for name in row))
        if len(columns) > 11 and len(listed) < 8 or len(listed) == 1:  # few rows of many values stand better upright
            rows = [[name, *(row.get(name, "–") for row in listed)] for name in columns]
            columns = [key.replace("_", " "), *(["value"] if len(listed) == 1 else [f"run {i + 1}" for i in range(len(listed))])]
        else:
            rows = [[row.get(name, "–") for name in columns] for row in listed]
        if rows:
            blocks.append((f"{key}:\n\n" if key not in ("rows", "runs", "cases", "models") else "") + table(columns, rows))
    return "\n\n".join(blocks)


def models(names, runs):
    """Whole models, a file each: one table."""
    rows, ratios = [], []
    for run in runs:
        ways = {name: way for name, way in run["ways"].items() if way.get("us")}
        own = ways.pop("graphed")
        other, best = min(ways.items(), key=lambda pair: pair[1]["us"]["median"])
        ratio = best["us"]["median"] / own["us"]["median"]
        name = f"{run['model']}, {run['batch']}, {run['type']}"
        ratios.append((name, ratio))
        same = " / ".join(str(way.get("top1", {}).get("same", "–")) for way in (own, best))
        rows.append([name, other, number(best["us"]["median"]), number(own["us"]["median"]), f"{ratio:.2f}",
                     f"{own['error']:.4f} / {best['error']:.4f}", same])
    columns = ["model, batch, type", "PyTorch's way", "PyTorch, µs", "convtune, µs", "ratio", "errors, ours / PyTorch's",
               "same first class of 1,024"]
    return (wrapped(f"{conditions(runs[0])}. Over PyTorch: {told(ratios)}. Runs: {', '.join(f'`{name}`' for name in names)}.")
            + "\n\n" + table(columns, rows))


def block(folder, names):
    runs = [json.loads((folder / name).read_text()) for name in names]
    if "ways" in runs[0]:
        return models(names, runs)
    texts = []
    for name, run in zip(names, runs, strict=True):
        rows = run.get("rows") or [{}]
        shape = (report if "providers" in rows[0] else pairs if "before_over_after" in rows[0] else
                 candidates if "columns" in (run.get("cases") or [{}])[0].get("candidates", ()) else None)
        said, columns, listed = shape(run) if shape else ("", None, None)
        head = f"`{name}`: {conditions(run)}.".replace("..", ".").replace(". .", ".") + (" " + said if said else "")
        texts.append(wrapped(head) + "\n\n" + (table(columns, listed) if shape else plain(run)))
    return "\n\n".join(texts)


def page(folder):
    """The text of a machine's page; every run of the folder is in it once."""
    words = (folder / "page.md").read_text()
    asked = re.findall(r"[\w.-]+\.json", " ".join(re.findall(r"\{\{(.*?)\}\}", words)))
    there = sorted(path.name for path in folder.glob("*.json"))
    if sorted(asked) != there:
        raise SystemExit(f"{folder}/page.md: its runs are not the folder's, once each: {sorted(set(asked) ^ set(there)) or asked}")
    text = re.sub(r"^\{\{(.*?)\}\}$", lambda found: block(folder, found[1].split()), words, flags=re.M)
    return f"<!-- Written by bench/results_pages.py from {folder.relative_to(ROOT)}; edit its page.md. -->\n{text}"


def main():
    wrong = []
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        out, text = PAGES / f"{folder.name}.md", page(folder)
        if out.exists() and out.read_text() == text:
            continue
        wrong.append(f"{out.relative_to(ROOT)} is not what its runs say: run bench/results_pages.py")
        if "--check" not in sys.argv:
            out.parent.mkdir(exist_ok=True)
            out.write_text(text)
    sys.exit("\n".join(wrong) if "--check" in sys.argv and wrong else 0)


if __name__ == "__main__":
    main()
