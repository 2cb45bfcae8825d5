/* Searches that are stopped, benchmarks, and contests of a caller's own. */
#include "checks.h"

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
    const convtune_problem slow =
        parsed("mb1ic3ih9oc4kh3sh2ph1 dtype=bf16 dir=bwd_d residual=1 rounding=eager");
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

void searches(void) {
  searched_and_stopped();
  contests();
}
