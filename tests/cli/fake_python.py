"""Stands in for the Python that has PyTorch and Triton: where it is given src/triton/runner/triton_runner.py it speaks as that
does, and any other program it hands on to the Python that it runs in.

Usage: fake_python.py MODES -u -c START NAME TEXT... MODES is JSON: for a num_stages ("4"), or for the 32x64 tile, what
it does; "picked" is the autotuner's choice. Every start leaves a line in the file "starts".
"""

import ast
import json
import os
import random
import sys
import time

if "triton_runner" not in sys.argv:
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
modes, spec = json.loads(sys.argv[1]), json.loads(sys.stdin.readline())
assert sys.argv[2:4] == ["-u", "-c"] and "ModelNew" in sys.argv[-1] and os.path.isfile(spec["path"])
assert spec["names"] == ["conv_kernel"] and spec["call"] == modes.get("call", ""), spec
assert spec["input"] == [256, 3, 224, 224] and spec["dtype"] == "float32", spec
configs = [[config.args[0].values[1].value, *[word.value.value for word in config.keywords]]
           for node in ast.walk(ast.parse(spec["source"])) if isinstance(node, ast.keyword) and node.arg == "configs"
           for config in node.value.elts]
if spec["pick"]:
    assert len(configs) == 9, configs
    who, mode = "0 0", modes.get("picking", {})
elif len(configs) == 9:
    who, mode = "9 0", modes["the file as it was"]
else:
    (tile, warps, stages), = configs
    assert warps == 4, configs
    other = "BLOCK_M': 32" in spec["source"]
    who = f"{5 if other else 8} {stages}"
    mode = modes.get("the 32x64 tile" if other else str(stages), {})
with open(modes["starts"], "a+") as starts:
    starts.seek(0)
    earlier = sum(line.split(maxsplit=1)[1].strip() == who for line in starts)
    starts.write(f"{os.getpid()} {who}\n")
if "refused" in mode:
    print(json.dumps({"refused": mode["refused"], "message": "as the test asked"}))
    sys.exit(0)
if "crash" in mode:
    sys.exit("Traceback (most recent call last):\nRuntimeError: out of shared memory")
if "silent" in mode:
    time.sleep(1000)
if spec["pick"]:
    print(json.dumps({"picked": "as Triton says it", "index": modes.get("picked", 8), "of": modes.get("of", 9)}))
    sys.exit(0)
# Equal noise in every run of the tests, and another in every process.
noise, random_ = mode.get("noise", 0.001), random.Random(f"{who} {earlier}")
us = mode.get("us", 1000)
values = [0.25 * i for i in range(64)]
if "wrong" in mode:
    values[mode["wrong"]] += 1
finite = "infinite" not in mode
output = {"shape": [256, 96, 55, 55], "dtype": "float32", "finite": finite}
if finite:
    output |= {"bits": mode.get("bits", 7), "rms": 4.0, "part": 64, "sums": [sum(values), 0.0], "values": values}
outputs = [{**output, "bits": 3, "finite": True, "rms": 4.0, "part": 64, "sums": [1.0], "values": [1.0]}, output]
print(json.dumps({"time_us": us, "runs": 1, "device": "Fake GPU", "capability": "8.9", "torch": "2", "triton": "3",
                  "outputs": outputs[:1 if mode.get("outputs") == 1 else 2]}), flush=True)
for count, line in enumerate(sys.stdin):
    assert line == '"sample"\n'
    if count == mode.get("dies_after"):
        os.abort()
    if "garbage" in mode:
        print(mode["garbage"], flush=True)
        continue
    time.sleep(mode.get("sleep", 0))
    print(json.dumps({"time_us": us * (1 + noise * random_.gauss(0, 1))}), flush=True)
