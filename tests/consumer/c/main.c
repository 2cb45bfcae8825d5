/* A stranger's program in C: a convolution from its text to its output, a search that is stopped, and every
 * way in which the C face says no. */
#include <convtune/c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

/* The sanitizers' operator new ends the process where there is no memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kSanitized = 1 };
#else
enum { kSanitized = 0 };
#endif

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      ++failures;                                                               \
      printf("line %d: %s; %s\n", __LINE__, #condition, convtune_error_text()); \
    }                                                                           \
  } while (0)

/* The call returns `status`, and the text of this thread then holds `words`. */
#define SAYS(status, words, call)                                                                     \
  do {                                                                                                \
    const convtune_status got = (call);                                                               \
    if (got != (status) || !strstr(convtune_error_text(), (words))) {                                 \
      ++failures;                                                                                     \
      printf("line %d: %s is %d: %s; expected %d: %s\n", __LINE__, #call, got, convtune_error_text(), \
             status, words);                                                                          \
    }                                                                                                 \
  } while (0)
#define REFUSED(words, call) SAYS(CONVTUNE_INVALID_ARGUMENT, words, call)

static convtune_problem parsed(const char* text) {
  convtune_problem problem = CONVTUNE_PROBLEM_INIT;
  CHECK(convtune_problem_parse(text, &problem) == CONVTUNE_OK);
  return problem;
}

/* All of it is on one line: the text holds `words`, and is given back. */
static int holds(convtune_text* text, const char* words) {
  const int found = text->data && strlen(text->data) == text->size && strstr(text->data, words);
  if (!found) printf("'%s' is not in %s\n", words, text->data ? text->data : "nothing");
  convtune_text_free(text);
  return found && !text->data && text->size == 0;
}

static void problem_of_every_field(void) {
  const char* line =
      "mb1ic4id6ih8iw9oc6kd2kh3kw3sd2pd1ph1dd1 layout=nhwc dtype=bf16:bf16:f32 act=clip:-1:6 residual=1 "
      "rounding=eager pad_back=3";
  convtune_problem problem = parsed(line), again = CONVTUNE_PROBLEM_INIT;
  convtune_text text = {NULL, 0};
  int64_t z = 0, p = 0, q = 0;
  CHECK(problem.d == 6 && problem.t == 2 && problem.stride_d == 2 && problem.dilation_d == 2);
  CHECK(problem.pad_front == 1 && problem.pad_back == 3 && problem.residual == 1);
  CHECK(problem.dtype == CONVTUNE_BF16 && problem.w_dtype == 0 && problem.y_dtype == 1 + CONVTUNE_F32);
  CHECK(problem.bias_dtype == 0 && problem.rounding == CONVTUNE_ROUND_EAGERLY);
  CHECK(problem.activation == CONVTUNE_CLIP && problem.alpha == -1 && problem.beta == 6);
  CHECK(problem.direction == CONVTUNE_FORWARD);
  CHECK(convtune_output_size_3d(&problem, &z, &p, &q) == CONVTUNE_OK && z == 4 && p == 8 && q == 7);
  CHECK(convtune_output_size(&problem, &p, &q) == CONVTUNE_OK && p == 8 && q == 7);
  CHECK(convtune_problem_text(&problem, &text) == CONVTUNE_OK && strcmp(text.data, line) == 0);
  CHECK(convtune_problem_parse(text.data, &again) == CONVTUNE_OK);
  CHECK(memcmp(&problem, &again, sizeof problem) == 0);
  convtune_text_free(&text);
  /* A type that is said though it is x's, and a depth of 1 that is said, are the same problem. */
  problem = parsed("mb1ic4ih8oc6kh3");
  CHECK(problem.d == 0 && problem.t == 0 && problem.stride_d == 0 && problem.dilation_d == 0);
  problem.d = problem.t = problem.stride_d = problem.dilation_d = 1;
  problem.w_dtype = problem.y_dtype = problem.bias_dtype = 1 + CONVTUNE_F32;
  CHECK(convtune_problem_text(&problem, &text) == CONVTUNE_OK);
  CHECK(holds(&text, "mb1ic4ih8oc6kh3"));
  CHECK(convtune_output_size_3d(&problem, &z, &p, &q) == CONVTUNE_OK && z == 1 && p == 6 && q == 6);
  problem = parsed("mb1ic4ih8oc6kh3 dir=bwd_w");
  CHECK(problem.direction == CONVTUNE_BACKWARD_WEIGHTS && problem.bias == 1);
}

static void texts_and_sizes(void) {
  convtune_problem problem = parsed("alexnet_conv1"), again = CONVTUNE_PROBLEM_INIT;
  convtune_text text = {NULL, 0};
  int64_t p = 0, q = 0;
  double bytes = 0;
  CHECK(convtune_c_version() == CONVTUNE_C_VERSION);
  CHECK(strchr(convtune_version(), '.'));
  CHECK(problem.c == 3 && problem.k == 96 && problem.r == 11 && problem.stride_w == 4 && problem.bias == 1);
  CHECK(convtune_output_size(&problem, &p, &q) == CONVTUNE_OK && p == 55 && q == 55);
  CHECK(convtune_problem_bytes(&problem, &bytes) == CONVTUNE_OK && bytes == 451650048);
  problem = parsed("mb1g2ic4ih8iw9oc6kh3sh2ph1 precision=tf32 layout=nhwc act=relu bias=0 pad_right=3");
  CHECK(problem.groups == 2 && problem.w == 9 && problem.pad_right == 3 && problem.bias == 0);
  CHECK(problem.precision == CONVTUNE_TF32 && problem.layout == CONVTUNE_NHWC);
  CHECK(problem.activation == CONVTUNE_RELU && problem.dtype == CONVTUNE_F32);
  CHECK(convtune_problem_text(&problem, &text) == CONVTUNE_OK);
  CHECK(convtune_problem_parse(text.data, &again) == CONVTUNE_OK);
  CHECK(memcmp(&problem, &again, sizeof problem) == 0);
  CHECK(holds(&text, "g2mb1ic4ih8iw9oc6"));
  problem_of_every_field();
  convtune_text_free(&text);
  convtune_text_free(NULL);
  CHECK(convtune_devices(&text) == CONVTUNE_OK);
  CHECK(holds(&text, "{\"device\":\"cpu\",\"name\":"));
}

/* Structs of other versions: shorter, longer, and not of any. */
static void sized_structs(void) {
  const size_t without_padding = offsetof(convtune_problem, pad_top);
  const size_t of_face_2 = offsetof(convtune_problem, d);
  struct {
    convtune_problem problem;
    int64_t later[2];
  } newer = {CONVTUNE_PROBLEM_INIT, {0, 0}};
  convtune_problem older = CONVTUNE_PROBLEM_INIT;
  convtune_text text = {NULL, 0};
  const size_t garbage[] = {0, 7, 8, 17, sizeof(convtune_problem) + 1, 1u << 20, (size_t)-8};
  size_t i;

  older.struct_size = without_padding;
  older.pad_top = -5; /* not there, as far as struct_size says */
  older.bias = 77;
  CHECK(convtune_problem_parse("mb1ic3ih8oc4kh3", &older) == CONVTUNE_OK);
  CHECK(older.struct_size == without_padding && older.c == 3 && older.pad_top == -5 && older.bias == 77);
  CHECK(convtune_problem_text(&older, &text) == CONVTUNE_OK);
  CHECK(text.data && strcmp(text.data, "mb1ic3ih8oc4kh3") == 0);
  convtune_text_free(&text);
  REFUSED("lacks", convtune_problem_parse("mb1ic3ih8oc4kh3ph1", &older));

  /* As a caller of C face 2 has it: it knows no depth, and reads none. */
  older = (convtune_problem)CONVTUNE_PROBLEM_INIT;
  older.struct_size = of_face_2;
  older.d = -7;
  older.activation = CONVTUNE_SILU;
  CHECK(convtune_problem_text(&older, &text) == CONVTUNE_OK);
  CHECK(holds(&text, "act=silu"));
  CHECK(convtune_problem_parse("mb1ic3ih8oc4kh3ph1 dtype=f16 act=relu", &older) == CONVTUNE_OK);
  CHECK(older.struct_size == of_face_2 && older.pad_right == 1 && older.dtype == CONVTUNE_F16 &&
        older.d == -7);
  REFUSED("a struct of 160 bytes lacks", convtune_problem_parse("mb1ic3id8oc4kd3", &older));
  REFUSED("lacks", convtune_problem_parse("mb1ic3ih8oc4kh3 dir=bwd_w", &older));
  REFUSED("lacks", convtune_problem_parse("mb1ic3ih8oc4kh3 act=clip:0:6", &older));
  REFUSED("lacks", convtune_problem_parse("mb1ic3ih8oc4kh3 dtype=f16:f16:f32", &older));

  newer.problem.struct_size = sizeof newer;
  CHECK(convtune_problem_parse("mb1ic3ih8oc4kh3ph1", &newer.problem) == CONVTUNE_OK);
  CHECK(newer.problem.struct_size == sizeof newer && newer.problem.pad_right == 1);
  CHECK(convtune_problem_text(&newer.problem, &text) == CONVTUNE_OK);
  convtune_text_free(&text);
  newer.later[1] = 1;
  REFUSED("does not know", convtune_problem_text(&newer.problem, &text));
  CHECK(!text.data);

  for (i = 0; i < sizeof garbage / sizeof *garbage; ++i) {
    convtune_tune_options options = CONVTUNE_TUNE_OPTIONS_INIT;
    convtune_problem problem = parsed("mb1ic3ih8oc4kh3");
    options.struct_size = garbage[i];
    REFUSED("options: struct_size", convtune_tune(&problem, "cpu", &options, &text));
    problem.struct_size = garbage[i];
    REFUSED("problem: struct_size", convtune_problem_text(&problem, &text));
    REFUSED("problem: struct_size", convtune_problem_parse("mb1ic3ih8oc4kh3", &problem));
  }
}

static void fields_out_of_range(void) {
  const convtune_problem good = parsed("mb1ic4ih8oc4kh3");
  convtune_problem bad;
  convtune_convolution* conv = NULL;
#define WITH(field, value, words) \
  bad = good;                     \
  bad.field = (value);            \
  REFUSED(words, convtune_plan(&bad, "cpu", NULL, NULL, &conv))
  WITH(dtype, 3, "dtype is 3");
  WITH(dtype, -1, "dtype is -1");
  WITH(layout, 2, "layout is 2");
  WITH(precision, 5, "precision is 5");
  WITH(activation, 9, "activation is 9");
  WITH(bias, 2, "bias is 2");
  WITH(reserved, 9, "reserved is 9");
  WITH(groups, 3, "groups");
  WITH(h, 0, "h ");
  WITH(stride_w, 0, "stride");
  WITH(dilation_h, INT64_MAX, "dilation");
  WITH(pad_left, -1, "pad");
  WITH(r, 9, "");
  WITH(d, -1, "d (id) is -1");
  WITH(t, 2, "the output has no depth");
  WITH(stride_d, 2, "there is no depth");
  WITH(pad_front, -1, "pad_front");
  WITH(w_dtype, 4, "w_dtype - 1 is 3");
  WITH(y_dtype, -1, "y_dtype - 1 is -2");
  WITH(bias_dtype, 9, "bias_dtype - 1 is 8");
  WITH(direction, 3, "direction is 3");
  WITH(direction, CONVTUNE_BACKWARD_DATA, "bwd_d) has no bias");
  WITH(residual, 2, "residual is 2");
  WITH(rounding, 2, "rounding is 2");
  WITH(alpha, 1, "none has no parameters");
#undef WITH
  CHECK(!conv);
}

static void* fails_elsewhere(void* text) {
  const int empty = *convtune_error_text() == 0;
  SAYS(CONVTUNE_INVALID_ARGUMENT, "elsewhere", convtune_problem_parse("elsewhere", text));
  return empty ? text : NULL;
}

static void text_of_each_thread(void) {
  convtune_problem problem = CONVTUNE_PROBLEM_INIT;
  pthread_t thread;
  void* answer = NULL;
  REFUSED("text is null", convtune_problem_parse(NULL, &problem));
  CHECK(pthread_create(&thread, NULL, fails_elsewhere, &problem) == 0);
  CHECK(pthread_join(thread, &answer) == 0 && answer == &problem);
  CHECK(strcmp(convtune_error_text(), "text is null") == 0);
}

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
  convtune_convolution_free(conv);

  problem = parsed("mb0ic1ih1iw3oc1kh1kw2 dir=bwd_w"); /* of no images the gradient is 0 */
  CHECK(convtune_plan(&problem, "cpu", NULL, NULL, &conv) == CONVTUNE_OK);
  tensors.x = tensors.dy = NULL;
  CHECK(convtune_run_tensors(conv, &tensors, NULL, NULL) == CONVTUNE_OK);
  CHECK(dw[0] == 0 && dw[1] == 0 && dbias[0] == 0);
  convtune_convolution_free(conv);
}

static int32_t stop_at_the_third(void* context, const char* stage, int64_t done, int64_t total,
                                 double best_us, const char* best, double eta_seconds) {
  int* calls = context;
  CHECK(stage && *stage && best && done >= 0 && total >= done && best_us >= 0 && eta_seconds >= 0);
  return ++*calls == 3;
}

static void searched_and_stopped(void) {
  const convtune_problem problem = parsed("mb1ic3ih8oc4kh3ph1");
  const convtune_problem none = parsed("mb0ic3ih8oc4kh3ph1");
  convtune_tune_options options = CONVTUNE_TUNE_OPTIONS_INIT;
  convtune_bench_options bench = CONVTUNE_BENCH_OPTIONS_INIT;
  convtune_text json = {NULL, 0};
  int calls = 0;
  options.save = 0;
  options.retune = 1;
  options.progress = stop_at_the_third;
  options.context = &calls;
  CHECK(convtune_tune(&problem, "cpu", &options, &json) == CONVTUNE_OK);
  CHECK(calls == 3);
  CHECK(holds(&json, "\"interrupted\":true"));

  options.progress = NULL;
  options.budget_seconds = 0.01;
  options.budget_trials = 2;
  CHECK(convtune_tune(&problem, "cpu", &options, &json) == CONVTUNE_OK);
  CHECK(holds(&json, "\"providers\":[{\"name\":\"convtune\""));
  bench.seconds = 0.05;
  CHECK(convtune_bench(&problem, "cpu", &bench, &json) == CONVTUNE_OK);
  CHECK(holds(&json, "\"providers\":[{\"name\":\"convtune\""));
  calls = 0;
  bench.seconds = 86400;
  bench.progress = stop_at_the_third;
  bench.context = &calls;
  CHECK(convtune_bench(&problem, "cpu", &bench, &json) == CONVTUNE_OK);
  CHECK(calls == 3);
  convtune_text_free(&json);

  {
    const convtune_problem slow = parsed("mb1ic3ih8oc4kh3ph1 dir=bwd_d");
    options.budget_seconds = 1;
    SAYS(CONVTUNE_UNSUPPORTED, "nothing to tune", convtune_tune(&slow, "cpu", &options, &json));
  }
  REFUSED("batch of 0", convtune_tune(&none, "cpu", &options, &json));
  REFUSED("batch of 0", convtune_bench(&none, "cpu", NULL, &json));
  options.min_gain = 1;
  REFUSED("min_gain", convtune_tune(&problem, "cpu", &options, &json));
  options.min_gain = 0.02;
  options.budget_seconds = -1;
  REFUSED("budget_seconds", convtune_tune(&problem, "cpu", &options, &json));
  options.budget_seconds = 1;
  options.budget_trials = -1;
  REFUSED("budget_trials", convtune_tune(&problem, "cpu", &options, &json));
  options.budget_trials = 0;
  options.save = 2;
  REFUSED("save is 2", convtune_tune(&problem, "cpu", &options, &json));
}

/* Two ways of 100 and 90 us, of which the challenger's 30th run fails where it is told to. */
typedef struct sides {
  int runs[2], fails_at;
} sides;
static double timed_side(void* context, int32_t challenger) {
  sides* of = context;
  CHECK(challenger == 0 || challenger == 1);
  if (++of->runs[challenger] == of->fails_at && challenger == 1) return -1;
  return challenger ? 90 : 100;
}

static void contests(void) {
  convtune_contest_options options = CONVTUNE_CONTEST_OPTIONS_INIT;
  convtune_contest_result result = CONVTUNE_CONTEST_RESULT_INIT;
  sides of = {{0, 0}, 0};
  CHECK(convtune_contest(timed_side, &of, NULL, &result) == CONVTUNE_OK);
  CHECK(result.accepted == 1 && result.rounds == 10 && of.runs[0] == 20 && of.runs[1] == 20);
  CHECK(result.incumbent_us == 100 && result.challenger_us == 90);
  CHECK(result.low <= result.gain && result.gain <= result.high && result.gain > 0.09 && result.gain < 0.11);
  options.min_gain = 0.2;
  CHECK(convtune_contest(timed_side, &of, &options, &result) == CONVTUNE_OK && result.accepted == 0);
  of.fails_at = of.runs[1] + 5;
  SAYS(CONVTUNE_INTERNAL, "challenger was timed at -1", convtune_contest(timed_side, &of, &options, &result));

  REFUSED("side is null", convtune_contest(NULL, &of, NULL, &result));
  REFUSED("result is null", convtune_contest(timed_side, &of, NULL, NULL));
  options.max_rounds = 5;
  REFUSED("rounds from 10 to 5", convtune_contest(timed_side, &of, &options, &result));
  options.max_rounds = 40;
  options.min_gain = 1;
  REFUSED("min_gain", convtune_contest(timed_side, &of, &options, &result));
  result.struct_size = 1;
  REFUSED("result: struct_size", convtune_contest(timed_side, &of, NULL, &result));
}

int main(void) {
  CHECK(*convtune_error_text() == 0); /* nothing has failed yet, and it is not null */
  CHECK(convtune_set_cpu_threads(2) == CONVTUNE_OK);
  texts_and_sizes();
  sized_structs();
  fields_out_of_range();
  text_of_each_thread();
  plans_that_cannot_be();
  planned_packed_run(NULL);
  planned_packed_run("reference");
  every_direction();
  searched_and_stopped();
  contests();
  printf("%d failures\n", failures);
  return failures != 0;
}
