// The structs of convtune/c.h read and written by their sizes, with every value checked; each function throws
// Error{invalid_argument} that begins with the parameter's name.
#pragma once

#include "convtune/c.h"
#include "convtune/convolution.h"
#include "convtune/device.h"
#include "convtune/pair.h"
#include "convtune/problem.h"
#include "convtune/tuner.h"

namespace convtune::c {

// A pointer that must not be null; `name` is the parameter's.
void require(const void* pointer, const char* name);

ConvProblem read_problem(const convtune_problem* problem);
// Keeps the caller's struct_size, and says so where a field that its struct lacks would be lost.
void write_problem(const ConvProblem& problem, convtune_problem* to);

PairProblem read_pair_problem(const convtune_pair_problem* problem);
PairWeights read_pair_weights(const convtune_pair_weights* weights);

// The device of that name, the best one for null; throws what `parse_device` throws.
Device device_of(const char* text);

Tensors read_tensors(const convtune_tensors* tensors);

CpuExecutor read_cpu_executor(const convtune_cpu_executor* executor);

// Checked and with its defaults filled in; null is all defaults.
convtune_tune_options read_tune_options(const convtune_tune_options* options);
convtune_bench_options read_bench_options(const convtune_bench_options* options);
convtune_contest_options read_contest_options(const convtune_contest_options* options);
// Writes as much of the result as the caller's struct holds.
void write_contest_result(convtune_contest_result from, convtune_contest_result* to);

}  // namespace convtune::c
