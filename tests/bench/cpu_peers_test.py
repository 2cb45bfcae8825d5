"""bench/cpu_peers.py: what it refuses, what it makes of times, and that a library which dies or answers wrongly is
seen. What needs NumPy is skipped without it; none of the peers is needed.

Usage: cpu_peers_test.py [unittest options].
"""

import hashlib
import importlib.util
import math
import os
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import cpu_libraries  # noqa: E402
import cpu_oracle  # noqa: E402
import cpu_peers  # noqa: E402
from cpu_axes import Layer  # noqa: E402
from problem_lines import parse  # noqa: E402


def run(*args):
    return subprocess.run([sys.executable, "-B", str(BENCH / "cpu_peers.py"), *args], text=True, capture_output=True,
                          timeout=120)


def row(name, speedup, **times):
    return {"case": name, "problem": name, "gflop": 1.0, "speedup": speedup, "best_peer": "openvino",
            "providers": [{"name": peer, "time_us": time} for peer, time in times.items()]}


class Pretended(cpu_libraries.Library):
    def load(self):
        pass

    def versions(self):
        return {}


class Wrong(Pretended):
    def ways(self, problem, data):
        import numpy as np
        return {"onnxruntime": cpu_libraries.Way(lambda: None, lambda: np.ones((1, 3, 2, 2), np.float32))}


class Noted(Pretended):
    def ways(self, problem, data):
        return {"way": cpu_libraries.Way(lambda: None, lambda: data.x)}


class Dies(Pretended):
    def ways(self, problem, data):
        os._exit(7)


class Missing(Pretended):
    def load(self):
        raise ImportError("no such library")


class Command(unittest.TestCase):
    def refused(self, args, *needles):
        result = run(*args)
        with self.subTest(args=args):
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertNotIn("Traceback", result.stderr)
            for needle in needles:
                self.assertIn(needle, result.stderr)

    def test_bad_input(self):
        self.refused([], "no problem given")
        self.refused(["winograd9"], "winograd9")
        self.refused(["alexnet_conv1", "--threads", "0"], "--threads 0", "processors")
        self.refused(["alexnet_conv1", "--seconds", "nan"], "--seconds")
        if len(os.sched_getaffinity(0)) > 1:
            self.refused(["alexnet_conv1", "--threads", "2", "--clock", "thread"], "--threads 1")
        self.refused(["alexnet_conv1", "--batch", "0"], "a batch of 0")
        self.refused(["alexnet_conv1", "precision=tf32"], "precision=tf32")
        self.refused(["alexnet_conv1", "--libraries", "torch,jax"], "jax", "openvino")
        self.refused(["alexnet_conv1", "--resume"], "--json")
        self.refused(["alexnet_conv1", "--act", "swish"], "swish", "silu", "leaky_relu:N")
        self.refused(["alexnet_conv1", "--busy", "-1"], "--busy")
        self.refused(["alexnet_conv1", "--offset", "6"], "--offset", "multiple of 4")
        under_a_file = os.path.join(__file__, "out.json")  # root may make any folder, but none in a file
        self.refused(["alexnet_conv1", "--json", under_a_file], under_a_file)


class Summary(unittest.TestCase):
    def test_means_are_over_the_best_and_over_each(self):
        text = cpu_peers.summary([row("a", 2.0, convtune=10.0, openvino=20.0, onnxruntime=80.0),
                                  row("b", 0.5, convtune=10.0, openvino=5.0), row("c", None, openvino=7.0)])
        means = text.splitlines()[-2].split(" | ")
        self.assertEqual(means[1], "1.00")
        self.assertEqual(means[-4:-1], ["8.00", "1.00", "1.00"])  # onnxruntime, openvino, the best
        self.assertEqual(text.splitlines()[-1], "losses: b 0.50 (openvino)")

    def test_ways_in_fp32_have_columns_of_their_own(self):
        text = cpu_peers.summary([row("a", 2.0, convtune=10.0, openvino=80.0, **{"openvino f32": 20.0})])
        self.assertIn("| openvino f32 |", text.splitlines()[0])
        self.assertEqual(text.splitlines()[-2].split(" | ")[-3:-1], ["2.00", "2.00"])


    def test_the_better_layout_is_ours(self):
        text = cpu_peers.summary([row("a", 2.0, convtune=20.0, openvino=20.0, **{"convtune nhwc=1": 10.0})])
        self.assertIn("| convtune nhwc=1 |", text.splitlines()[0])
        self.assertEqual(text.splitlines()[-2].split(" | ")[-3:-1], ["2.00", "2.00"])


class Turns(unittest.TestCase):
    def test_the_threads_clock_leaves_out_what_it_waits_for(self):
        way = type("Way", (), {"run": staticmethod(lambda: time.sleep(0.02))})
        self.assertGreaterEqual(min(cpu_peers.take_turn(way, 0.01, "wall")), 20000)
        self.assertLess(min(cpu_peers.take_turn(way, 0.01, "thread")), 10000)

    def test_the_threads_clock_refuses_work_of_other_threads(self):
        def elsewhere():
            thread = threading.Thread(target=hashlib.sha256, args=(bytes(16 << 20),))
            thread.start()
            thread.join()

        way = cpu_libraries.Way(elsewhere, None)
        self.assertIn("other threads worked", cpu_peers.take_turn(way, 0.01, "thread"))
        self.assertGreater(min(cpu_peers.take_turn(way, 0.01, "wall")), 0)


@unittest.skipUnless(importlib.util.find_spec("numpy"), "NumPy is not here")
class Workers(unittest.TestCase):
    def setUp(self):
        self.problem = parse("g2mb2ic4ih9iw8oc6kh3kw2sh2sw1ph1pw0dh1dw0 act=relu")

    def measured(self, library):
        """A row of one library, in a process of its own."""
        worker = cpu_peers.Worker("onnxruntime", library, {"threads": 1}, {min(os.sched_getaffinity(0))})
        try:
            return cpu_peers.measure([worker], parse("mb1ic2ih4oc3kh3"), 0.01, cpu_peers.Busy(0, {0}))["providers"]
        finally:
            worker.end()

    def test_the_oracle_is_a_convolution(self):
        import numpy as np
        a, oracle, data = self.problem, cpu_oracle.Oracle(self.problem), cpu_oracle.make_data(self.problem)
        y = np.zeros((a.n, a.k, a.p, a.q))
        for n, k, p, q in np.ndindex(*y.shape):
            for c, r, s in np.ndindex(a.c // a.groups, a.r, a.s):
                h, w = p * a.stride_h - a.pad_top + r * a.dilation_h, q * a.stride_w - a.pad_left + s * a.dilation_w
                if 0 <= h < a.h and 0 <= w < a.w:
                    y[n, k, p, q] += float(data.x[n, k // 3 * 2 + c, h, w]) * float(data.w[k, c, r, s])
            y[n, k, p, q] += data.bias[k]
        y = np.maximum(y, 0)
        self.assertEqual(oracle.judge(y[oracle.at])[1], "")
        y[oracle.at[0][5], oracle.at[1][5], oracle.at[2][5], oracle.at[3][5]] += 1e-4
        self.assertIn("double precision says", oracle.judge(y[oracle.at])[1])

    def test_the_oracle_knows_transposed_rows(self):
        import numpy as np
        layer = Layer((1, 4, 5), (4, 3, 4), (1, 6, 12), 2, (2,), (1,), (1,), (0,), True, "none", False, False, "", "")
        self.assertEqual(layer.output_padding, (1,))
        oracle, data, y = cpu_oracle.Oracle(layer), cpu_oracle.make_data(layer), np.zeros((1, 6, 12))
        for c, k, tap, i in np.ndindex(4, 6, 4, 5):
            if c // 2 == k // 3 and 0 <= 2 * i + tap - 1 < 12:
                y[0, k, 2 * i + tap - 1] += float(data.x[0, c, i]) * float(data.w[c, k % 3, tap])
        self.assertTrue(np.allclose(oracle.values, y[oracle.at], atol=1e-12))
        self.assertEqual(layer.flops, 2 * 5 * 4 * 3 * 4)

    def test_the_oracle_knows_every_epilogue(self):
        import numpy as np
        line = "mb1ic2ih5oc3kh3"
        bare, residual = cpu_oracle.Oracle(parse(line)), cpu_oracle.Oracle(parse(line + " residual=1"))
        added = cpu_oracle.make_data(parse(line + " residual=1")).residual[bare.at]
        self.assertTrue(np.allclose(residual.values, bare.values + added, atol=1e-12))
        for act, formula in {"clip:-0.5:0.5": lambda v: min(max(v, -0.5), 0.5), "silu": lambda v: v / (1 + math.exp(-v)),
                             "gelu_erf": lambda v: v * (1 + math.erf(v / 2**0.5)) / 2,
                             "gelu_tanh": lambda v: v / (1 + math.exp(-1.5957691216057308 * (v + 0.044715 * v**3))),
                             "hardswish": lambda v: v * min(max(v + 3, 0), 6) / 6,
                             "leaky_relu:0.1": lambda v: max(v, 0.1 * v), "sigmoid": lambda v: 1 / (1 + math.exp(-v))}.items():
            with self.subTest(act=act):
                values = cpu_oracle.Oracle(parse(f"{line} act={act}")).values
                self.assertTrue(np.allclose(values, [formula(v) for v in bare.values], atol=1e-12))

    def test_busy_processes_count_while_it_lasts(self):
        busy = cpu_peers.Busy(1, {min(os.sched_getaffinity(0))})
        with busy:
            (process,) = busy.processes
            self.assertTrue(process.is_alive())
        self.assertFalse(process.is_alive())

    def test_bf16_is_put_beside_fp32_of_the_same_numbers(self):
        import numpy as np
        worker = cpu_peers.Worker("pretended", Noted, {"threads": 1}, {min(os.sched_getaffinity(0))})
        try:
            answer = worker.ask("prepare", parse("mb1ic2ih4oc3kh3 dtype=bf16"), ([0], [0], [0], [0]))
        finally:
            worker.end()
        self.assertEqual(set(answer), {"way", "way" + cpu_peers.F32})
        self.assertTrue(np.array_equal(answer["way"][0], answer["way" + cpu_peers.F32][0]))

    def test_a_wrong_answer_is_not_timed(self):
        (provider,) = self.measured(Wrong)
        self.assertIn("wrong: y[", provider["failure"])
        self.assertEqual(provider["n"], 0)

    def test_a_library_that_dies_is_named(self):
        (provider,) = self.measured(Dies)
        self.assertIn("ended with code 7", provider["failure"])

    def test_a_library_that_is_not_there_is_named(self):
        (provider,) = self.measured(Missing)
        self.assertIn("no such library", provider["failure"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
