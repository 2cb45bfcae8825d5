#!/usr/bin/env python3
"""Lines of device code that the tests of this folder execute, by gcov.   coverage.py HOST_GPU_TESTS [FILTER]

HOST_GPU_TESTS is the built program host_gpu_tests; FILTER chooses its tests. Prints each file's share of the lines that
were compiled, and the lines that were not executed. What no config of the problems instantiates was not compiled, and
is not counted. Environment: CONVTUNE_HOST_GPU_ALL and CONVTUNE_HOST_GPU_PART choose problems, as for the tests."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FLAGS = "-O0 --coverage -fprofile-abs-path -fno-sanitize=thread"


def lines_of(folder):
    """{file: {line: executed}} of the kernels that were compiled below a folder."""
    files = collections.defaultdict(dict)
    for counts in sorted(folder.glob("*/*.gcda")):
        text = subprocess.run(
            ["gcov", "--json-format", "--stdout", str(counts)], cwd=counts.parent, capture_output=True, check=True
        ).stdout
        for file in json.loads(text)["files"]:
            path = pathlib.PurePath(file["file"])
            if not path.is_relative_to(counts.parent) or path.suffix != ".cuh":
                continue  # twins of instructions, and what a host's compiler brings
            lines = files[str(path.relative_to(counts.parent))]
            for line in file["lines"]:
                number = line["line_number"]
                lines[number] = lines.get(number, False) or line["count"] > 0
    return files


def ranges(numbers):
    """[1, 2, 3, 7] -> '1-3 7'."""
    runs = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)


def main():
    program, chosen = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "*HostKernel*"
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, CONVTUNE_HOST_GPU_FLAGS=FLAGS, CONVTUNE_HOST_GPU_KEEP=folder)
        subprocess.run([program, f"--gtest_filter={chosen}", "--gtest_brief=1"], env=environment, check=True)
        files = lines_of(pathlib.Path(folder))
    all_lines = all_executed = 0
    for file, lines in sorted(files.items()):
        executed = sum(lines.values())
        all_lines, all_executed = all_lines + len(lines), all_executed + executed
        missed = ranges(sorted(line for line, hit in lines.items() if not hit))
        share = f"{100 * executed / len(lines):5.1f} %  {executed:4} of {len(lines):4}"
        print(f"{share}  {file}" + (f": {missed}" if missed else ""))
    print(f"{100 * all_executed / all_lines:5.1f} %  {all_executed:4} of {all_lines:4}  all")


main()
