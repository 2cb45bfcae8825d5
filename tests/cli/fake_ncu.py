"""Stands in for Nsight Compute's ncu: looks at how it is called, then says what the test wants.

Usage: fake_ncu.py SETTINGS NCU_ARGUMENTS... SETTINGS is JSON: "plan" that the command would have launched, "table" (a file
that ncu printed once), "says", "complains", "exit", "sleep", or "run": start the command.
"""

import json
import os
import subprocess
import sys
import time

settings, arguments = json.loads(sys.argv[1]), sys.argv[2:]
at = arguments.index("--metrics")
assert arguments[:at] == ["--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function",
                          "--clock-control", "none"], arguments
assert "launch__grid_size" in arguments[at + 1].split(","), arguments
command = arguments[at + 2:]
assert os.path.basename(command[0]) == "convtune" and command[1] == "launch-for-profiler", command
if "started" in settings:
    with open(settings["started"], "w") as started:
        started.write(json.dumps([os.getpid(), *command[2:]]))
time.sleep(settings.get("sleep", 0))
if "run" in settings:
    sys.exit(subprocess.run(command, check=False).returncode)
print(f"==PROF== Connected to process 7 ({command[0]})")
if "plan" in settings:
    print("launched " + settings["plan"])
print(settings.get("says", ""))
print(settings.get("complains", ""), file=sys.stderr)
if "table" in settings:
    with open(settings["table"]) as table:
        print(table.read(), end="")
sys.exit(settings.get("exit", 0))
