// Rows of a report as the tests of its writers want them.
#pragma once

#include <string>

#include "convtune/report.h"

namespace convtune {

inline ReportRow row_of(double own_us, double peer_us, const std::string& name = "a case") {
  ReportRow row;
  Comparison& comparison = row.comparison;
  comparison.problem.name = name;
  comparison.problem.c = 8;
  comparison.problem.h = comparison.problem.w = 16;
  comparison.device.fingerprint = "cpu-test";
  comparison.device.name = "Test CPU";
  comparison.roofline = {10, "compute"};
  comparison.plan = {"direct", {{{"vectors", 4}}}, PlanSource::tuned, "measured here"};
  comparison.providers.push_back({"convtune", "direct", {{{"vectors", 4}}}, own_us, 1, 20, 0.5, 1e-7, ""});
  if (peer_us > 0) {
    comparison.providers.push_back({"onednn blocked=0", "onednn", {}, peer_us, 2, 20, 0.25, 2e-7, ""});
    comparison.incumbent = "oneDNN 3.2.0";
    comparison.best_peer = "onednn blocked=0";
    comparison.speedup = peer_us / own_us;
  }
  comparison.decision = "direct wins";
  comparison.load = {1.5, 2};
  comparison.check = {2048, 4096, 0.5, 0.25};
  return row;
}

inline MicroTuning last_stage() {
  MicroTuning stage;
  stage.original = "direct stages=3", stage.kept = "direct stages=4", stage.changed = true;
  stage.tried = {{{{{"stages", 3}}}, "stages=3: the original", 20, {}},
                 {{{{"stages", 4}}}, "stages=4: one stage more", 19, {}},
                 {{{{"stages", 2}}}, "stages=2: one stage less", 0, "wrote outside y"}};
  stage.verdicts = {"R1: stays", "R6: takes 5 % less time"};
  return stage;
}

}  // namespace convtune
