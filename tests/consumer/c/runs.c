/* From a plan to an output, with all that is refused on the way. */
#include <stdlib.h>

#include "checks.h"

static void null_pointers(const convtune_convolution* conv) {
  convtune_problem problem = parsed("mb1ic3ih8oc4kh3");
  convtune_convolution* planned = NULL;
  convtune_text text = {NULL, 0};
  int64_t size = 0;
  float number = 0;
  double bytes = 0;
  REFUSED("problem is null", convtune_problem_parse("mb1ic3ih8oc4kh3", NULL));
  REFUSED("problem is null", convtune_problem_text(NULL, &text));
  REFUSED("text is null", convtune_problem_text(&problem, NULL));
  REFUSED("problem is null", convtune_output_size(NULL, &size, &size));
  REFUSED("p is null", convtune_output_size(&problem, NULL, &size));
  REFUSED("q is null", convtune_output_size(&problem, &size, NULL));
  REFUSED("json is null", convtune_devices(NULL));
  REFUSED("problem is null", convtune_problem_bytes(NULL, &bytes));
  REFUSED("bytes is null", convtune_problem_bytes(&problem, NULL));
  REFUSED("problem is null", convtune_output_size_3d(NULL, &size, &size, &size));
  REFUSED("z is null", convtune_output_size_3d(&problem, NULL, &size, &size));
  REFUSED("q is null", convtune_output_size_3d(&problem, &size, &size, NULL));
  REFUSED("tensors is null", convtune_run_tensors(conv, NULL, &number, NULL));
  REFUSED("convolution is null", convtune_run_tensors(NULL, NULL, &number, NULL));
  REFUSED("problem is null", convtune_plan(NULL, "cpu", NULL, NULL, &planned));
  REFUSED("convolution is null", convtune_plan(&problem, "cpu", NULL, NULL, NULL));
  REFUSED("convolution is null", convtune_plan_json(NULL, &text));
  REFUSED("json is null", convtune_plan_json(conv, NULL));
  REFUSED("convolution is null", convtune_explain(NULL, &text));
  REFUSED("text is null", convtune_explain(conv, NULL));
  REFUSED("convolution is null", convtune_pack(NULL, &number, &number, &number, NULL));
  REFUSED("convolution is null", convtune_run(NULL, &number, &number, &number, NULL));
  REFUSED("problem is null", convtune_tune(NULL, "cpu", NULL, &text));
  REFUSED("json is null", convtune_tune(&problem, "cpu", NULL, NULL));
  REFUSED("problem is null", convtune_bench(NULL, "cpu", NULL, &text));
  REFUSED("json is null", convtune_bench(&problem, "cpu", NULL, NULL));
  CHECK(convtune_packed_bytes(NULL) == 0);
  convtune_convolution_free(NULL);
  CHECK(!text.data && !planned);
}

static void plans_that_cannot_be(void) {
  const convtune_problem problem = parsed("mb1ic3ih8oc4kh3"), huge = parsed("mb1000000ic512ih512oc512kh1");
  convtune_problem half = problem;
  convtune_bench_options bench = CONVTUNE_BENCH_OPTIONS_INIT;
  convtune_convolution* conv = NULL;
  convtune_text text = {NULL, 0};
  SAYS(CONVTUNE_NO_DEVICE, "cuda:99", convtune_plan(&problem, "cuda:99", NULL, NULL, &conv));
  REFUSED("tpu", convtune_plan(&problem, "tpu", NULL, NULL, &conv));
  REFUSED("fourier", convtune_plan(&problem, "cpu", "fourier", NULL, &conv));
  REFUSED("algorithm is null", convtune_plan(&problem, "cpu", NULL, "vectors=4", &conv));
  REFUSED("rows=1", convtune_plan(&problem, "cpu", "direct", "rows=1", &conv));
  REFUSED("words", convtune_plan(&problem, "cpu", "direct", "words", &conv));
  half.dtype = CONVTUNE_F16;
  SAYS(CONVTUNE_UNSUPPORTED, "f16", convtune_plan(&half, "cpu", "direct", NULL, &conv));
  if (!kSanitized) SAYS(CONVTUNE_OUT_OF_MEMORY, "memory", convtune_bench(&huge, "cpu", NULL, &text));
  bench.seconds = 0;
  REFUSED("seconds", convtune_bench(&problem, "cpu", &bench, &text));
  REFUSED("threads", convtune_set_cpu_threads(0));
  CHECK(!conv && !text.data);
}

/* 4 filters of 3x3x3 halves over an input of ones, and a bias of 1: 27 / 2 + 1 in the middle. */
static void planned_packed_run(const char* algorithm) {
  enum { kInput = 3 * 8 * 8, kWeights = 4 * 3 * 3 * 3, kOutput = 4 * 8 * 8 };
  const convtune_problem problem = parsed("mb1ic3ih8oc4kh3ph1");
  const convtune_problem none = parsed("mb0ic3ih8oc4kh3ph1");
  float x[kInput], w[kWeights], bias[4] = {1, 1, 1, 1}, y[kOutput];
  convtune_convolution* conv = NULL;
  convtune_text text = {NULL, 0};
  char* block;
  char* packed;
  size_t bytes, i;
  for (i = 0; i < kInput; ++i) x[i] = 1;
  for (i = 0; i < kWeights; ++i) w[i] = 0.5f;

  CHECK(convtune_plan(&problem, "cpu", algorithm, NULL, &conv) == CONVTUNE_OK);
  if (!conv) return;
  CHECK(convtune_plan_json(conv, &text) == CONVTUNE_OK);
  CHECK(holds(&text, "\"device\":\"cpu\""));
  CHECK(convtune_explain(conv, &text) == CONVTUNE_OK);
  CHECK(holds(&text, "stood by"));

  bytes = convtune_packed_bytes(conv);
  CHECK(bytes > 0);
  block = malloc(bytes + 64);
  packed = block + (64 - (size_t)block % 64) % 64;
  CHECK(convtune_pack(conv, w, bias, packed, NULL) == CONVTUNE_OK);
  CHECK(convtune_run(conv, x, packed, y, NULL) == CONVTUNE_OK);
  CHECK(y[0] == 7 && y[3 * 64 + 9] == 14.5f); /* 12 products in a corner */

  REFUSED("w is null", convtune_pack(conv, NULL, bias, packed, NULL));
  REFUSED("bias is null", convtune_pack(conv, w, NULL, packed, NULL));
  REFUSED("packed is null", convtune_pack(conv, w, bias, NULL, NULL));
  REFUSED("not aligned", convtune_pack(conv, w, bias, packed + 4, NULL));
  REFUSED("x is null", convtune_run(conv, NULL, packed, y, NULL));
  REFUSED("y is null", convtune_run(conv, x, packed, NULL, NULL));
  REFUSED("packed is null", convtune_run(conv, x, NULL, y, NULL));
  REFUSED("not aligned", convtune_run(conv, x, packed + 4, y, NULL));
  null_pointers(conv);
  convtune_convolution_free(conv);
  free(block);

  CHECK(convtune_plan(&none, "cpu", NULL, NULL, &conv) == CONVTUNE_OK);
  CHECK(convtune_run(conv, NULL, NULL, NULL, NULL) == CONVTUNE_OK);
  convtune_convolution_free(conv);
}

/* One channel of 1x3, a filter of 1x2: y = (1 2 3) * (10 20) and both its gradients, by hand. */
static void every_direction(void) {
  const float x[3] = {1, 2, 3}, w[2] = {10, 20}, bias[1] = {100}, residual[2] = {-1000, 1}, dy[2] = {1, 2};
  float y[2] = {0}, dx[3] = {0}, dw[2] = {0}, dbias[1] = {0};
  char block[4096];
  char* const packed = block + (64 - (size_t)block % 64) % 64;
  convtune_tensors tensors = CONVTUNE_TENSORS_INIT;
  convtune_problem problem = parsed("mb1ic1ih1iw3oc1kh1kw2 act=clip:0:175 residual=1");
  convtune_convolution* conv = NULL;
  CHECK(convtune_plan(&problem, "cpu", NULL, NULL, &conv) == CONVTUNE_OK &&
        convtune_packed_bytes(conv) < 4032);
  CHECK(convtune_pack(conv, w, bias, packed, NULL) == CONVTUNE_OK);
  REFUSED("residual is null", convtune_run(conv, x, packed, y, NULL));
  tensors.x = x;
  tensors.y = y;
  REFUSED("residual is null", convtune_run_tensors(conv, &tensors, packed, NULL));
  tensors.residual = residual;
  REFUSED("packed is null", convtune_run_tensors(conv, &tensors, NULL, NULL));
  CHECK(convtune_run_tensors(conv, &tensors, packed, NULL) == CONVTUNE_OK);
  CHECK(y[0] == 0 && y[1] == 175); /* 150 - 1000 and 180 + 1 */
  y[0] = -1, y[1] = -2;
  tensors.residual = y; /* in its place */
  CHECK(convtune_run_tensors(conv, &tensors, packed, NULL) == CONVTUNE_OK && y[0] == 149 && y[1] == 175);
  tensors.struct_size = offsetof(convtune_tensors, dbias); /* an older caller's */
  CHECK(convtune_run_tensors(conv, &tensors, packed, NULL) == CONVTUNE_OK);
  tensors.struct_size = 3;
  REFUSED("tensors: struct_size", convtune_run_tensors(conv, &tensors, packed, NULL));
  convtune_convolution_free(conv);

  tensors = (convtune_tensors)CONVTUNE_TENSORS_INIT;
  problem = parsed("mb1ic1ih1iw3oc1kh1kw2 dir=bwd_d");
  CHECK(convtune_plan(&problem, "cpu", NULL, NULL, &conv) == CONVTUNE_OK);
  CHECK(convtune_pack(conv, w, NULL, packed, NULL) == CONVTUNE_OK);
  tensors.dy = dy;
  REFUSED("dx is null", convtune_run_tensors(conv, &tensors, packed, NULL));
  tensors.dx = dx;
  CHECK(convtune_run_tensors(conv, &tensors, packed, NULL) == CONVTUNE_OK);
  CHECK(dx[0] == 10 && dx[1] == 40 && dx[2] == 40);
  REFUSED("dy is null", convtune_run(conv, x, packed, y, NULL));
  convtune_convolution_free(conv);

  problem = parsed("mb1ic1ih1iw3oc1kh1kw2 dir=bwd_w");
  CHECK(convtune_plan(&problem, "cpu", NULL, NULL, &conv) == CONVTUNE_OK);
  REFUSED("reads no weights", convtune_pack(conv, w, bias, packed, NULL));
  tensors.x = x;
  tensors.dw = dw;
  REFUSED("dbias is null", convtune_run_tensors(conv, &tensors, NULL, NULL));
  tensors.dbias = dbias;
  CHECK(convtune_run_tensors(conv, &tensors, NULL, NULL) == CONVTUNE_OK);
  CHECK(dw[0] == 5 && dw[1] == 8 && dbias[0] == 3);
  tensors.dw_last = 1; /* no CPU's */
  REFUSED("stores dw as", convtune_run_tensors(conv, &tensors, NULL, NULL));
  tensors.dw_last = 2;
  REFUSED("dw_last is 2", convtune_run_tensors(conv, &tensors, NULL, NULL));
  tensors.dw_last = 0, tensors.reserved = 1;
  REFUSED("reserved is 1", convtune_run_tensors(conv, &tensors, NULL, NULL));
  tensors.reserved = 0;
  convtune_convolution_free(conv);

  problem = parsed("mb0ic1ih1iw3oc1kh1kw2 dir=bwd_w"); /* for no images the gradient is 0 */
  CHECK(convtune_plan(&problem, "cpu", NULL, NULL, &conv) == CONVTUNE_OK);
  tensors.x = tensors.dy = NULL;
  CHECK(convtune_run_tensors(conv, &tensors, NULL, NULL) == CONVTUNE_OK);
  CHECK(dw[0] == 0 && dw[1] == 0 && dbias[0] == 0);
  convtune_convolution_free(conv);
}

/* One after the other, on the caller's thread: as right as any. */
static int executed = 0;
static void execute(void* context, int32_t tasks, convtune_task task, void* task_context) {
  int32_t i;
  ++*(int*)context;
  for (i = 0; i < tasks; ++i) task(task_context, i);
}

static void on_an_executor(void) {
  convtune_cpu_executor executor = CONVTUNE_CPU_EXECUTOR_INIT;
  convtune_text text = {NULL, 0};
  REFUSED("parallel_for", convtune_set_cpu_executor(&executor));
  executor.parallel_for = execute, executor.context = &executed, executor.concurrency = 0;
  REFUSED("concurrency", convtune_set_cpu_executor(&executor));
  executor.concurrency = 3;
  CHECK(convtune_set_cpu_executor(&executor) == CONVTUNE_OK);
  executor.context = NULL; /* it was copied */
  CHECK(convtune_devices(&text) == CONVTUNE_OK);
  CHECK(holds(&text, "\"units\":3"));
  planned_packed_run("reference");
  CHECK(executed > 0);
  CHECK(convtune_set_cpu_executor(NULL) == CONVTUNE_OK);
  executed = 0;
  planned_packed_run("reference");
  CHECK(executed == 0);
  CHECK(convtune_share_openmp_threads(1) == CONVTUNE_OK);
  planned_packed_run("reference");
  CHECK(convtune_share_openmp_threads(0) == CONVTUNE_OK);
  CHECK(convtune_set_gpu_share(0.5) == CONVTUNE_OK);
  planned_packed_run("reference");
  CHECK(convtune_set_gpu_share(1) == CONVTUNE_OK);
  CHECK(convtune_set_gpu_share(0) == CONVTUNE_INVALID_ARGUMENT);
  CHECK(convtune_set_gpu_share(1.5) == CONVTUNE_INVALID_ARGUMENT);
  CHECK(convtune_set_cpu_threads(2) == CONVTUNE_OK);
}

/* Pairs, which a CPU has none of. */
static void pairs_without_a_gpu(void) {
  convtune_pair_problem problem = CONVTUNE_PAIR_PROBLEM_INIT;
  convtune_pair_weights weights = CONVTUNE_PAIR_WEIGHTS_INIT;
  convtune_pair* pair = NULL;
  convtune_text text = {NULL, 0};
  SAYS(CONVTUNE_UNSUPPORTED, "compute capability 9.0", convtune_pair_plan(&problem, "cpu", NULL, &pair));
  problem.first_taps = 2;
  REFUSED("odd taps", convtune_pair_plan(&problem, "cpu", NULL, &pair));
  problem.snake = 3;
  REFUSED("snake is 3", convtune_pair_plan(&problem, "cpu", NULL, &pair));
  problem.snake = CONVTUNE_SNAKE_AFTER, problem.first_taps = 3;
  REFUSED("pairs with Snakes", convtune_pair_plan(&problem, "cpu", NULL, &pair));
  REFUSED("pair is null", convtune_pair_plan(&problem, "cpu", NULL, NULL));
  REFUSED("pair is null", convtune_pair_json(pair, &text));
  REFUSED("pair is null", convtune_pair_pack(pair, &weights, NULL, NULL));
  REFUSED("pair is null", convtune_pair_run(pair, NULL, NULL, NULL, NULL));
  CHECK(convtune_pair_packed_bytes(pair) == 0);
  convtune_pair_free(pair);
}

void runs(void) {
  pairs_without_a_gpu();
  plans_that_cannot_be();
  on_an_executor();
  planned_packed_run(NULL);
  planned_packed_run("reference");
  every_direction();
}
