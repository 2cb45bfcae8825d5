"""Drives the real convtune command where files are in the way: folders of others, kernels kept, odd arguments.

Usage: files_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import hashlib
import json
import os
import resource
import shutil
import subprocess
from pathlib import Path

from convtune_command import TINY, CliTest, main


RECORD = json.dumps({
    "schema": 1, "problem": "mb1ic3ih8oc4kh3ph1 precision=fp32", "device": "a device", "algorithm": "direct",
    "config": "vector_bits=512", "time_us": 5, "mad_us": 0.1, "n": 20, "roofline_fraction": 0.5,
    "roofline_bound": "memory", "max_error": 1e-7, "runner_up": "", "runner_up_us": 0, "vendor": "", "vendor_us": 0,
    "decision": "", "kernel_hash": "direct-3", "software": "convtune 0.1.0", "date": "2026-11-22T09:54:47Z"})


class Messages(CliTest):
    def test_no_control_character_reaches_a_terminal(self):
        """ESC, DEL, a line break that would begin a line of its own, C1 in UTF-8: of any message's making."""
        odd = "\x1b[31m\x7f\rred\nconvtune: error: no\u009b31m"
        for args in (["db", "list", odd], ["verify", "--random", "5", "--seed", odd], ["plan", odd], [odd],
                     ["plan", TINY, "--device", odd], ["plan", TINY, "--threads", odd], ["cases", odd],
                     ["tune", TINY, "--budget", odd], ["tune", TINY, "--json", odd + "/x"], ["cache", odd],
                     ["db", "import", odd], ["db", "export", odd + "/x"], ["--" + odd],
                     ["plan", TINY, "--algorithm", odd], ["plan", TINY, "--config", odd],
                     ["plan", TINY, "--target", odd], ["analyze", odd], ["refine", odd], ["bench", "--suite", odd]):
            result = self.run_command(*args)
            with self.subTest(args=args):
                self.assertEqual(result.returncode, 2, result.stderr)
                text = result.stdout + result.stderr
                self.assertEqual([c for c in text if c != "\n" and not c.isprintable()], [], text)
                self.assertEqual(sum(line.startswith("convtune: error: ") for line in text.splitlines()), 1, text)

    def test_a_folder_of_odd_name(self):
        self.data = self.folder / "a\x1b[31mb"
        self.assertNotIn("\x1b", self.ok("db", "list").stdout)
        self.assertNotIn("\x1b", self.ok("db", "clean", "--yes").stdout)
        self.assertNotIn("\x1b", self.ok("doctor").stdout)


class Folders(CliTest):
    def test_a_home_where_nothing_may_be_made(self):
        """The reason is of the first folder that could not be made: permission, not that the next was missing."""
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        command = shutil.copy(self.convtune, self.folder / "convtune")
        self.folder.chmod(0o755)
        pack = self.folder / "pack"
        pack.write_text(RECORD)
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("CONVTUNE_DATA_DIR", "XDG_DATA_HOME")}
        result = subprocess.run([command, "db", "import", pack], env={**environment, "HOME": "/"}, text=True,
                                capture_output=True, timeout=120, user=12345, group=12345, extra_groups=[])
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("/.local: Permission denied", result.stderr)
        self.assertIn("set CONVTUNE_DATA_DIR", result.stderr)

    def test_a_file_as_folder(self):
        self.data.write_text("no folder")
        pack = self.folder / "pack"
        pack.write_text(RECORD)
        self.refused(["db", "import", str(pack)], 2, f"{self.data}: is not a folder; set CONVTUNE_DATA_DIR")

    def test_below_a_folder_of_everybody(self):
        everybodys = self.folder / "everybodys"
        everybodys.mkdir()
        everybodys.chmod(0o777)
        pack = self.folder / "pack"
        pack.write_text(RECORD)
        self.data = everybodys / "data"
        self.refused(["db", "import", str(pack)], 2, str(self.data), f"{everybodys} above it", "mode 777", "chmod +t")
        everybodys.chmod(0o1777)
        self.ok("db", "import", str(pack))
        self.assertEqual(self.warnings(self.ok("db", "list")), [])

    def test_records_that_others_lend(self):
        """Refused, with the command that takes them over; and that command does."""
        if os.geteuid() != 0:
            self.skipTest("only root can give a file away")
        lent = self.data
        for problem in ("mb1", "mb3"):
            pack = self.folder / problem
            pack.write_text(RECORD.replace("mb1", problem))
            self.ok("db", "import", str(pack))
        for path in (lent, *lent.iterdir()):
            os.chown(path, 65534, 65534)
        result = self.ok("db", "list")
        self.assertIn("no records", result.stdout)
        way_out = f"set CONVTUNE_DATA_DIR to a folder of your own, into which `convtune db import {lent}/*.json`"
        self.assertIn(way_out, result.stderr)
        self.data = self.folder / "own"
        self.assertIn("2 imported", self.ok("db", "import", *(str(path) for path in lent.glob("*.json"))).stdout)

    def test_what_is_shipped_is_for_devices_that_are_here(self):
        first = self.ok("db", "import", "--shipped").stdout
        self.assertRegex(first, r"^\d+ imported, 0 kept \(.*\), \d+ of devices that are not here, \d+ of kernels")
        self.assertRegex(self.ok("db", "import", "--shipped").stdout, "^0 imported, " + first.split()[0] + " kept")

    def test_clean_comes_to_everything(self):
        pack = self.folder / "pack"
        pack.write_text("\n".join(RECORD.replace("mb1", f"mb{n}") for n in range(3, 12)))
        self.ok("db", "import", str(pack))
        in_the_way = sorted(self.data.glob("*.json"))[4]
        in_the_way.unlink()
        in_the_way.mkdir()
        trials = self.data / "trials"
        trials.mkdir(mode=0o700)
        (trials / in_the_way.with_suffix(".jsonl").name).write_text("{}")
        result = self.refused(["db", "clean", "--yes"], 2, str(in_the_way), "8 records")
        self.assertEqual(result.stderr.count(str(in_the_way)), 1)
        self.assertEqual(sorted(self.data.rglob("*")), sorted([in_the_way, trials]))


def one_process():
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))


class NamedFiles(CliTest):
    def test_who_may_read_a_file_stays(self):
        """A report has names of models and layers: whoever made its file private keeps it so."""
        page = self.folder / "page.html"
        for mode in (0o600, 0o640, 0o604):
            page.write_text("before")
            page.chmod(mode)
            if os.geteuid() == 0:
                os.chown(page, 12345, 12346)
            for args in (["devices", "--json", str(page)], ["db", "export", str(page)]):
                self.ok("db", "import", str(self.pack()))
                self.ok(*args)
                status = page.stat()
                self.assertEqual(status.st_mode & 0o777, mode, args)
                self.assertNotEqual(page.read_text(), "before")
                if os.geteuid() == 0:
                    self.assertEqual((status.st_uid, status.st_gid), (12345, 12346))
        page.unlink()
        self.ok("devices", "--json", str(page))
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual(page.stat().st_mode & 0o777, 0o666 & ~umask)

    def test_what_may_not_be_written_is_not_replaced(self):
        page = self.folder / "page.json"
        page.write_text("before")
        page.chmod(0o444)
        user = {"user": 12345, "group": 12345, "extra_groups": []} if os.geteuid() == 0 else {}
        if user:
            for path in (self.folder, page):
                os.chown(path, 12345, 12345)
        command = shutil.copy(self.convtune, self.folder / "convtune")
        for args in (["devices", "--json", str(page)], ["db", "export", str(page)]):
            result = subprocess.run([command, *args], env=self.environment(), text=True, capture_output=True,
                                    timeout=120, **user)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("Permission denied", result.stderr)
            self.assertEqual(page.read_text(), "before")

    def test_an_empty_name_is_none(self):
        for args in (["tune", TINY, "--html", ""], ["tune", TINY, "--json", ""], ["bench", TINY, "--csv", ""],
                     ["verify", TINY, "--html", ""], ["cases", "--model", ""], ["tune", TINY, "--suite", ""],
                     ["devices", "--json", ""], ["report", "", "--html", "x.html"], ["report", "x.json", "--html", ""],
                     ["plan", TINY, "--model", ""], ["plan", TINY, "--target", ""], ["plan", TINY, "--algorithm", ""],
                     ["profile", TINY, "--output", ""], ["export", TINY, "--output", ""], ["refine", "", "-o", "y.py"],
                     ["refine", "x.py", "--output", ""], ["refine", "x.py", "--metrics", ""], ["analyze", ""],
                     ["refine", "x.py", "--python", ""], ["db", "export", ""], ["db", "import", ""],
                     ["cases", "--json", ""]):
            self.refused(args, 2, "'' is no name")
        self.assertEqual(list(self.folder.iterdir()), [])

    def pack(self):
        pack = self.folder / "pack"
        pack.write_text(RECORD)
        return pack


class Limits(CliTest):
    def test_where_no_thread_can_be_started(self):
        """As in a pod with a limit of processes: slower, with a word, and without an answer to Ctrl-C."""
        command = shutil.copy(self.convtune, self.folder / "convtune")
        self.folder.chmod(0o755)
        self.data.mkdir(mode=0o700)
        user = {}
        if os.geteuid() == 0:  # to whom no limit applies
            user = {"user": 12345, "group": 12345, "extra_groups": []}
            os.chown(self.data, 12345, 12345)
        for args in (["doctor"], ["plan", TINY], ["tune", TINY, "--budget", "2t"],
                     ["verify", "--random", "3", "--seed", "1"], ["verify", "--random", "3", "--compile-only", "h100"]):
            result = subprocess.run([command, *args], env={**self.environment(), "OMP_NUM_THREADS": "2"}, text=True,
                                    capture_output=True, timeout=120, preexec_fn=one_process, **user)
            with self.subTest(args=args):
                self.assertIn(result.returncode, (0, 2), result.stderr)
                self.assertIn("Ctrl-C ends the work at once", result.stderr)
                if "--compile-only" not in args:
                    self.assertEqual(result.returncode, 0, result.stderr)


class Kernels(CliTest):
    more_environment = {}

    def environment(self):
        return {**super().environment(), "CONVTUNE_CACHE_DIR": str(self.folder / "kernels"), **self.more_environment}

    def test_verify_compiles_into_it_for_another_machine(self):
        asked = ("verify", TINY, "--compile-only", "h100", "--algorithm", "direct_fma_sm80", "--config")
        config = "rows=1 filters=1 down=1 units=1 chunks=1 passes=1 kept=0 uniform=0 staged=0"
        self.refused([*asked, config, "--device", "cpu"], 2, "--device", "--compile-only")
        self.refused(["verify", "--random", "2", "--compile-only", "h101"], 2, "h101")
        for what in ([TINY], ["--random", "2"]):
            theirs = self.refused(["verify", *what, "--compile-only", "h200", "--algorithm", "cudnn"], 2, "cudnn")
            if "unknown algorithm" not in theirs.stderr:  # as where cuDNN is not found
                self.assertIn("brings its own kernels", theirs.stderr)
        if not any(line.split()[:2] == ["NVRTC", "yes"] for line in self.ok("doctor").stdout.splitlines()):
            self.skipTest("no NVRTC here")
        for _ in range(2):
            self.assertEqual(self.ok(*asked, config).stdout, "1 problem, 1 kernel compiled, 0 not compiled\n")
            self.assertIn("1 compiled kernel in", self.ok("cache").stdout)
        self.refused([*asked, config.replace("rows=1", "rows=0")], 2, "rows")

    def test_another_build_of_nvrtc_compiles_anew(self):
        nvrtc = next((line.split()[-1] for line in self.ok("doctor").stdout.splitlines()
                      if line.split()[:2] == ["NVRTC", "yes"]), "")
        builtins = list(Path(nvrtc).parent.glob("libnvrtc-builtins.so.*.*")) if nvrtc else []
        if not builtins:
            self.skipTest("no NVRTC here, or not its builtins beside it")
        # File name and version number are equal; only the identity that the linker wrote differs.
        folder = self.folder / "other"
        folder.mkdir()
        for file in [*builtins, Path(nvrtc)]:
            shutil.copyfile(file, folder / file.name)
        with open(folder / Path(nvrtc).name, "r+b") as file:
            at = file.read(1 << 16).find(b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0")
            self.assertGreater(at, 0, "it has no build ID near its beginning")
            file.seek(at + 16)
            file.write(bytes(20))
        asked = ("verify", TINY, "--compile-only", "h100", "--algorithm", "direct_fma_sm80", "--config",
                 "rows=1 filters=1 down=1 units=1 chunks=1 passes=1 kept=0 uniform=0 staged=0")
        self.ok(*asked)
        self.more_environment = {"CONVTUNE_NVRTC": str(folder / Path(nvrtc).name)}
        for _ in range(2):
            self.ok(*asked)
            self.assertIn("2 compiled kernels in", self.ok("cache").stdout)

    def test_cache(self):
        kernels = self.folder / "kernels"
        self.assertIn(f"0 compiled kernels in {kernels}: 0.0 MiB, at most 1024.0 MiB", self.ok("cache").stdout)
        self.assertIn("0 compiled kernels deleted", self.ok("cache", "clean").stdout)
        self.assertFalse(kernels.exists(), "looking made a folder")
        kernels.mkdir(mode=0o700)
        for number in range(3):
            key = hashlib.sha256(str(number).encode()).hexdigest()
            (kernels / f"{key}.cubin").write_bytes(bytes(1 << 20))
        (kernels / "notes.cubin").write_text("mine")
        self.assertIn(f"3 compiled kernels in {kernels}: 3.0 MiB", self.ok("cache").stdout)
        self.assertIn(f"{kernels}; 3 kernels, 3 MiB of at most 1024 MiB", self.ok("doctor").stdout)
        graphs = kernels / "graphs"
        graphs.mkdir()
        for name in ("0123456789abcdef" * 2, "fedcba9876543210" * 2, "unfinished-1a2b", "notes.txt"):
            (graphs / name).write_bytes(b"")
        said = self.ok("cache", "clean").stdout
        self.assertIn("3 compiled kernels deleted", said)
        self.assertIn("and 2 graphs of torch.compile", said)
        self.assertEqual([one.name for one in graphs.iterdir()], ["notes.txt"])
        self.assertEqual(sorted(path.name for path in kernels.iterdir()), ["graphs", "notes.cubin"])
        kernels.chmod(0o777)
        self.assertIn("chmod go-w", self.ok("cache").stderr)

    def test_graphs_that_cannot_be_removed(self):
        graphs = self.folder / "kernels" / "graphs"
        graphs.mkdir(parents=True)
        for folder in (graphs.parent, graphs):
            folder.chmod(0o700)
        (graphs / ("0" * 32)).write_bytes(b"")
        graphs.chmod(0o500)
        user = {}
        if os.geteuid() == 0:  # who may remove all
            user = {"user": 12345, "group": 12345, "extra_groups": []}
            for path in (graphs.parent, graphs):
                os.chown(path, 12345, 12345)
        command = shutil.copy(self.convtune, self.folder / "convtune")
        self.folder.chmod(0o755)
        result = subprocess.run([command, "cache", "clean"], env=self.environment(), text=True, capture_output=True, timeout=120,
                                **user)
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"{graphs / ('0' * 32)}: cannot be removed: Permission denied", result.stderr)

    def test_without_a_home(self):
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("CONVTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME")}
        if os.geteuid() != 0:
            self.skipTest("only root can become a user without a home")
        command = shutil.copy(self.convtune, self.folder / "convtune")
        self.folder.chmod(0o755)
        result = subprocess.run([command, "cache"], env=environment, text=True, capture_output=True, timeout=120,
                                user=12345, group=12345, extra_groups=[])
        self.assertEqual(result.returncode, 2)
        self.assertIn("set CONVTUNE_CACHE_DIR", result.stderr)


if __name__ == "__main__":
    main()
