// Pairs of convtune/c.h over the C++ face (c_face.cpp).
#include <nlohmann/json.hpp>
#include <string>

#include "c/status.h"
#include "c/structs.h"
#include "convtune/c.h"
#include "convtune/pair.h"

struct convtune_pair {
  convtune::Pair pair;
};

using namespace convtune::c;  // NOLINT: this file is that namespace's outer side

extern "C" {

convtune_status convtune_pair_plan(const convtune_pair_problem* problem, const char* device,
                                   const char* config, convtune_pair** pair) {
  if (pair) *pair = nullptr;
  return guarded([&] {
    require(pair, "pair");
    *pair =
        new convtune_pair{convtune::plan_pair(read_pair_problem(problem), device_of(device),
                                              config ? convtune::parse_config(config) : convtune::Config{})};
  });
}

void convtune_pair_free(convtune_pair* pair) {
  delete pair;
}

convtune_status convtune_pair_json(const convtune_pair* pair, convtune_text* json) {
  return text_of(json, "json", [&] {
    require(pair, "pair");
    const convtune::Pair& planned = pair->pair;
    const convtune::Device device = planned.device().device;
    nlohmann::ordered_json configs = nlohmann::ordered_json::array();
    for (const convtune::Config& one : convtune::pair_configs(planned.problem(), device))
      configs.push_back(to_string(one));
    const nlohmann::ordered_json all = {
        {"pair", to_string(planned.problem())},   {"device", to_string(device)},
        {"config", to_string(planned.config())},  {"us", planned.estimated_us()},
        {"packed_order", planned.packed_order()}, {"configs", std::move(configs)}};
    return all.dump();
  });
}

size_t convtune_pair_packed_bytes(const convtune_pair* pair) {
  return pair ? pair->pair.packed_bytes() : 0;
}

convtune_status convtune_pair_pack(const convtune_pair* pair, const convtune_pair_weights* weights,
                                   void* packed, void* stream) {
  return guarded([&] {
    require(pair, "pair");
    pair->pair.pack(read_pair_weights(weights), packed, stream);
  });
}

// On the way of every call: no text, no memory, no lock of its own.
convtune_status convtune_pair_run(const convtune_pair* pair, const void* x, const void* packed, void* y,
                                  void* stream) {
  if (!pair) [[unlikely]]
    return fail(CONVTUNE_INVALID_ARGUMENT, "pair is null");
  return guarded([&] { pair->pair.run(x, packed, y, stream); });
}

}  // extern "C"
