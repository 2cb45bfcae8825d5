"""Every lock of the library is one that a forked child finds free (src/base/fork_gate.h).

Usage: locks_test.py SOURCE_FOLDER LIBRARY... Reads the sources for other mutexes, and the libraries' symbols for static
variables of functions, whose guards are locks too. Needs readelf and c++filt, of binutils.
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

MUTEX = re.compile(r"std::(?:recursive_|shared_|timed_)*mutex\b|std::once_flag|std::call_once|pthread_mutex|pthread_atfork")
# The gate itself; the two handlers that are about pools of threads; what lives within one call.
THEIR_OWN = {"base/fork_gate.h", "cpu/base/openmp.cpp", "cpu/base/thread_pool.cpp", "tune/ahead.h", "tune/verify.cpp"}


def other_locks(name, text):
    """Lines of a source that take another lock than fork_gate.h's."""
    code = (line.partition("//")[0] for line in text.splitlines())
    return [] if name in THEIR_OWN else [line for line in code if MUTEX.search(line)]


def guarded(symbols):
    """Static variables of functions that a thread may be making when another one forks: of `readelf --symbols`,
    demangled. A thread's own have no lock, those outside of functions are made when the library is loaded, and those
    of once() are made past the gate."""
    names = {line.split("guard variable for ")[1] for line in symbols.splitlines()
             if "guard variable for " in line and " TLS " not in line}
    return sorted(name for name in names if "(" in name and "convtune::once<" not in name and "fmt::" not in name)


class Locks(unittest.TestCase):
    def test_of_the_sources(self):
        files = [path for path in sorted((ROOT / "src").rglob("*")) if path.suffix in (".cpp", ".h")]
        self.assertGreater(len(files), 100)
        found = {str(path.relative_to(ROOT)): other_locks(str(path.relative_to(ROOT / "src")), path.read_text())
                 for path in files}
        self.assertEqual({path: lines for path, lines in found.items() if lines}, {})

    def test_of_the_libraries(self):
        guards = 0
        for library in LIBRARIES:
            table = subprocess.run(["readelf", "--symbols", "--wide", library], capture_output=True, text=True, check=True)
            names = subprocess.run(["c++filt"], input=table.stdout, capture_output=True, text=True, check=True).stdout
            self.assertIn("convtune", names)
            self.assertEqual(guarded(names), [], f"{library}: write once([] {{ return ...; }})")
            guards += names.count("guard variable for ")
        self.assertGreater(guards, 0)

    def test_that_it_can_say_no(self):
        self.assertTrue(other_locks("plan/planner.cpp", "  static std::shared_mutex one;"))
        self.assertTrue(other_locks("plan/planner.cpp", "std::once_flag flag;"))
        self.assertFalse(other_locks("plan/planner.cpp", "  Mutex one;  // a std::mutex"))
        line = " 1: 00 8 {} LOCAL DEFAULT 5 guard variable for {}\n"
        self.assertEqual(guarded(line.format("OBJECT", "convtune::all()::table")), ["convtune::all()::table"])
        for kind, name in (("TLS", "convtune::run()::scratch"), ("OBJECT", "convtune::kTable"),
                           ("OBJECT", "auto& convtune::once<f()::{lambda()#1}>(f()::{lambda()#1} const&)::value")):
            self.assertEqual(guarded(line.format(kind, name)), [])


if __name__ == "__main__":
    ROOT, LIBRARIES = Path(sys.argv[1]), sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
