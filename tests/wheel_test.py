"""wheel_test.py WHEEL [PYTHON]: it installs into an empty virtual environment without network and without anything else,
and works there: the package, the command, a convolution; then, with its extra `numpy`, README's program as it stands.
PYTHON: one with PyTorch, which then gets the wheel as well.

Run by scripts/build_wheel.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
TEXTS = {"LICENSE", "THIRD_PARTY_NOTICES", "libgomp.copyright", "libgomp.GPL-3"}
SECONDS = 60  # for an installation; it takes two

PROGRAM = """
import ctypes, sys, convtune
from convtune._library import library_path
from convtune.memory import HostMemory
assert "site-packages" in convtune.__file__ and "numpy" not in sys.modules
problem = convtune.Problem.parse("mb1ic1ih3oc1kh3ph1 bias=0")
convolution = convtune.Convolution(problem, "cpu")
w, x, y = ((ctypes.c_float * 9)(*[value] * 9) for value in (1, 2, 0))
packed = HostMemory(convolution.packed_bytes)
convolution.pack_raw(ctypes.addressof(w), 0, packed.pointer)
convolution.run_raw(ctypes.addressof(x), packed.pointer, ctypes.addressof(y))
assert list(y) == [8, 12, 8, 12, 18, 12, 8, 12, 8], list(y)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}
assert loaded == {str(library_path().with_name("libgomp.so.1"))}, loaded
try:
    convtune.torch
except ImportError as why:
    assert "needs PyTorch" in str(why)
print(convolution.plan)
"""

OF_TORCH = """
import torch, convtune, convtune.torch
assert convtune.torch.operator.startswith("C++"), convtune.torch.operator
x, w = torch.rand(1, 3, 8, 8), torch.rand(4, 3, 3, 3)
with torch.no_grad():
    for _ in range(3):
        assert torch.allclose(convtune.conv2d(x, w, padding=1), torch.conv2d(x, w, padding=1), atol=1e-4)
print(convtune.torch.operator)
"""


def run(*words, **how):
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=300, **how)
    assert done.returncode == 0, f"{words} ended with {done.returncode}"
    return done.stdout


def main():
    wheel = Path(sys.argv[1]).resolve()
    names = zipfile.ZipFile(wheel).namelist()
    missing = TEXTS - {Path(name).name for name in names}
    assert not missing, f"the wheel lacks {missing}"
    # A library that auditwheel had to bring along is one that nobody decided to give away.
    brought = [name for name in names if name.startswith("convtune.libs/")]
    assert not brought, f"the wheel needs what not every machine has: {brought}"
    # Nothing of the caller's: neither his packages nor his libraries.
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("CONVTUNE_", "PYTHON", "LD_", "VIRTUAL_ENV"))}
    with tempfile.TemporaryDirectory() as folder:
        own = {"cwd": folder, "env": {**kept, "XDG_CACHE_HOME": folder, "XDG_DATA_HOME": folder}}
        run(sys.executable, "-m", "venv", "fresh", **own)
        python = f"{folder}/fresh/bin/python"
        install = "-m", "pip", "--disable-pip-version-check", "install", "--quiet"
        pip = *install, "--no-index", "--no-deps"
        begin = time.monotonic()
        run(python, *pip, wheel, **own)
        seconds = time.monotonic() - begin
        assert seconds < SECONDS, f"pip took {seconds:.0f} s"
        print(f"wheel_test: installed in {seconds:.1f} s;", run(python, "-c", PROGRAM, **own).strip())
        assert "convtune" in run(f"{folder}/fresh/bin/convtune", "--version", **own)
        assert "cpu" in run(python, "-m", "convtune", "doctor", **own)
        run(python, *install, f"convtune[numpy] @ {wheel.as_uri()}", **own)
        program = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
        printed = run(python, "-c", program, **own)
        assert printed == "(1, 96, 55, 55)\n122.5\n", printed
        print("wheel_test: README's program runs")
        if len(sys.argv) > 2:
            run(python, *pip, "--target", f"{folder}/target/site-packages", wheel, **own)
            own["env"]["PYTHONPATH"] = f"{folder}/target/site-packages"
            print("wheel_test:", run(sys.argv[2], "-c", OF_TORCH, **own).strip())


main()
