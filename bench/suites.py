"""Tables of rows from several suites, searched in one run and told a line a cell (gpu/suites.sh).

    python bench/suites.py OUT TABLE... [--few N]    # writes OUT/rows_0.txt, rows_1.txt ... and for gradients OUT/calls.txt
    python bench/suites.py --told OUT                # the cells of OUT/tuned_0.json ..., OUT/calls.json and OUT/second.json

Tables: `gradients` (suites training and training3d whole, and some of their rows in other types and layouts), `transposed`, and `audio`
in bf16 and tf32. `--few N` is for a try: N rows of each list, of one image.
"""

import argparse
import json
import math
import re
from pathlib import Path

CASES = Path(__file__).resolve().parent.parent / "cases"
SAME = 0.98  # a row below it is lost
OF_A_PIECE = 10  # rows of a list, which is searched by a process of its own
IN_NCHW = ("resnet50_3x3_64", "resnet50_1x1_64_256", "resnet50_3x3_s2_128", "resnet50_3x3_256", "sd_320")
IN_TF32 = ("resnet50_3x3_64", "resnet50_3x3_256", "resnet50_1x1_1024_256", "convnext_t_dw_96")
DEEP_NCHW = ("unet3d_32_128", "unet3d_64_64", "unet3d_256_16")


class Line:
    """A problem's text, read as far as cells ask."""

    def __init__(self, text):
        head, *words = text.split()
        said = dict(word.split("=", 1) for word in words)

        def size(name, none=1):
            found = re.search(rf"(?:^|\d){name}(\d+)", head)
            return int(found[1]) if found else none

        self.text, self.name = text, re.search(r'n"(\w+)"', head)[1]
        self.kind, self.layout, self.direction = said.get("dtype", "f32"), said.get("layout", "nchw"), said.get("dir", "fwd")
        self.deep = size("id", 0) > 1 or size("kd", 0) > 1
        self.narrow = size("g") > 1 or size("ic") <= 4
        self.wide = min(size("ic"), size("oc")) >= 128 and size("kh", size("kd")) == 3 and size("g") == 1


def lines_of(file):
    return [Line(line.strip()) for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]


def suite(name):
    return lines_of(CASES / f"{name}.txt")


def written(line, kind, layout):
    """The row in another type and layout, which its new name says."""
    text = re.sub(r" (?:dtype|layout|precision)=\w+", "", line.text)
    text = re.sub(r'n"(?:train_|nchw_)?', f'n"{kind}_{layout}_', text)
    return Line(text + (f" dtype={kind}" if kind != "f32" else "") + (" layout=nhwc" if layout == "nhwc" else ""))


def some(lines, names):
    return [one for one in lines if any(re.search(rf"_{name}_[dw]$", one.name) for name in names)]


def gradients():
    plain, deep, first = suite("training"), suite("training3d"), suite("training_nchw")
    halves = [one for one in first if one.kind == "f16" and not one.deep]
    x = [one for one in plain if one.direction == "bwd_d"]
    return [
        x,
        [one for one in plain if one.direction == "bwd_w"],
        deep,
        some(halves, IN_NCHW) + [one for one in halves if one.direction == "bwd_d"],
        [written(one, "bf16", "nchw") for one in some(x, IN_NCHW)],
        [written(one, "f32", "nhwc") for one in some(plain, IN_TF32)],
        [written(one, "f32", "nchw") for one in some(plain, IN_TF32)],
        [written(one, "bf16", "nchw") for one in some(deep, DEEP_NCHW)],
    ]


def pieces(lines):
    """Lists of a few rows each: a search that is cut short has no report."""
    return [lines[at : at + OF_A_PIECE] for at in range(0, len(lines), OF_A_PIECE)]


TABLES = {
    "gradients": gradients,
    "gradients_nchw": lambda: gradients()[6:],  # tf32 and three dimensions, the last that `gradients` comes to
    "transposed": lambda: pieces(suite("transposed")),
    "audio": lambda: [piece for kind in ("bf16", "f32") for piece in pieces([written(one, kind, "nchw") for one in suite("audio")])],
}


def write(out, tables, few):
    lists = [lines for table in tables for lines in TABLES[table]()]
    if few:
        lists = [[Line(re.sub(r"mb\d+", "mb1", one.text)) for one in lines[:few]] for lines in lists]
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("rows_*.txt"):
        old.unlink()
    for number, lines in enumerate(lists):
        (out / f"rows_{number}.txt").write_text("".join(f"{one.text}\n" for one in lines))
    if "gradients" in tables:
        (out / "calls.txt").write_text("".join(f"{one.text}\n" for lines in lists[:3] for one in lines))
    print(f"{sum(map(len, lists))} rows: {' '.join(str(len(lines)) for lines in lists)}")


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def cells(line):
    """The cells that a row is in, in words."""
    kind = "tf32" if line.kind == "f32" else line.kind
    of = {"fwd": "audio", "transposed": "transposed", "bwd_d": "dx", "bwd_w": "dw"}[line.direction]
    if of in ("audio", "transposed"):
        return [of, f"{of}, {kind} {line.layout.upper()}"]
    if line.layout == "nchw" and not line.deep and kind != "tf32":
        kind = "halves"
    whole = f"{'3-D ' if line.deep else ''}{of} {kind} {line.layout.upper()}"
    if line.deep or line.kind != "bf16" or line.layout == "nchw":
        return [whole]
    return [whole, f"{whole}, {'depthwise, grouped, first layers' if line.narrow else 'dense'}"] + [f"{whole}, 3x3 of 128 channels and more"] * line.wide


def rows_of(file):
    try:
        return json.loads(file.read_text())["rows"]
    except (OSError, ValueError):
        return []


def searched(out):
    found, asked = {}, {one.name: one for file in out.glob("rows_*.txt") for one in lines_of(file)}
    for row in [row for file in sorted(out.glob("tuned_*.json")) for row in rows_of(file)]:
        if row.get("speedup"):
            best = min((one for one in row["providers"] if one["name"].startswith("convtune")), key=lambda one: one["time_us"])
            for cell in cells(asked[row["case"]]):
                found.setdefault(cell, []).append((row["speedup"], row["case"], best.get("roofline_fraction") or 0, best["algorithm"]))
    for cell in sorted(found, key=lambda one: (one.split(",")[0], len(one))):
        rows = sorted(found[cell])
        lost = [f"{name} {gain:.2f}" for gain, name, _, _ in rows if gain < SAME]
        print(
            f"{cell}: {mean([one[0] for one in rows]):.3f}x of {len(rows)}, least {rows[0][0]:.2f} {rows[0][1]}; vendor's kept "
            f"{sum(one[3] in ('cudnn', 'onednn') for one in rows)}; roofline {mean([max(one[2], 1e-3) for one in rows]):.3f}"
            + (f"; below {SAME}: {', '.join(lost)}" if lost else "")
        )
    return bool(found)


def called(out):
    rows, again = rows_of(out / "calls.json"), rows_of(out / "second.json")
    for words, deep, direction in (("dx", False, "bwd_d"), ("dw", False, "bwd_w"), ("3-D dx", True, "bwd_d"), ("3-D dw", True, "bwd_w")):
        said = []
        for way in ("free", "deterministic"):
            ratios = []
            for row in rows:
                theirs = [us for name, us in row["us"].items() if name.split(",")[0] == way]
                if row["direction"] != direction or Line(row["problem"]).deep != deep or not theirs:
                    continue
                if row.get("pytorchs"):
                    ratios.append((1.0, row["name"]))
                elif "ours" in row["us"]:
                    ratios.append((min(theirs) / row["us"]["ours"], row["name"]))
            if ratios:
                own = sum(row["direction"] == direction and bool(row.get("pytorchs")) for row in rows)
                said.append(f"over {way} {mean([one for one, _ in ratios]):.3f}x of {len(ratios)}, least {min(ratios)[0]:.2f} {min(ratios)[1]}"
                            + (f", {own} PyTorch's own" if own else ""))
        if said:
            print(f"calls by PyTorch, {words}: {'; '.join(said)}")
    if rows:
        first = {row["problem"]: row["signature"] for row in rows if "signature" in row}
        again = [row for row in again if "signature" in row and row["problem"] in first]
        other = [row["name"] for row in again if row["signature"] != first[row["problem"]]]
        print(f"bits: {len(first)} rows, unlike in 20 runs: {[row['name'] for row in rows if row.get('unlike')]}; "
              f"a second process {len(again)} rows, other: {other}")  # fmt: skip


def told(out):
    """A line a cell of what was searched and called. Throws ValueError where nothing was."""
    out = Path(out)
    any_row = searched(out)
    called(out)
    if not any_row:
        raise ValueError(f"{out} has no row that was searched beside another")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], default=[])
    parser.add_argument("--few", type=int, default=0)
    parser.add_argument("--told", action="store_true")
    options = parser.parse_args()
    if options.told:
        told(options.out)
    else:
        write(options.out, options.tables, options.few)
