"""Drives the real convtune command where nothing is tuned: exit codes, messages, help, plans, checks.

Usage: input_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import json
import os

from convtune_command import TINY, CliTest, main


class BadInput(CliTest):
    def test_the_command_line(self):
        self.refused(["tuna"], 2, "tuna")
        self.refused(["--frobnicate"], 2, "--help")
        self.refused(["tune", TINY, "--frobnicate"], 2, "--frobnicate", "convtune tune --help")
        self.refused(["db"], 2, "convtune db --help")
        self.refused(["db", "frobnicate"], 2)
        self.refused(["db", "show"], 2, "PROBLEM")
        self.refused(["db", "import"], 2, "FILE, or --shipped")
        self.refused(["db", "import", "--shipped", "pack.jsonl"], 2, "--shipped")
        for command in ("tune", "bench", "verify", "plan"):
            self.refused([command], 2, "no problem given")

    def test_what_was_meant(self):
        """Commands, options, targets, suites and cases that are nearly right are answered with the right ones."""
        for args, needle in [
            (["tunee", TINY], "there is no command 'tunee'; did you mean 'tune'?"),
            (["db", "lst"], "there is no command 'convtune db lst'; did you mean 'list'?"),
            (["tune", TINY, "--buget", "5s"], "there is no option --buget; did you mean '--budget'?"),
            (["tune", TINY, "--buget=5s"], "did you mean '--budget'?"),
            (["refine", "--metrcs", "x"], "did you mean '--metrics'?"),  # though FILE is missing, too
            (["--budget", "5s", "tune", TINY], "--budget belongs behind the command: convtune tune … --budget"),
            (["plan", TINY, "--target", "RTX4090"], "did you mean 'rtx4090'?"),
            (["plan", TINY, "--target", "4090"], "did you mean 'rtx4090'?"),
            (["cases", "steam"], "did you mean 'stem'?"),
            (["plan", "alexnet"], "did you mean 'alexnet_conv1', 'alexnet_conv1_torchvision' or 'alexnet_conv2', or another of 6?"),
            (["plan", "resnet50"], "did you mean 'train_resnet50_stem_w', "),
        ]:
            self.refused(args, 2, needle)
        self.refused(["alexnet_conv1"], 2, "it is a problem", "convtune tune alexnet_conv1")
        self.refused(["nosuch", "--help"], 2, "there is no command 'nosuch'; there are tune, bench, ")
        self.refused(["db", "nosuch", "--help"], 2, "there is no command 'convtune db nosuch'; there are list, show, ")
        self.assertIn("Commands:", self.ok("db", "--help").stdout)
        self.assertIn("none of", self.refused(["plan", "foo"], 2, "nor is it the name of a case").stderr)
        self.assertNotIn("name of a case", self.refused(["plan", "mb1ic3ih8oc4kh3zz9"], 2, "zz9").stderr)

    def test_the_parser_speaks_in_words(self):
        for args, needle in [
            (["tune", TINY, "--budget"], "--budget needs a value: How long"),
            (["tune", TINY, "--budget", "5s", "--budget", "6s"], "--budget is given more than once"),
            (["db"], "convtune db what? There are list, show, export, import, clean"),
            (["cases", "stem", "body"], "'body' is one word too many"),
            (["plan", TINY, "--target", "h100", "--device", "cpu"], "--device cannot be given together with --target"),
            (["plan", TINY, "--threads", "2000"], "'2000' is not a whole number from 1 to 1024"),
        ]:
            self.refused(args, 2, needle, "convtune: hint: see `convtune ")
        self.refused(["refine"], 2, "name a FILE, or a --document; see `convtune refine --help`")

    def test_problems(self):
        for command in ("tune", "bench", "verify", "plan"):
            self.refused([command, "mb1ic3ih8oc4kh3zz9"], 2, "zz9")
        for line, needle in [
            ("", "problem"),
            ("mb1ic3ih8oc4", "kh"),  # a field is missing
            ("mb1ic3ihoc4kh3", "ih"),  # a number is missing
            ("mb1ic3ih8oc4kh9", "9"),  # the filter does not fit
            ("mb1ic3ih8oh4oc4kh3", "oh4"),  # the output size is wrong
            ("g2mb1ic3ih8oc4kh3", "group"),
            ("mb1ic3ih8oc4kh3sh0", "0"),
            ("mb1ic99999999999999999999ih8oc4kh3", "99999999999999999999"),
            ("mb1000000000000ic1000000ih1000000oc4kh3", "bytes"),
            ("alexnet_conv11", "alexnet_conv1"),
        ]:
            self.refused(["plan", line], 2, needle)
        self.refused(["plan", TINY, "act=tanh"], 2, "tanh", "sigmoid")
        self.refused(["plan", TINY, "precision=fp8"], 2, "fp8", "tf32")
        self.refused(["plan", "act=relu"], 2, "act=relu")
        self.refused(["plan", "alexnet_conv1", "--batch", "-1"], 2, "--batch", "-1")
        self.refused(["plan", "alexnet_conv1", "--batch", "many"], 2, "many")
        self.refused(["plan", "alexnet_conv1", "--batch", str(10**18)], 2, str(10**18), "too large")

    def test_suites(self):
        self.refused(["bench", "--suite", "steam"], 2, "steam", "stem")
        self.refused(["cases", "steam"], 2, "steam")
        self.refused(["bench", "--suite", str(self.folder)], 2, str(self.folder))
        bad = self.folder / "bad.txt"
        bad.write_text("# fine\nmb1ic3nonsense\n")
        self.refused(["bench", "--suite", str(bad)], 2, "bad.txt:2", "nonsense")
        bad.write_bytes(bytes(range(256)) * 16)
        self.refused(["bench", "--suite", str(bad)], 2, "bad.txt")
        bad.write_text("# nothing\n")
        self.refused(["bench", "--suite", str(bad)], 2, "bad.txt")
        if os.geteuid() != 0:
            bad.chmod(0)
            self.refused(["bench", "--suite", str(bad)], 2, "bad.txt")

    def test_lines_of_a_suite_that_are_left_out(self):
        suite = self.folder / "shapes"
        suite.write_text(f"--reset --dir=FWD_B\n{TINY}\nic3id9ih9iw9oc4kd3kh3kw3sd0n\"three\"\nmb1ic3iw9oc4kw3n\"one\"\n")
        result = self.run_command("cases", str(suite))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), 3)
        self.assertIn("mb1ic3ih1iw9oc4kh1kw3", result.stdout)
        first, second = self.warnings(result)
        self.assertIn("shapes:1: benchdnn's option '--reset'", first)
        self.assertIn("shapes:3: ", second)
        self.assertIn("stride_d (sd) is 0", second)
        self.assertIn("error: 2 lines were left out", result.stderr)
        result = self.run_command("verify", "--suite", str(suite), "--algorithm", "reference", "--threads", "1")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("2 problems, 2 checks, 2 on special numbers too, 0 mismatches", result.stdout)
        suite.write_text(TINY + "\n" + "ic3id9oc4kd0\n" * 30)
        result = self.run_command("cases", str(suite))
        self.assertEqual(len(self.warnings(result)), 21)
        self.assertIn("... and 10 more lines of", result.stderr)

    def test_what_the_reference_alone_runs(self):
        slow = "mb1ic3ih9oc4kh3sh2ph1 dir=bwd_d residual=1 rounding=eager"
        for words in ["dtype=f16", "dtype=bf16"]:
            planned = self.ok("plan", slow, words, "--device", "cpu").stdout
            self.assertIn("the reference is right, and slow", planned)
            self.assertRegex(planned, r"direct +steps aside .* (it|its) ")
            self.assertIn("1 problem, 1 check, 1 on special numbers too, 0 mismatches", self.ok("verify", slow, words, "--device", "cpu").stdout)
            timed = self.ok("bench", slow, words, "--device", "cpu", "--seconds", "0.02").stdout
            self.assertIn("convtune runs reference", timed)
            why = "there is nothing to tune: no fast algorithm runs"
            self.refused(["tune", slow, words, "--device", "cpu"], 2, why, "direct: it")
        for words in ["dir=bwd_w", "dir=bwd_w dtype=bf16"]:
            self.refused(["export", TINY, words], 2, "cannot be exported as a PyTorch layer: it")
            self.refused(["export", "--format", "cuda", "--target", "h100", TINY, words], 2, "as a PyTorch layer: it")
        self.assertFalse(list(self.data.glob("*.json")), "nothing is recorded")
        suite = self.folder / "shapes"
        suite.write_text(f"{slow} dtype=bf16\n{TINY}\n")
        result = self.run_command("tune", "--suite", str(suite), "--device", "cpu", "--budget", "2t")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("nothing to tune", result.stderr)
        self.assertIn("decision: ", result.stdout, "the other one is tuned")

    def test_devices(self):
        self.refused(["plan", TINY, "--device", "tpu"], 2, "tpu")
        for command in ("tune", "bench", "verify", "plan"):
            self.refused([command, TINY, "--device", "cuda:97"], 3, "cuda:97", "cpu", "`convtune doctor` has more")
        for threads in ("0", "-3", "two", "1000000"):
            self.refused(["plan", TINY, "--threads", threads], 2, threads)

    def test_algorithms_and_configs(self):
        for command in ("plan", "verify"):
            self.refused([command, TINY, "--algorithm", "winograd9"], 2, "winograd9", "direct")
            self.refused([command, TINY, "--config", "a=1"], 2, "--algorithm")
            self.refused([command, TINY, "--algorithm", "direct", "--config", "nonsense"], 2, "nonsense")
            self.refused([command, TINY, "--algorithm", "direct", "--config", "a=1 b=2"], 2, "a=1")

    def test_numbers(self):
        for budget in ("60", "-1s", "0t", "fast", "1.5t"):
            self.refused(["tune", TINY, "--budget", budget], 2, budget)
        for gain in ("2", "-1%", "much"):
            self.refused(["tune", TINY, "--min-gain", gain], 2, gain)
        for seconds in ("0", "-1", "nan", "long"):
            self.refused(["bench", TINY, "--seconds", seconds], 2, "seconds")
        for count in ("0", "-1", "many", "5x", "99999999999999999999"):
            self.refused(["verify", "--random", count], 2, "--random")
        for seed in ("-1", "99999999999999999999"):
            self.refused(["verify", "--random", "5", "--seed", seed], 2, "--seed", seed)
        self.refused(["verify", "--random", "5", TINY], 2, "--random")
        self.refused(["verify", "--random", "5", "--batch", "3"], 2, "--batch")

    def test_output_paths_are_tried_before_anything_is_measured(self):
        missing = str(self.folder / "none" / "out.json")
        for option in ("--json", "--csv"):
            for command in ("tune", "bench"):
                self.refused([command, TINY, option, missing], 2, missing)
                self.refused([command, TINY, option, str(self.folder)], 2, str(self.folder))
        self.refused(["bench", TINY, "--json", "-", "--csv", "-"], 2, "--json", "--csv")
        self.assertFalse(self.data.exists())


class Information(CliTest):
    def test_the_command_alone(self):
        """The command says what it is and how to begin, with the exit code of a mistake: a script may have lost a variable."""
        result = self.run_command()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        for needle in ("convtune finds the fastest way", "convtune doctor", "convtune cases", "convtune tune ",
                       "convtune bench ", "`convtune --help`"):
            self.assertIn(needle, result.stderr)

    def test_help_fits(self):
        """80 columns in a pipe, and what a terminal has."""
        commands = [[], ["tune"], ["bench"], ["verify"], ["plan"], ["profile"], ["analyze"], ["refine"], ["export"],
                    ["cases"], ["db"], ["db", "show"], ["cache"], ["devices"], ["doctor"], ["completion"]]
        for command in commands:
            for width, text in [(80, self.ok(*command, "--help").stdout), (60, self.on_terminal(60, *command, "--help")[1])]:
                for line in text.splitlines():
                    copied = line.startswith(("  convtune ", "  . "))  # an example is not wrapped
                    self.assertLessEqual(len(line), 80 if copied else width, (command, line))
            self.assertNotIn(" TEXT", self.ok(*command, "--help").stdout, "an option does not say what it takes")

    def test_colors(self):
        self.assertNotIn("\033", self.ok("cases", "--color", "auto").stdout)
        self.assertIn("\033[1m", self.run_command("cases", "--color", "always").stdout)
        self.assertIn("\033[1m", self.run_command("--color", "always", "cases").stdout)
        self.assertIn("\033[1m", self.on_terminal(80, "cases", "--color", "always")[1])  # if NO_COLOR is set
        self.assertNotIn("\033", self.on_terminal(80, "cases")[1])
        self.assertNotIn("\033", self.on_terminal(80, "cases", "--color", "never")[1])
        self.refused(["cases", "--color", "purple"], 2, "'purple' is not known; there are auto, always, never")

    def test_help_of_everything(self):
        commands = ["tune", "bench", "verify", "plan", "cases", "db", "devices", "doctor"]
        text = self.ok("--help").stdout
        for command in commands:
            self.assertIn(command, text)
            help_text = self.ok(command, "--help").stdout
            self.assertIn(f"convtune {command}", help_text)
            self.assertIn("Example", help_text)
        groups = [line for line in self.ok("tune", "--help").stdout.splitlines() if line.endswith(":") and line[0] != " "]
        self.assertEqual(groups, ["Arguments:", "What:", "Where:", "How:", "Output:", "Options:", "Examples:"])
        for command in ("list", "show", "export", "import", "clean"):
            self.assertIn("Usage", self.ok("db", command, "--help").stdout)
        self.assertEqual(self.ok("help").stdout, text)
        self.assertEqual(self.ok("help", "tune").stdout, self.ok("tune", "--help").stdout)
        self.assertEqual(self.ok("help", "db", "list").stdout, self.ok("db", "list", "--help").stdout)

    def test_versions(self):
        """Versions of convtune, with the commit where there is one, of the compiler, and of the libraries that doctor found."""
        text = self.ok("--version").stdout
        self.assertRegex(text, r"^convtune \d+\.\d+\.\d+( \(commit [0-9a-f]{12}( and changes)?\))?\ncompiler: \w+ \d+")
        doctor = self.ok("doctor").stdout
        self.assertEqual(doctor.splitlines()[0], text.splitlines()[0])
        self.assertEqual("\noneDNN: " in text, "oneDNN            yes" in doctor)
        for other in ("-V", "version"):
            self.assertEqual(self.ok(other).stdout, text)

    def test_the_examples_of_the_help_are_understood(self):
        """Every example is parsed; what it would measure is left out by a device that is not there."""
        for command in ("tune", "bench", "plan"):
            examples = [line.split("#")[0].split(">")[0].split() for line in
                        self.ok(command, "--help").stdout.splitlines() if line.startswith("  convtune ")]
            self.assertGreaterEqual(len(examples), 2)
            for example in examples:
                if "--target" in example:
                    continue  # for a GPU that need not be here; it asks for NVRTC and takes no device
                if "--model" in example:
                    self.refused(example[1:], 2, "there is no model file")
                    continue
                result = self.run_command(*example[1:], "--device", "cuda:97", cwd=self.folder)
                self.assertEqual(result.returncode, 3, f"{example}: {result.stderr}")

    def test_a_config_is_explained(self):
        text = self.ok("plan", TINY, "--device", "cpu", "--algorithm", "direct", "--explain-config").stdout
        self.assertRegex(text, r"rows +\d+  1 to \d+: output tile: rows")

    def test_cases(self):
        text = self.ok("cases").stdout
        for name in ("alexnet_conv1", "resnet_3x3_64", "mobilenet_dw_3x3_144"):
            self.assertIn(name, text)
        stem = self.ok("cases", "stem").stdout
        self.assertIn("alexnet_conv1", stem)
        self.assertNotIn("resnet_3x3_64", stem)

    def test_tables_fit_a_terminal(self):
        for args in (["cases"], ["cases", "edges"], ["plan", "alexnet_conv1"], ["plan", TINY, "--algorithm", "direct"],
                     ["plan", TINY, "--algorithm", "direct", "--explain-config"],
                     ["devices"]):
            code, text = self.on_terminal(80, *args)
            self.assertEqual(code, 0, text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 80, f"{args}: {line}")
        self.assertIn("suite", self.ok("cases").stdout.splitlines()[0])  # a pipe gets every column

    def test_devices_and_doctor(self):
        self.assertIn("cpu", self.ok("devices").stdout)
        devices = json.loads(self.ok("devices", "--json", "-").stdout)
        self.assertEqual(devices["devices"][-1]["device"], "cpu")
        self.assertGreaterEqual(devices["devices"][-1]["units"], 1)
        doctor = self.ok("doctor").stdout
        self.assertIn("oneDNN", doctor)
        self.assertIn(str(self.data), doctor)
        self.assertFalse(self.data.exists(), "looking made a folder")

    def test_plan(self):
        text = self.ok("plan", TINY, "act=relu").stdout
        for needle in ("direct", "reference", "chosen", "act=relu"):
            self.assertIn(needle, text)
        self.assertRegex(text, r"\nmemory +\d+ bytes of packed weights\n")
        self.assertNotIn("\nmemory", self.ok("plan", TINY, "dir=bwd_w", "--device", "cpu").stdout)
        self.assertIn("mb10ic3", self.ok("plan", "alexnet_conv1", "--batch", "010").stdout)
        forced = self.ok("plan", TINY, "--algorithm", "reference").stdout
        self.assertIn("forced", forced)
        self.assertEqual(self.ok("plan", TINY + " act=relu").stdout, text)

    def test_a_full_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = self.run_command("cases", stdout=full)
        self.assertEqual(result.returncode, 2)
        self.assertIn("standard output", result.stderr)


class Verify(CliTest):
    def test_random_sweep(self):
        result = self.ok("verify", "--random", "200", "--seed", "1")
        self.assertRegex(result.stdout, r"^200 problems, \d+ checks, [1-9]\d* on special numbers too, 0 mismatches\n$")

    def test_random_sweep_of_a_type_and_a_layout(self):
        asked = ("verify", "--random", "20", "--layout", "nhwc", "--dtype", "f16")
        self.assertRegex(self.ok(*asked, "--algorithm", "reference").stdout, r"^20 problems, 20 checks, \d+ on special numbers too, 0 mismatches\n$")
        none = self.run_command(*asked, "--algorithm", "direct")  # which has no such type
        self.assertNotEqual(none.returncode, 0)
        self.assertIn("nothing was checked", none.stderr)

    def test_random_sweep_of_rows_and_of_a_direction(self):
        asked = ("verify", "--random", "20", "--algorithm", "reference")
        every, rows, gradients = (self.ok(*asked, *more).stdout for more in ((), ("--row",), ("--dir", "bwd_w")))
        for told in (every, rows, gradients):
            self.assertRegex(told, r"^20 problems, 20 checks, \d+ on special numbers too, 0 mismatches\n$")
        self.refused(["verify", "--random", "5", "--row", "--depth"], 2, "--row", "--depth")
        self.refused(["verify", TINY, "--row"], 2, "--random")

    def test_one_problem_and_one_algorithm(self):
        every = self.ok("verify", TINY).stdout
        self.assertRegex(every, r"^1 problem, \d+ checks, \d+ on special numbers too, 0 mismatches\n$")
        one = self.ok("verify", TINY, "--algorithm", "reference").stdout
        self.assertLess(int(one.split()[2]), int(every.split()[2]))


if __name__ == "__main__":
    main()
