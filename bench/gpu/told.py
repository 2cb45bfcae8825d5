#!/usr/bin/env python3
"""What the scripts of this folder found, in few lines: told.py models DIR, told.py training FILE, told.py first FILE, told.py profile FILE,
told.py suites DIR."""

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def some(found, where):
    if not found:
        raise ValueError(f"{where} has no rows")
    return found


def models(folder):
    """A line a way of torch_models.py's files: whole, busy, memory, error, kinds of kernels; then who takes most of ours."""
    from torch_model_numbers import kinds_of

    late = []
    for file in some(sorted(Path(folder).glob("*.json")), folder):
        found = json.loads(file.read_text())
        print(f"== {found['model']}, batch {found['batch']}, {found['type']}: {found['device']}, PyTorch {found['versions']['torch']}")
        ways = {way: row for way, row in found["ways"].items() if row and "us" in row}
        if not ways:
            late.append(f"{file} has no way that was ready")
            continue
        theirs = [row["us"]["median"] for way, row in ways.items() if not way.startswith(("convtune", "optimize", "graphed"))]
        for way, row in found["ways"].items():
            if way not in ways:
                print(f"{way:13} -")
                continue
            us, kinds = row["us"]["median"], kinds_of(row["kernels"])
            print(f"{way:13} {us:9.0f} us{f' {min(theirs) / us:5.2f}x' if theirs else ''} queued {row['queued_us']:.0f} busy "
                  f"{row['busy_us']:.0f} in {sum(one[0] for one in row['kernels'].values()):.0f} kernels, {row['peak_mib']} MiB, error "
                  f"{row['error']:.1e}; ms: {' '.join(f'{kind[:4]} {ms:.2f}' for kind, ms in kinds.items())}"
                  + (f"; loop {row['loop_ms']['median']:.2f} ms, {row['launch_us']:.0f} us until a call returns" if "launch_us" in row else "")
                  + (f"; longer {row['longer_us'] / 1e3:.1f} ms {row['longer_peak_mib']} MiB" if "longer_us" in row else ""))
        for way in ("optimize", "graphed", "convtune", "convtune_launched"):
            for kernel, (times, us, _) in list(ways.get(way, {}).get("kernels", {}).items())[:6]:
                print(f"   {way} {us:8.1f} us {times:5.1f} times {kernel[:90]}")
    if late:
        raise ValueError("; ".join(late))


def training(file):
    from step_answers import said

    found = json.loads(Path(file).read_text())
    print(f"{found['device']}, PyTorch {found['torch']}; ms a step (MiB at its peak), over the best of PyTorch's ways")
    for row in some(found["rows"], file):
        theirs = [one["ms"] for way, one in row["ways"].items() if way.startswith(("eager", "compiled"))]
        print(f"== {row['model']}, batch {row['batch']}" + (f"; not ready: {', '.join(row['missing'])}" if row["missing"] else ""))
        for way, one in row["ways"].items():
            won = ", ".join(f"{count} {direction} {us:.0f} us" for direction, (count, us) in one["won"].items())
            kept = {None: "", True: "kept ", False: "put back "}[one["kept"]]
            over = f"{min(theirs) / one['ms']:5.2f}x" if theirs else ""
            print(f"{way:15} {one['ms']:9.2f} ms {over} ({one['mib']:.0f}) first step {one['seconds']:.0f} s {kept}"
                  f"{f'won {won}; ' if won else ''}{one.get('said', '')}"[:330])
            if one.get("answers"):
                print(f"   {said(one['answers'])}")
            if one.get("host"):
                host = one["host"]
                print("   the processor's: " + ", ".join(f"{part} {ms:.2f}" for part, ms in host["ms"].items())
                      + f" ms, sum {sum(host['ms'].values()):.1f}; a loop {host['loop, ms']:.2f}, the slowest turn {host['slowest turn']:.2f} times")
            if one.get("beside"):
                beside_each_other(one["beside"])
        kernels(row["ways"])
        tables = [one["table"] for way, one in row["ways"].items() if "table" in one]
        lines = [line for table in tables[:1] for line in table.splitlines() if line.strip()]
        print("\n".join(f"  {line[:140]}" for line in lines[-24:]))


def beside_each_other(graphs):
    """Prints where forward and backward of two graphs differ most on the processor: milliseconds, calls, function."""
    for name, one in graphs.items():
        busy = sum(us for _, _, us in one["kernels"]) / 1e3
        print(f"   in one process {name:9} {sum(one['ms'].values()):.2f} ms, busy {busy:.2f} in {sum(times for _, times, _ in one['kernels']):.0f} kernels; "
              f"a loop {one['loop, ms']:.2f}, the slowest turn {one['slowest turn']:.2f} times")
    theirs, ours = ({name: (calls, ms) for calls, ms, name in one["functions"]} for one in graphs.values())
    changed = {name: [own - other for own, other in zip(ours.get(name, (0, 0)), theirs.get(name, (0, 0)))] for name in {*theirs, *ours}}
    for name, (calls, ms) in sorted(changed.items(), key=lambda one: -abs(one[1][1]))[:14]:
        print(f"     convtune {ms:+7.3f} ms {calls:+7.1f} calls {name[:90]}")


def kernels(ways):
    """Prints what the GPU does in a step, by way; and where the ways differ most from the first of them: microseconds, times, kernel."""
    from torch_model_numbers import kinds_of

    found = {way: {name: (times, us) for name, times, us in one["kernels"]} for way, one in ways.items() if one.get("kernels")}
    for way, own in found.items():
        kinds = kinds_of({name: (times, us, 0.0) for name, (times, us) in own.items()})
        print(f"{way:15} busy {sum(us for _, us in own.values()) / 1e3:.2f} ms in {sum(times for times, _ in own.values()):.0f} kernels: "
              + ", ".join(f"{kind} {ms:.2f}" for kind, ms in kinds.items()))
    for way, own in list(found.items())[1:]:
        other = next(iter(found.values()))
        more = {name: own.get(name, (0, 0.0))[1] - other.get(name, (0, 0.0))[1] for name in {**own, **other}}
        for name in sorted(more, key=lambda one: -abs(more[one]))[:9]:
            print(f"   {way} {more[name]:+8.0f} us {own.get(name, (0, 0))[0] - other.get(name, (0, 0))[0]:+5.0f} times {name[:95]}")


def first(file):
    for row in some(json.loads(Path(file).read_text())["rows"], file):
        print(f"{row['model']:18} {row['way']:24} {row['seconds']:6.1f} s {row['over_inductor']:5.2f}x {row['us']:7.0f} us a call "
              f"({row['waited_us']:.0f} waited for), {100 * row['of_tuned']:.0f} % of tuned  {row['said'][:230]}")


def profile(file):
    """Prints the seconds of sampled stacks: by function with what it called, then by line without."""
    within, own, whole = Counter(), Counter(), 0.0
    for line in some(Path(file).read_text().splitlines(), file):
        stack, _, took = line.rpartition(" ")
        frames, seconds = stack.split(";"), float(took) / 1e3
        whole += seconds
        own[frames[-1]] += seconds
        for name in {frame.rpartition(":")[0] for frame in frames}:
            within[name] += seconds
    print(f"== {Path(file).name}: {whole:.1f} s")
    for found, most in ((within, 70), (own, 25)):
        rows = [one for one in found.most_common() if one[1] < 0.9 * whole][:most]
        print("; ".join(f"{took:.2f} {name[-60:]}" for name, took in rows))


def suites(folder):
    from suites import told

    told(folder)


if __name__ == "__main__":
    try:
        {"models": models, "training": training, "first": first, "profile": profile, "suites": suites}[sys.argv[1]](sys.argv[2])
    except (OSError, ValueError) as why:
        sys.exit(f"told: {why}")
