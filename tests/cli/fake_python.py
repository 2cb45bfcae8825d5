"""Stands in for `python3 -u -c RUNNER FILE SPEC`: speaks as src/runner/triton_runner.py does, without PyTorch.

Usage: fake_python.py MODES -u -c RUNNER FILE SPEC. MODES is JSON: for a num_stages ("3") or a config's place in the
list ("config 8") what it does; "picked" is the autotuner's choice. Every start leaves a line in the file "starts".
"""

import json
import os
import random
import sys
import time

modes, (file, spec) = json.loads(sys.argv[1]), sys.argv[-2:]
spec = json.loads(spec)
assert sys.argv[2:4] == ["-u", "-c"] and "ModelNew" in sys.argv[4] and os.path.isfile(file)
assert spec["kernel"] == "conv_kernel" and spec["listed"] == 9, spec
assert spec["input"] == [256, 3, 224, 224] and spec["dtype"] == "float32", spec
who = f"{spec['config'] or 0} {spec['num_stages'] or 0}"
with open(modes["starts"], "a+") as starts:
    starts.seek(0)
    earlier = sum(line.split(maxsplit=1)[1].strip() == who for line in starts)
    starts.write(f"{os.getpid()} {who}\n")
if spec["config"] is None:
    assert spec["num_warps"] is None and spec["num_stages"] is None, spec
    mode = modes.get("picking", {})
else:
    assert spec["num_warps"] == 4, spec
    mode = modes.get(f"config {spec['config']}", modes.get(str(spec["num_stages"]), {}))
if "refused" in mode:
    print(json.dumps({"refused": mode["refused"], "message": "as the test asked"}))
    sys.exit(0)
if "crash" in mode:
    sys.exit("Traceback (most recent call last):\nRuntimeError: out of shared memory")
if "silent" in mode:
    time.sleep(1000)
if spec["config"] is None:
    print(json.dumps({"picked": modes.get("picked", 5)}))
    sys.exit(0)
# The same noise in every run of the tests, and another in every process.
noise, random_ = mode.get("noise", 0.001), random.Random(f"{who} {earlier}")
us = mode.get("us", 1000)
values = [0.25 * i for i in range(64)]
if "wrong" in mode:
    values[mode["wrong"]] += 1
finite = "infinite" not in mode
output = {"shape": [256, 96, 55, 55], "dtype": "float32", "finite": finite}
if finite:
    output |= {"bits": mode.get("bits", 7), "rms": 4.0, "part": 64, "sums": [sum(values), 0.0], "values": values}
print(json.dumps({"time_us": us, "runs": 1, "device": "Fake GPU", "capability": "8.9", "torch": "2", "triton": "3",
                  "output": output}), flush=True)
for count, line in enumerate(sys.stdin):
    assert line == "sample\n"
    if count == mode.get("dies_after"):
        os.abort()
    if "garbage" in mode:
        print(mode["garbage"], flush=True)
        continue
    time.sleep(mode.get("sleep", 0))
    print(json.dumps({"time_us": us * (1 + noise * random_.gauss(0, 1))}), flush=True)
