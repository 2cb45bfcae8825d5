/* A problem from its text and back, and every field or struct that is refused. */
#include <pthread.h>

#include "checks.h"

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
  WITH(snake, 3, "snake is 3");
  WITH(snake, -1, "snake is -1");
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

void problems(void) {
  texts_and_sizes();
  sized_structs();
  fields_out_of_range();
  text_of_each_thread();
}
