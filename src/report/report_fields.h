// Fields of reports: each struct lists its own once, by the names that they have in JSON and in their order
// there, and the writer (report.cpp) and the reader (read_report.cpp) follow from that.
//
// A visitor has f(name, value, when, of_null): `of_null` is the number that JSON's null stands for, which has
// no NaN and no infinity; f.object(name, when, body), an object that is no struct here; and f.derived(name,
// when, make), which is written and not read.
#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

#include "convtune/report.h"

namespace convtune {

// When a field is written: always; where it is not at its default; as null where it is; not.
enum class When { always, if_set, or_null, never };

inline When when(bool written) {
  return written ? When::always : When::never;
}

template <class Self, class Struct>
concept FieldsOf = std::same_as<std::remove_const_t<Self>, Struct>;

template <FieldsOf<ProviderResult> Self, class F>
void fields(Self& self, F& f) {
  f("name", self.name), f("algorithm", self.algorithm), f("config", self.config);
  f("time_us", self.time_us), f("mad_us", self.mad_us), f("n", self.n);
  f("roofline_fraction", self.roofline_fraction);
  f("max_error", self.max_error, When::always, std::numeric_limits<double>::quiet_NaN());
  f("interrupted", self.interrupted, When::if_set), f("failure", self.failure, When::if_set);
}

template <FieldsOf<HeldContest> Self, class F>
void fields(Self& self, F& f) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto& result = self.result;
  const When interrupted = when(result.incumbent_interrupted + result.challenger_interrupted > 0);
  f("incumbent", self.incumbent), f("challenger", self.challenger);
  f("min_gain", result.min_gain), f("confidence", result.confidence);
  f("accepted", result.accepted), f("undecided", result.undecided), f("gain", result.gain);
  f("low", result.interval.low, When::always, -kInfinity);
  f("high", result.interval.high, When::always, kInfinity);
  f("incumbent_us", result.incumbent_us), f("challenger_us", result.challenger_us);
  f("busy", result.busy, interrupted);
  f("incumbent_interrupted", result.incumbent_interrupted, interrupted);
  f("challenger_interrupted", result.challenger_interrupted, interrupted);
}

template <FieldsOf<MicroTuning::Tried> Self, class F>
void fields(Self& self, F& f) {
  f("config", self.config), f("reason", self.reason), f("time_us", self.time_us);
  f("failure", self.failure, When::if_set);
}

template <FieldsOf<MicroTuning> Self, class F>
void fields(Self& self, F& f) {
  f("original", self.original), f("kept", self.kept), f("changed", self.changed), f("tried", self.tried);
  f("verdicts", self.verdicts), f("contests", self.contests);
}

template <FieldsOf<SearchStep> Self, class F>
void fields(Self& self, F& f) {
  f("algorithm", self.algorithm), f("config", self.config), f("time_us", self.time_us);
  f("vendor", self.vendor, When::if_set), f("resumed", self.resumed, When::if_set);
  f("failure", self.failure, When::if_set);
}

template <FieldsOf<TuningSummary> Self, class F>
void fields(Self& self, F& f) {
  f("from_record", self.from_record), f("interrupted", self.interrupted), f("proven", self.proven);
  f("candidates", self.candidates), f("trials", self.trials), f("resumed", self.resumed);
  f("pruned", self.pruned), f("wrong", self.wrong), f("record", self.record, When::or_null);
  f("warnings", self.warnings), f("last_stage", self.last_stage, When::or_null);
  f("contest", self.contest, When::or_null), f("steps", self.steps);
  f("not_recorded", self.not_recorded, When::if_set);
  f("small_batch", self.small_batch, When::if_set);
  f("small_trials", self.small_trials, when(self.small_batch > 0));
}

template <FieldsOf<Occupancy> Self, class F>
void fields(Self& self, F& f) {
  f("share", self.share), f("blocks", self.blocks), f("warps", self.warps), f("limiter", self.limiter);
}

template <FieldsOf<Resources> Self, class F>
void fields(Self& self, F& f) {
  f("registers", self.registers), f("threads", self.threads), f("spill_bytes", self.spill_bytes);
  f("smem_bytes", self.smem_bytes), f("blocks", self.blocks), f("occupancy", self.occupancy);
}

template <FieldsOf<Roofline> Self, class F>
void fields(Self& self, F& f) {
  f("floor_us", self.floor_us), f("bound", self.bound);
  f("flops_per_second", self.flops_per_second, When::or_null);
  f("bytes_per_second", self.bytes_per_second, When::or_null);
}

template <FieldsOf<Check> Self, class F>
void fields(Self& self, F& f) {
  f("samples", self.samples), f("elements", self.elements);
  f("oracle_seconds", self.oracle_seconds), f("ways_seconds", self.ways_seconds);
}

template <FieldsOf<ReportRow> Self, class F>
void fields(Self& self, F& f) {
  auto& row = self.comparison;
  f("case", row.problem.name), f("problem", row.problem), f("device", row.device.fingerprint);
  f("roofline", row.roofline), f("providers", row.providers);
  f("incumbent", row.incumbent, When::or_null), f("best_peer", row.best_peer, When::or_null);
  f("speedup", row.speedup, When::or_null);
  f.derived("verdict", when(!row.providers.empty()), [&] { return verdict(row); });
  f("decision", row.decision, When::if_set);
  f.object("machine", when(row.load.processors > 0), [&](auto& machine) {
    machine("load", row.load.average), machine("processors", row.load.processors);
    machine.derived("busy", When::always, [&] { return machine_is_busy(row); });
    machine.derived("finding", When::always, [&] { return interruptions(row); });
  });
  f("check", row.check, when(row.check.elements > 0));
  f("resources", row.resources, When::if_set), f("tuning", self.tuning, When::if_set);
  f("failure", self.failure, When::if_set);
  f("count", self.count, when(!self.layers.empty())), f("layers", self.layers, When::if_set);
}

template <FieldsOf<ReportEnvironment> Self, class F>
void fields(Self& self, F& f) {
  f("device", self.device.name), f("fingerprint", self.device.fingerprint), f("threads", self.threads);
  f("versions", self.versions), f("date", self.date), f("command", self.command, When::if_set);
}

template <FieldsOf<Mismatch> Self, class F>
void fields(Self& self, F& f) {
  f("problem", self.problem), f("algorithm", self.algorithm), f("config", self.config);
  f("what", self.what), f("again", self.repro);
}

template <FieldsOf<VerifyReport> Self, class F>
void fields(Self& self, F& f) {
  f("problems", self.problems), f("checks", self.checks), f("compiled", self.compiled);
  f("special", self.special), f("mismatches", self.mismatches), f("failures", self.failures);
}

template <FieldsOf<Finding> Self, class F>
void fields(Self& self, F& f) {
  f("what", self.what), f("text", self.text);
}

template <FieldsOf<MeasuredConfig> Self, class F>
void fields(Self& self, F& f) {
  f("config", self.config), f("reason", self.reason), f("time_us", self.time_us), f("mad_us", self.mad_us);
  f("n", self.n), f("output", self.output), f("failure", self.failure, When::if_set);
}

template <FieldsOf<RefinedKernel> Self, class F>
void fields(Self& self, F& f) {
  f("kernel", self.kernel), f("line", self.line), f("original", self.original), f("findings", self.findings);
  f("notes", self.notes), f("verdicts", self.verdicts), f("configs", self.configs);
  f("measured", self.measured), f("place", self.place), f("changed", self.changed);
  f("contests", self.contests), f("unknown", self.unknown, When::if_set);
}

template <FieldsOf<Refined> Self, class F>
void fields(Self& self, F& f) {
  f("notes", self.notes), f("kernels", self.kernels);
}

template <FieldsOf<ModelLayer> Self, class F>
void fields(Self& self, F& f) {
  f("names", self.names), f("problem", self.problem), f("calls", self.calls);
  f("pytorch_us", self.pytorch_us), f("convtune_us", self.convtune_us);
  f("gain", self.gain), f("low", self.low), f("high", self.high);
  f("algorithm", self.algorithm), f("config", self.config), f("layout", self.layout);
  f("swapped", self.swapped), f("decision", self.decision);
}

template <FieldsOf<ModelReport> Self, class F>
void fields(Self& self, F& f) {
  f("training", self.training), f("mode", self.mode), f("layers", self.layers);
  f("before_us", self.before_us), f("after_us", self.after_us);
  f("gain", self.gain), f("low", self.low), f("high", self.high), f("kept", self.kept);
  f("notes", self.notes);
}

template <FieldsOf<Analyzed::Kernel> Self, class F>
void fields(Self& self, F& f) {
  f("kernel", self.metrics.kernel), f("metrics", self.metrics.values), f("findings", self.findings);
}

template <FieldsOf<Analyzed> Self, class F>
void fields(Self& self, F& f) {
  f("kernels", self.kernels);
}

}  // namespace convtune
