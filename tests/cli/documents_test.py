"""Drives the real convtune command with documents that ask for the last tuning stage: twelve kernels of public kinds,
each with another form of list, launch or metrics, and nothing but the document to go by.

Usage: documents_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import ast
import json
import re
from pathlib import Path

from convtune_command import CliTest, main

SAMPLE = (Path(__file__).parent.parent / "refine" / "document.txt").read_text()
HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
MODEL = """

class ModelNew(nn.Module):
    def forward(self, *inputs):
        return run(*inputs)
"""
FIVE = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 40.0, "launch__grid_size": 1024,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 24.0,
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": 31.0, "lts__t_sector_hit_rate.pct": 55.0}


def document(code, metrics):
    """The sample with other code and metrics."""
    begin, end = SAMPLE.index("```python\n") + 10, SAMPLE.index("```\n\n[NCU")
    text = SAMPLE[:begin] + code + SAMPLE[end:]
    begin, end = text.index("METRICS]\n") + 9, text.index("**Task**")
    return text[:begin] + (metrics if isinstance(metrics, str) else json.dumps(metrics, indent=2)) + "\n\n" + text[end:]


def matmul_body(name="matmul"):
    return f"""@triton.jit
def {name}(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        acc += tl.dot(tl.load(a_ptr + rows[:, None] * stride_am + inner[None, :]),
                      tl.load(b_ptr + inner[:, None] * stride_bk + columns[None, :]))
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :], acc)


"""


def matmul_run(name="matmul", launch=""):
    return f"""def run(a, b):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta['BLOCK_M']), triton.cdiv(N, meta['BLOCK_N']))
    {name}[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0){launch})
    return c
""" + MODEL


def row_body(name, work, loop=True):
    """A kernel of one row a block."""
    head = f"""@triton.jit
def {name}(x_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
"""
    if not loop:
        return head + f"""    at = row * n_cols + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, {work})


"""
    return head + f"""    total = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * n_cols + start + tl.arange(0, BLOCK))
        total += tl.sum({work})
    tl.store(y_ptr + row, total + eps)


"""


def row_run(names, launch=", BLOCK=1024"):
    calls = "".join(f"    {name}[(x.shape[0],)](x, y, x.shape[1], 1e-5{launch})\n" for name in names)
    return f"""def run(x):
    y = torch.empty_like(x)
{calls}    return y
""" + MODEL


TILES = "triton.Config({'BLOCK_M': m, 'BLOCK_N': n, 'BLOCK_K': 32}, num_warps=4, num_stages=3)"
ROWS = "triton.Config({'BLOCK': 1024}, num_warps=4, num_stages=3)"


def tuned(configs, more=""):
    return f"@triton.autotune(configs={configs}, key=['n_cols']{more})\n"


def ncu_csv(kernel):
    lines = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    units = {"launch__grid_size": ""}
    lines += [f'"0","{kernel}","{name}","{units.get(name, "%")}","{value}"' for name, value in FIVE.items()]
    return "==PROF== Connected to process 7\n" + "\n".join(lines)


CASES = {  # name: (code, metrics, kernels that get a list, what the report says)
    "matmul, a function of the file": (
        HEAD + f"\n\ndef tiles():\n    return [{TILES} for m in (64, 128) for n in (64, 128)]\n\n\n"
        + "@triton.autotune(configs=tiles(), key=['M', 'N', 'K'])\n" + matmul_body() + matmul_run(),
        {"matmul": FIVE}, 1, "which of 4 configs was profiled is not known"),
    "softmax, launched with its own values": (
        HEAD + "\n\n" + row_body("softmax", "tl.exp(x)") + row_run(["softmax"], ", BLOCK=1024, num_warps=8, num_stages=2"),
        {"softmax": FIVE}, 1, "line "),
    "layer norm, one config": (
        HEAD + "\n\n" + tuned(f"[{ROWS}]") + row_body("layer_norm", "x * x") + row_run(["layer_norm"], ""),
        {"layer_norm": FIVE}, 1, "only config"),
    "rms norm, a comprehension": (
        HEAD + "\n\n" + tuned("[triton.Config({'BLOCK': 1024}, num_warps=w, num_stages=3) for w in (2, 4, 8)]")
        + row_body("rms_norm", "x * x") + row_run(["rms_norm"], ""),
        {"rms_norm": {**FIVE, "launch__block_size": 128}}, 1, "128 threads a block"),
    "cross entropy, a named list": (
        HEAD + f"\nCONFIGS = [{ROWS}, triton.Config({{'BLOCK': 2048}}, num_warps=8, num_stages=3)]\n\n\n"
        + tuned("CONFIGS") + row_body("cross_entropy", "tl.exp(x)") + row_run(["cross_entropy"], ""),
        {"cross_entropy": [FIVE, FIVE, FIVE]}, 1, "2 configs"),
    "sum reduction, filtered": (
        HEAD + f"\n\ndef fits(config):\n    return config.kwargs['BLOCK'] * config.num_warps < 8192\n\n\n"
        + tuned(f"list(filter(fits, [{ROWS}, triton.Config({{'BLOCK': 8192}}, num_warps=4)]))")
        + row_body("sum_reduction", "x") + row_run(["sum_reduction"], ""),
        {"sum_reduction": FIVE}, 1, "only config"),
    "gelu, a sum of lists, no loop": (
        HEAD + f"\nFEW = [{ROWS}]\n\n\n" + tuned("FEW + [triton.Config({'BLOCK': 512}, num_warps=2)]")
        + row_body("gelu", "x * tl.sigmoid(1.702 * x)", loop=False) + row_run(["gelu"], ""),
        {"gelu": FIVE}, 1, "has no loop"),
    "attention, a condition and a pruning": (
        HEAD + f"\n\ndef is_hip():\n    return triton.runtime.driver.active.get_current_target().backend == 'hip'\n\n\n"
        + f"def prune(configs, named_args, **kwargs):\n    return configs\n\n\n"
        + tuned(f"[] if is_hip() else [{ROWS}]", ", prune_configs_by={'early_config_prune': prune}")
        + row_body("attention", "tl.exp(x)") + row_run(["attention"], ""),
        {"attention": FIVE}, 1, "prune_configs_by stays"),
    "hinge loss, two kernels and an array of launches": (
        HEAD + "\n\n" + tuned(f"[{ROWS}]") + row_body("hinge_first", "tl.maximum(x, 0.0)") + tuned(f"[{ROWS}]")
        + row_body("hinge_second", "x") + row_run(["hinge_first", "hinge_second"], ""),
        [{"kernel": "hinge_first", **FIVE}, {"kernel": "hinge_second", **FIVE, "launch__grid_size": 1}], 2,
        "112 of 128" if False else "127 of 128"),
    "quantised matmul, heuristics and stars": (
        HEAD + f"\nSMALL = [{TILES.replace('m,', '64,').replace('n,', '64,')}]\n\n\n"
        + "@triton.autotune(configs=[*SMALL], key=['M'])\n@triton.heuristics({})\n" + matmul_body("quantised")
        + matmul_run("quantised"),
        {"quantised": FIVE}, 1, "only config"),
    "batch norm, tuned by a call": (
        HEAD + "\n\n" + row_body("batch_norm", "x * x")
        + f"tuned_norm = triton.autotune(configs=[{ROWS}], key=['n_cols'])(batch_norm)\n\n\n"
        + row_run(["tuned_norm"], ""),
        {"batch_norm": FIVE}, 1, "only config"),
    "transposed matmul, ncu's table": (
        HEAD + f"\n\n@triton.autotune([{TILES.replace('m,', '128,').replace('n,', '64,')}], key=['M'])\n"
        + matmul_body("transposed") + matmul_run("transposed"),
        ncu_csv("transposed"), 1, "only config"),
}


class Documents(CliTest):
    def refined(self, name, *more):
        code, metrics, _, _ = CASES[name]
        file = self.folder / "document.txt"
        file.write_text(document(code, metrics))
        return self.ok("refine", "--document", str(file), "--no-compile", "--no-import", *more)

    def test_an_original_that_is_not_known_is_not_guessed(self):
        for name in ("matmul, a function of the file", "cross entropy, a named list"):
            with self.subTest(name):
                result = self.refined(name)
                first = result.stderr.splitlines()[0]
                self.assertRegex(first, r"^keep: which config of '\w+' was profiled is not known")
                self.assertIn("--original", result.stderr)
                self.assertTrue(result.stdout.startswith("# keep: which config of "), result.stdout[:100])
                lists = [ast.unparse(node) for node in ast.walk(ast.parse(CASES[name][0])) if isinstance(node, ast.Call)
                         and getattr(node.func, "attr", "") in ("autotune", "Config")]
                self.assertEqual(lists, [ast.unparse(node) for node in ast.walk(ast.parse(result.stdout))
                                         if isinstance(node, ast.Call)
                                         and getattr(node.func, "attr", "") in ("autotune", "Config")])

    def test_each_sentence_of_the_stage_is_read_or_said_to_be_left_out(self):
        result = self.refined("layer norm, one config")
        self.assertIn("the stage says: - Change num_stages by ±1 only: R2: num_stages by 1 at most", result.stderr)
        self.assertNotIn("not taken into account", result.stderr)
        file = self.folder / "document.txt"
        file.write_text(file.read_text().replace("- Change num_stages by ±1 only", "- Change num_stages by ±1 only\n"
                                                 "- Prefer an even number of moons"))
        result = self.ok("refine", "--document", str(file), "--no-compile", "--no-import")
        self.assertIn("not taken into account: - Prefer an even number of moons", result.stderr)

    def test_a_heading_with_a_stray_letter(self):
        result = self.refined("layer norm, one config")
        file = self.folder / "document.txt"
        file.write_text(file.read_text().replace("[OPTIMIZATION STAGE]", "[OPTIMIZATION STAGE]f"))
        again = self.ok("refine", "--document", str(file), "--no-compile", "--no-import")
        self.assertEqual(again.stdout, result.stdout)

    def test_other_stages_change_no_list(self):
        self.refined("layer norm, one config")
        file = self.folder / "document.txt"
        text = file.read_text()
        for focus, says in (("Focus: Grid layout & parallelism.", ["the stage is about the grid", "verdict on the grid, by"]),
                            ("Focus: BLOCK_M/N/K selection.", ["the stage is about block sizes", "verdict on the tiles"])):
            file.write_text(text.replace("Focus: Final micro-tuning.", focus))
            result = self.ok("refine", "--document", str(file), "--no-compile", "--no-import")
            for words in [*says, "keep: nothing is changed"]:
                self.assertIn(words, result.stderr)
            self.assertEqual(self.lists(result.stdout), self.lists(CASES["layer norm, one config"][0]))

    def test_tiles_are_ranked_by_their_grids(self):
        """For a matrix of 4000 rows and 100 columns tiles of 128 columns mask most."""
        code = CASES["matmul, a function of the file"][0]
        file = self.folder / "document.txt"
        file.write_text(document(code, {"matmul": FIVE}).replace("Focus: Final micro-tuning.", "Focus: BLOCK_M/N/K selection."))
        let = ["--let", "M=4000", "--let", "N=100", "--let", "K=64", "--let", "a=[4000, 64]", "--let", "b=[64, 100]"]
        result = self.ok("refine", "--document", str(file), "--no-compile", "--no-import", *let)
        ranked = [line for line in result.stderr.splitlines() if re.match(r"tile \d:", line)]
        self.assertEqual(len(ranked), 4)
        self.assertIn("none of them measured", result.stderr)
        self.assertTrue(all("blocks" in line for line in ranked), ranked)

    def test_other_languages_are_named(self):
        codes = {"TileLang": "import tilelang\n@tilelang.autotune(configs=[dict(M=64)])\n@tilelang.jit\ndef f(M): return M\n",
                 "Helion": "import helion\n@helion.kernel()\ndef f(x): return x\n",
                 "CUDA C++ in a text": "from torch.utils.cpp_extension import load_inline\nm = load_inline(name='x')\n",
                 "but CUDA C++": "#include <cuda.h>\n__global__ void f() {}\n"}
        for says, code in codes.items():
            with self.subTest(says):
                file = self.folder / "document.txt"
                file.write_text(document(code, {"f": FIVE}))
                self.refused(["refine", "--document", str(file)], 2, says)

    def test_gluon_and_tlx_keep_their_warps(self):
        code = CASES["layer norm, one config"][0]
        helper = "@triton.jit\ndef copied(x):\n    return tlx.local_alloc(x)\n\n\n@triton.autotune"
        for says, other in (("it is a Gluon kernel", code.replace("@triton.jit", "@gluon.jit")),
                            ("it is written in TLX", code.replace("    total = 0.0\n", "    tlx.thread_id(0)\n    total = 0.0\n")),
                            ("it is written in TLX", code.replace("@triton.autotune", helper).replace(
                                "    total = 0.0\n", "    total = copied(0.0)\n"))):
            with self.subTest(says):
                file = self.folder / "document.txt"
                file.write_text(document(other, {"layer_norm": FIVE}))
                result = self.ok("refine", "--document", str(file), "--no-compile", "--no-import")
                self.assertIn(says, result.stderr)
                self.assertEqual(self.lists(result.stdout), self.lists(other))

    def lists(self, text):
        found = []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "autotune":
                value = next((word.value for word in node.keywords if word.arg == "configs"), None) or node.args[0]
                found.append([(ast.unparse(item.args[0]), *[word.value.value for word in item.keywords])
                              for item in value.elts])
        return found

    def test_each_works_by_itself(self):
        self.assertEqual(len(CASES), 12)
        for name, (code, _, kernels, says) in CASES.items():
            with self.subTest(name):
                result = self.refined(name, "--original", "first")
                self.assertIn(says, result.stderr)
                for rule in range(1, 7):
                    self.assertEqual(len(re.findall(rf"^R{rule}: ", result.stderr, re.MULTILINE)), kernels)
                lists = self.lists(result.stdout)
                self.assertEqual(len(lists), kernels)
                for configs in lists:
                    self.assertTrue(3 <= len(configs) <= 6, configs)
                    self.assertEqual(len(set(configs)), len(configs))
                    for blocks, warps, stages in configs:
                        self.assertEqual(blocks, configs[0][0])
                        self.assertTrue(warps in (2, 4, 8, 16) and stages in (2, 3, 4), configs)
                        self.assertLessEqual(abs(stages - configs[0][2]), 1)
                body = [node for node in ast.parse(result.stdout).body]
                self.assertEqual([ast.unparse(node) for node in body[:4]], HEAD.splitlines())
                self.assertEqual(body[-1].name, "ModelNew")

    def test_where_the_values_stood_at_the_launch(self):
        text = self.refined("softmax, launched with its own values").stdout
        self.assertIn("triton.Config({}, num_warps=8, num_stages=2)", text)
        self.assertIn("softmax[(x.shape[0],)](x, y, x.shape[1], 1e-5, BLOCK=1024)", text)
        self.assertIn("key=['n_cols']", text)


if __name__ == "__main__":
    main()
