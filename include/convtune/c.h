/* The C face: what other languages bind. The same library as the C++ headers beside it; every function may be
 * called from any thread.
 *
 *   convtune_problem problem = CONVTUNE_PROBLEM_INIT;
 *   convtune_convolution* conv;
 *   if (convtune_problem_parse("mb1ic3ih224oc96kh11sh4ph2", &problem) ||
 *       convtune_plan(&problem, "cpu", NULL, NULL, &conv)) {
 *     fprintf(stderr, "%s\n", convtune_error_text());
 *     return 1;
 *   }
 *   void* packed = aligned_alloc(64, (convtune_packed_bytes(conv) + 63) / 64 * 64);  // the caller's
 *   convtune_pack(conv, w, bias, packed, NULL);  // again when the weights change
 *   convtune_run(conv, x, packed, y, NULL);
 *   convtune_convolution_free(conv);
 *
 * A struct begins with its own size, set by its _INIT: a later library reads an older caller's shorter
 * struct, and takes the fields that are not there as their defaults. An older library reads a newer
 * caller's longer struct as long as what it does not know is 0, which always means "as before". No null
 * pointer is taken but where it says so. No exception and no signal handler ever crosses this line.
 */
#ifndef CONVTUNE_C_H
#define CONVTUNE_C_H

#include <stddef.h> /* NOLINT(modernize-deprecated-headers): C reads this, too */
#include <stdint.h> /* NOLINT(modernize-deprecated-headers) */

#if defined(_WIN32)
#define CONVTUNE_API __declspec(dllexport)
#else
#define CONVTUNE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a caller compiled against an older header would misread this library. */
#define CONVTUNE_C_VERSION 3
CONVTUNE_API int32_t convtune_c_version(void);   /* for the library: compare it with CONVTUNE_C_VERSION */
CONVTUNE_API const char* convtune_version(void); /* "0.1.0" */

/* Holds what a function returns: 0, or what went wrong (convtune/error.h has a longer word for each). */
typedef enum convtune_status {
  CONVTUNE_OK = 0,
  CONVTUNE_INVALID_ARGUMENT = 1,
  CONVTUNE_UNSUPPORTED = 2, /* a GPU's memory that does not suffice, too */
  CONVTUNE_NO_DEVICE = 3,
  CONVTUNE_IO = 4,
  CONVTUNE_DEVICE_LOST = 5,
  CONVTUNE_INTERNAL = 6,
  CONVTUNE_OUT_OF_MEMORY = 7 /* for the host */
} convtune_status;

/* Why the last call of this thread that failed did so. Valid until the thread's next failure; never null. */
CONVTUNE_API const char* convtune_error_text(void);

/* Text made by the library: `data` ends with a 0 that `size` does not count. A function that makes one
 * overwrites what it is given, and leaves {NULL, 0} where it fails. */
typedef struct convtune_text {
  char* data;
  size_t size;
} convtune_text;
CONVTUNE_API void convtune_text_free(convtune_text* text); /* null, {NULL, 0} or freed before: no work */

typedef enum convtune_dtype { CONVTUNE_F32 = 0, CONVTUNE_F16 = 1, CONVTUNE_BF16 = 2 } convtune_dtype;
typedef enum convtune_layout { CONVTUNE_NCHW = 0, CONVTUNE_NHWC = 1 } convtune_layout;
typedef enum convtune_precision {
  CONVTUNE_AUTOMATIC = 0,
  CONVTUNE_FP32 = 1,
  CONVTUNE_TF32 = 2,
  CONVTUNE_FP16 = 3,
  CONVTUNE_BF16_PRODUCTS = 4
} convtune_precision;
typedef enum convtune_activation {
  CONVTUNE_NO_ACTIVATION = 0,
  CONVTUNE_RELU = 1,
  CONVTUNE_CLIP = 2, /* alpha: the lower bound, beta: the upper one */
  CONVTUNE_SILU = 3,
  CONVTUNE_GELU_ERF = 4,
  CONVTUNE_GELU_TANH = 5,
  CONVTUNE_HARDSWISH = 6,
  CONVTUNE_LEAKY_RELU = 7, /* alpha: the slope below 0 */
  CONVTUNE_SIGMOID = 8
} convtune_activation;
/* Returns how an activation is written, "clip:LOW:HIGH"; null behind the last: count from 0 to find all. */
CONVTUNE_API const char* convtune_activation_usage(int32_t activation);
typedef enum convtune_direction {
  CONVTUNE_FORWARD = 0,
  CONVTUNE_BACKWARD_DATA = 1,
  CONVTUNE_BACKWARD_WEIGHTS = 2
} convtune_direction;
typedef enum convtune_snake {
  CONVTUNE_NO_SNAKE = 0,
  CONVTUNE_SNAKE_AFTER = 1,
  CONVTUNE_SNAKE_BESIDE = 2
} convtune_snake;
typedef enum convtune_rounding { CONVTUNE_ROUND_ONCE = 0, CONVTUNE_ROUND_EAGERLY = 1 } convtune_rounding;

/* Holds what is asked. The fields mean what they mean in convtune/problem.h; dilations are counted from 1. */
typedef struct convtune_problem {
  size_t struct_size;
  int64_t n, c, h, w; /* input: batch, channels, height, width */
  int64_t k, r, s;    /* output channels, filter height, filter width */
  int64_t groups;
  int64_t stride_h, stride_w;
  int64_t dilation_h, dilation_w;
  int64_t pad_top, pad_left, pad_bottom, pad_right;
  int32_t dtype, layout, precision, activation; /* for the enums above; dtype: of x */
  int32_t bias;                                 /* 1: there is one, 0: there is none */
  int32_t snake;                                /* for convtune_snake; was reserved, and 0 */
  /* Since C face 3. */
  int64_t d, t;                 /* input depth, filter depth: 0 means 1 */
  int64_t stride_d, dilation_d; /* 0 means 1 */
  int64_t pad_front, pad_back;
  int32_t w_dtype, y_dtype, bias_dtype; /* 1 + the enum's value; 0: of x's type */
  int32_t direction, residual, rounding;
  float alpha, beta; /* the activation's parameters */
  int64_t cache;     /* frames of a second tensor in front of x */
} convtune_problem;
#define CONVTUNE_PROBLEM_INIT                                                                               \
  {                                                                                                         \
    sizeof(convtune_problem), 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                                     \
  }

/* A line of benchdnn's grammar, or the name of a built-in case; problem.h has the grammar. Writes into a
 * struct that _INIT has begun. A name ("alexnet_conv1") is no part of the struct. */
CONVTUNE_API convtune_status convtune_problem_parse(const char* text, convtune_problem* problem);
CONVTUNE_API convtune_status convtune_problem_text(const convtune_problem* problem, convtune_text* text);
/* Checks the problem, and tells the output's height and width. */
CONVTUNE_API convtune_status convtune_output_size(const convtune_problem* problem, int64_t* p, int64_t* q);
/* Checks the problem, and tells the output's depth, height and width. */
CONVTUNE_API convtune_status convtune_output_size_3d(const convtune_problem* problem, int64_t* z, int64_t* p,
                                                     int64_t* q);

/* Bytes that must move at least once; convtune/problem.h says which those are. */
CONVTUNE_API convtune_status convtune_problem_bytes(const convtune_problem* problem, double* bytes);

/* {"devices": [{"device": "cuda:0", "name": ..., "fingerprint": ..., "isa": ..., "units": ...,
 * "memory_bytes": ...}, ...]}, best first. */
CONVTUNE_API convtune_status convtune_devices(convtune_text* json);
/* Sets how many CPU threads convolutions planned from now on may use. */
CONVTUNE_API convtune_status convtune_set_cpu_threads(int32_t threads);

/* Threads of the program's own that convolutions run on in place of convtune's. */
typedef void (*convtune_task)(void* task_context, int32_t index);
typedef struct convtune_cpu_executor {
  size_t struct_size;
  /* Calls task(task_context, i) for each i from 0 to tasks - 1, on any threads, and returns when all of those
   * calls have. One that begins late finds its work done by the others. Called by any thread that runs a
   * convolution, by several at a time; must return. */
  void (*parallel_for)(void* context, int32_t tasks, convtune_task task, void* task_context);
  void* context;       /* handed to parallel_for */
  int32_t concurrency; /* threads that it has for one call, the caller's counted; at most 1024 */
  int32_t reserved;    /* 0 */
} convtune_cpu_executor;
#define CONVTUNE_CPU_EXECUTOR_INIT \
  { sizeof(convtune_cpu_executor), 0, 0, 1, 0 }
/* From now on, convolutions run on the executor, and new plans are for as many threads as its concurrency;
 * null: on convtune's threads again, as many as at first. The struct is copied; what `context` points to must
 * stay until another executor is set and no convolution runs that began before. Vendors' libraries keep their
 * threads. */
CONVTUNE_API convtune_status convtune_set_cpu_executor(const convtune_cpu_executor* executor);
/* For a program whose other work runs on GNU's OpenMP, as PyTorch's does; 1: convolutions run in its regions
 * from now on, 0: on convtune's threads. Its threads wait on their processors for some milliseconds after
 * each region, and others hardly get them. A region waits for all of its threads: after one that waited long
 * because processors are busy, convolutions run on convtune's threads for a while. */
CONVTUNE_API convtune_status convtune_share_openmp_threads(int32_t share);
/* For work that runs on other streams beside convolutions: what this thread launches from now on takes at
 * most that share of a GPU's multiprocessors, where a kernel's blocks go from tile to tile; above 0, and 1 is
 * all of them; `convtune.graphed`, which sets shares for branches, leaves 1. Plans, machine code and results,
 * to the bit, stay what they are. */
CONVTUNE_API convtune_status convtune_set_gpu_share(double share);

/* A convolution planned once and run often. Immutable: any number of threads may run it. It may be freed
 * while work that it queued waits on a stream, but not while a thread is in a call with it, nor while a CUDA
 * graph that recorded it may be replayed. */
typedef struct convtune_convolution convtune_convolution;

/* `device`: "cpu", "cuda:0", or null for the best. `algorithm` and `config` ("vectors=4 channels=6"): null,
 * and records and estimates choose; an algorithm without a config takes its first guess, and "ours" the best
 * of convtune's own algorithms by records and estimates, whatever the vendor's library has; "recorded" is one
 * of them that a record proves, "recorded batch" one that a record of this batch does, and unsupported where
 * there is none; "any batch" chooses as null does, and where the kernel can be compiled for every batch up to
 * the problem's, the config ends with "most_images=64" and runs those, too: named for them, it shares what is
 * loaded. Never measures. */
CONVTUNE_API convtune_status convtune_plan(const convtune_problem* problem, const char* device,
                                           const char* algorithm, const char* config,
                                           convtune_convolution** convolution);
CONVTUNE_API void convtune_convolution_free(convtune_convolution* convolution); /* null: nothing happens */

/* {"problem": ..., "device": "cpu", "fingerprint": ..., "algorithm": ..., "config": ..., "source": "tuned",
 * "why": ..., "packed_order": ..., "can_lay_dw_last": false}; the problem's precision is what the device took
 * "auto" for. */
CONVTUNE_API convtune_status convtune_plan_json(const convtune_convolution* convolution, convtune_text* json);
/* Tells the plan in text for people, with what the other algorithms answered. */
CONVTUNE_API convtune_status convtune_explain(const convtune_convolution* convolution, convtune_text* text);

/* Weights and bias in the order that the kernel reads, in memory of the caller's: convtune_packed_bytes of it
 * on the convolution's device, aligned to 256 bytes (64 on a CPU), kept until the work that reads it is done.
 * Packed bytes do for every convolution of this process with an equal plan_json, or with an equal
 * packed_order in it that is not empty; nobody can check that they are given to one. Of the order "krsc" they
 * are the filter itself, channels last ([K][R][S][C/groups]): whoever has it so packs nothing. Pointers are
 * device pointers; w: [K][C/groups][R][S], bias: [K] or null where the problem has none. With a Snake bias is
 * [3][K], biases, alphas and scales, and beside the sums y has twice the images. All need the alignment of
 * their elements only, but a CPU stores y fastest where it begins at a multiple of 64 bytes; y must not
 * overlap x, w and bias; a batch of 0 reads nothing. `stream` is a CUstream, or null; work is queued and
 * nothing waits. */
CONVTUNE_API size_t convtune_packed_bytes(const convtune_convolution* convolution); /* null: 0 */
CONVTUNE_API convtune_status convtune_pack(const convtune_convolution* convolution, const void* w,
                                           const void* bias, void* packed, void* stream);
CONVTUNE_API convtune_status convtune_run(const convtune_convolution* convolution, const void* x,
                                          const void* packed, void* y, void* stream);

/* Tensors of a run, for problems of every direction. A tensor that the problem has no use for, or that has no
 * elements, may be null; so may `packed` in backward weights. */
typedef struct convtune_tensors {
  size_t struct_size;
  const void* x;        /* read: forward and backward weights */
  const void* residual; /* read: forward and backward data, where the problem has one */
  const void* dy;       /* read: backward */
  void* y;              /* written: forward */
  void* dx;             /* written: backward data */
  void* dw;             /* written: backward weights */
  void* dbias;          /* written: backward weights, where the problem has a bias */
  const void* cache;    /* read: forward, where the problem has one: [N][C][cache][H][W], lying as x does */
  void* cache_out;      /* written: forward, where not null: the last (t-1)*dilation_d frames of cache and x,
                           zeros before them where these are fewer; convtune/tensor.h */
  int32_t dw_last;  /* 1: dw lies channels last, [K][T][R][S][C/groups], where the plan "can_lay_dw_last" */
  int32_t reserved; /* 0 */
} convtune_tensors;
#define CONVTUNE_TENSORS_INIT \
  { sizeof(convtune_tensors), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
CONVTUNE_API convtune_status convtune_run_tensors(const convtune_convolution* convolution,
                                                  const convtune_tensors* tensors, const void* packed,
                                                  void* stream);

/* A pair: y = x + second(act(first(act(x)))) in one kernel, for two convolutions over positions of as many
 * filters as channels, with a stride of 1 and as much padding as keeps the positions; x and y are [n][t][c],
 * in half precision. convtune/pair.h says it all. On GPUs of compute capability 9.0, for multiples of 32
 * channels up to 512; on other devices CONVTUNE_UNSUPPORTED, as where a tile does not fit. */
typedef enum convtune_pair_activation {
  CONVTUNE_PAIR_LEAKY_RELU = 0, /* slope: below 0 */
  CONVTUNE_PAIR_SNAKE = 1       /* v + scale * sin(alpha * v)^2, with numbers a channel */
} convtune_pair_activation;
typedef struct convtune_pair_problem {
  size_t struct_size;
  int64_t n, c, t;                           /* batch, channels, positions */
  int64_t first_taps, dilation, second_taps; /* taps are odd; the dilation is the first convolution's */
  int32_t dtype, activation;                 /* CONVTUNE_F16 or CONVTUNE_BF16; in front of both */
  float slope;
  int32_t snake; /* for convtune_snake, behind the sum; was reserved, and 0 */
  /* 1: behind x lies what the first activation makes of it, as CONVTUNE_SNAKE_BESIDE stores it */
  int32_t activated;
  int32_t reserved; /* 0 */
} convtune_pair_problem;
#define CONVTUNE_PAIR_PROBLEM_INIT \
  { sizeof(convtune_pair_problem), 1, 32, 1, 1, 1, 1, CONVTUNE_BF16, 0, 0, 0, 0, 0 }
/* Device pointers: weights are [C][C][taps] and biases [C] of the problem's type, a bias may be null; floats
 * [C] where the activation has them. */
typedef struct convtune_pair_weights {
  size_t struct_size;
  const void *first, *first_bias, *second, *second_bias;
  const float *first_alpha, *first_scale, *second_alpha, *second_scale;
  const float *behind_alpha, *behind_scale; /* numbers of a Snake behind the sum */
} convtune_pair_weights;
#define CONVTUNE_PAIR_WEIGHTS_INIT \
  { sizeof(convtune_pair_weights), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Planned once, run often, by any number of threads; freed as a convolution is. */
typedef struct convtune_pair convtune_pair;
/* `config`: null, and the one that should be fastest is taken. Compiles, and never measures. */
CONVTUNE_API convtune_status convtune_pair_plan(const convtune_pair_problem* problem, const char* device,
                                                const char* config, convtune_pair** pair);
CONVTUNE_API void convtune_pair_free(convtune_pair* pair); /* null: nothing happens */
/* {"pair": ..., "device": ..., "config": ..., "us": ..., "packed_order": ..., "configs": [...]}: `us` is an
 * estimate; all configs, the one that should be fastest first. */
CONVTUNE_API convtune_status convtune_pair_json(const convtune_pair* pair, convtune_text* json);
/* As convtune_packed_bytes, convtune_pack and convtune_run. x and y begin at multiples of 16 bytes and do not
 * overlap: CONVTUNE_INVALID_ARGUMENT where y is x. */
CONVTUNE_API size_t convtune_pair_packed_bytes(const convtune_pair* pair); /* null: 0 */
CONVTUNE_API convtune_status convtune_pair_pack(const convtune_pair* pair,
                                                const convtune_pair_weights* weights, void* packed,
                                                void* stream);
CONVTUNE_API convtune_status convtune_pair_run(const convtune_pair* pair, const void* x, const void* packed,
                                               void* y, void* stream);

/* Called between the steps of a search or of a measurement, from the thread that called convtune_tune or
 * convtune_bench; anything but 0 stops it cleanly (what a search measured is kept, and the next one resumes).
 * eta_seconds: left, as far as is known. The callback must return: a thread that ends in it takes the process
 * along. */
typedef int32_t (*convtune_progress)(void* context, const char* stage, int64_t done, int64_t total,
                                     double best_us, const char* best, double eta_seconds);

typedef struct convtune_tune_options {
  size_t struct_size;
  double budget_seconds;      /* the whole of it, contests included. At most a week */
  int64_t budget_trials;      /* 0: no limit */
  double min_gain;            /* the vendor's answer goes for good only where this gain is proven */
  int32_t retune;             /* 1: search even where a record answers */
  int32_t save;               /* 1: write the record */
  convtune_progress progress; /* or null */
  void* context;              /* handed to progress */
} convtune_tune_options;
#define CONVTUNE_TUNE_OPTIONS_INIT \
  { sizeof(convtune_tune_options), 60, 0, 0.02, 0, 1, 0, 0 }

/* Searches, proves and records; then convtune_plan answers with what was found. The JSON is one of the "rows"
 * of the report that `convtune tune --json` writes. A search that `progress` stopped is no failure: its row
 * has no providers, and "tuning": {"interrupted": true, ...}. "tuning" has "proven": false where the contest
 * could not decide or one of the vendor's ways was left out, and the next call holds it again; and
 * "not_recorded", why, where the record could not be written. `options` may be null. */
CONVTUNE_API convtune_status convtune_tune(const convtune_problem* problem, const char* device,
                                           const convtune_tune_options* options, convtune_text* json);

typedef struct convtune_bench_options {
  size_t struct_size;
  double seconds;             /* spent on measuring; above 0, at most a day */
  convtune_progress progress; /* or null; stops the measurement as it stops a search */
  void* context;              /* handed to progress */
} convtune_bench_options;
#define CONVTUNE_BENCH_OPTIONS_INIT \
  { sizeof(convtune_bench_options), 3, 0, 0 }

/* Times what convtune_plan answers beside the vendor's variants, interleaved. The JSON is one of the "rows"
 * of the report that `convtune bench --json` writes; where `progress` stopped it, with too few samples to
 * rely on. `options` may be null. */
CONVTUNE_API convtune_status convtune_bench(const convtune_problem* problem, const char* device,
                                            const convtune_bench_options* options, convtune_text* json);

/* The user's records, as `convtune db export` writes them: one a line of JSON. */
CONVTUNE_API convtune_status convtune_export_records(convtune_text* lines);
/* Takes over records that are faster than the user's own, as `convtune db import` does: {"imported": ...,
 * "kept": ..., "rejected": ..., "problems": ["SOURCE:LINE: why", ...]}. `source` names where the lines are
 * from. */
CONVTUNE_API convtune_status convtune_import_records(const char* lines, const char* source,
                                                     convtune_text* json);
/* The records that `convtune db import --shipped` would take over now: one a line of JSON. */
CONVTUNE_API convtune_status convtune_missing_shipped_records(convtune_text* lines);

/* Returns where and when something is measured, as "environment" of a report: {"device": ..., "fingerprint":
 * ..., "threads": ..., "versions": {...}, "date": ...}. `device`: as in convtune_plan. */
CONVTUNE_API convtune_status convtune_environment(const char* device, convtune_text* json);
/* A self-contained page of HTML. `report`: all of a report's JSON, as `convtune tune --json` writes it or
 * {"environment": ..., "rows": [...]} of what convtune_tune and convtune_bench return. */
CONVTUNE_API convtune_status convtune_report_page(const char* report, convtune_text* html);

/* A contest by the library's own rules (convtune/contest.h) between any two ways of doing the same work:
 * rounds of incumbent, challenger, challenger, incumbent. `side` runs one of them once, 0 the incumbent and 1
 * the challenger, and returns its microseconds; a time that is not finite and above 0 ends the contest as a
 * failure. */
typedef double (*convtune_side)(void* context, int32_t challenger);

typedef struct convtune_contest_options {
  size_t struct_size;
  double min_gain;    /* from 0 on, less than 1: accepted only where at least this gain is proven */
  double confidence;  /* of the interval; above 0, less than 1 */
  double max_seconds; /* by the clock; min_rounds come first */
  int32_t min_rounds, max_rounds;
} convtune_contest_options;
#define CONVTUNE_CONTEST_OPTIONS_INIT \
  { sizeof(convtune_contest_options), 0.02, 0.99, 10, 10, 640 }

typedef struct convtune_contest_result {
  size_t struct_size;
  double gain;                        /* median over rounds of 1 - challenger / incumbent */
  double low, high;                   /* the interval that holds it; infinite where rounds are too few */
  double incumbent_us, challenger_us; /* medians */
  int32_t accepted, rounds;
} convtune_contest_result;
#define CONVTUNE_CONTEST_RESULT_INIT \
  { sizeof(convtune_contest_result), 0, 0, 0, 0, 0, 0, 0 }

/* `options` may be null; `context` is handed to `side`, which this thread calls. Writes into a struct that
 * _INIT has begun. */
CONVTUNE_API convtune_status convtune_contest(convtune_side side, void* context,
                                              const convtune_contest_options* options,
                                              convtune_contest_result* result);

#ifdef __cplusplus
}
#endif

#endif
