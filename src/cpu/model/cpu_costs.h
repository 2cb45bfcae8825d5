// THE table of what estimates of a CPU's time are made of: cycles of a core where nothing else is said. Each
// row says on which machine its number was fitted to measured times, and when. bench/cpu_rank --fit refits
// all of them to candidates that were timed on the machine at hand, and prints the table.
//
// Only ratios of estimates count: nobody knows a CPU's clock. What another processor does differently is a
// property that is measured (meeting_stores.h) or asked of it (caches, vectors), never a maker's name.
#pragma once

#include <span>
#include <string_view>

namespace convtune::cpu {

// ROW(name, value, machine, date, meaning)
#define CONVTUNE_CPU_COSTS(ROW)                                                                              \
  /* Register tiles. */                                                                                      \
  ROW(multiply_add, 0.5, "Zen 5", "2026-11-22", "a vector's multiply-add: two a cycle")                      \
  ROW(load, 0.5, "Zen 5", "2026-11-22", "a load or broadcast of a vector: two a cycle")                      \
  ROW(latency, 4, "Zen 5", "2026-11-22", "a multiply-add that waits for the one before it")                  \
  /* Stores of vectors of outputs, and pieces of inputs. */                                                  \
  ROW(store_past_caches, 2.5, "Zen 3", "2026-11-28", "past the caches, wherever outputs stay")               \
  ROW(store_to_memory, 5, "Zen 3", "2026-11-28", "through the caches, of outputs that do not stay there")    \
  ROW(store_in_caches, 2.5, "Zen 3", "2026-11-28", "of outputs that stay in the caches")                     \
  ROW(store_far, 3, "Zen 3", "2026-11-28", "more, times the share of a task that L2 does not hold")          \
  ROW(store_meeting, 9, "Zen 3", "2026-11-28", "more where lines of planes meet and wait for each other")    \
  ROW(store_meeting_in_caches, 4, "Zen 3", "2026-11-28", "the same of outputs that stay in the caches")      \
  ROW(store_staggered, 1, "Zen 3", "2026-11-28", "more, by way of the ring of staggered lines")              \
  ROW(half_line, 15, "Zen 3", "2026-11-28", "a line of the cache that two blocks of a row share")            \
  ROW(half_line_of_page, 150, "Zen 3", "2026-11-28", "the same where planes lie whole pages apart")          \
  ROW(half_line_in_caches, 0.25, "Zen 3", "2026-11-28", "share of both where stores go through the caches")  \
  ROW(short_piece_bytes, 8192, "Zen 3", "2026-11-28", "bytes of a plane's piece that are read as fast")      \
  ROW(short_piece_line, 12, "Zen 3", "2026-11-28", "a line of a shorter piece")                              \
  /* Epilogues. */                                                                                           \
  ROW(exponential, 11, "Zen 5", "2026-11-29", "a vector of outputs by an activation that takes one")         \
  /* Shares of a cache that a working set may take before it is read from farther away. */                   \
  ROW(weights_of_l3, 0.25, "Zen 5", "2026-11-23", "share of L3 that keeps weights between tasks")            \
  /* winograd: 3x3 filters of stride 1. */                                                                   \
  ROW(winograd_load, 0.05, "Zen 5", "2026-11-23", "more for each load of a register tile")                   \
  ROW(winograd_sum, 2, "Zen 5", "2026-11-22", "a sum of a register tile, stored")                            \
  ROW(winograd_call, 20, "Zen 5", "2026-11-22", "a call of a register tile")                                 \
  ROW(winograd_input_vector, 6, "Zen 5", "2026-11-22", "input's transform: a vector of a product")           \
  ROW(winograd_input_piece, 25, "Zen 5", "2026-11-22", "input's transform: a piece of a row")                \
  ROW(winograd_input_channel, 40, "Zen 5", "2026-11-22", "input's transform: a channel of a task")           \
  ROW(winograd_output_vector, 4, "Zen 5", "2026-11-22", "output's transform: a vector of a product")         \
  ROW(winograd_output_piece, 15, "Zen 5", "2026-11-22", "output's transform: a piece of a row")              \
  ROW(winograd_output_channel, 20, "Zen 5", "2026-11-22", "output's transform: a channel of a task")         \
  ROW(winograd_v_of_l2, 0.7, "Zen 5", "2026-11-22", "share of L2 that keeps transformed inputs")             \
  ROW(winograd_v_byte, 1.0 / 12, "Zen 5", "2026-11-22", "a byte of them from L3, vectors of 512 bits")       \
  ROW(winograd_v_byte_narrow, 1.0 / 7, "Zen 3", "2026-11-28", "a byte of them from or to L3, narrower ones") \
  ROW(winograd_weight_byte, 0.1, "Zen 5", "2026-11-23", "a byte of weights from L3")                         \
  ROW(winograd_weight_byte_far, 0.2, "Zen 5", "2026-11-23", "a byte of weights from memory")                 \
  ROW(winograd_m_of_l2, 0.5, "Zen 5", "2026-11-22", "share of L2 that keeps a chunk's sums")                 \
  ROW(winograd_m_byte, 1.0 / 8, "Zen 5", "2026-11-22", "a byte of them from L3")                             \
  /* winograd: other filters, in parts. */                                                                   \
  ROW(parts_load, 0.05, "Zen 5", "2026-11-23", "more for each load of a register tile")                      \
  ROW(parts_sum, 1, "Zen 5", "2026-11-23", "a sum of a register tile, stored")                               \
  ROW(parts_call, 15, "Zen 5", "2026-11-23", "a product of a register tile")                                 \
  ROW(parts_output_vector, 35, "Zen 5", "2026-11-23", "output's transform of a vector of tiles")             \
  ROW(parts_run, 60, "Zen 5", "2026-11-23", "a run of tiles along a row of the input")                       \
  ROW(parts_row_vector, 2, "Zen 5", "2026-11-23", "a vector of its phases or products")                      \
  ROW(parts_column_vector, 3, "Zen 5", "2026-11-23", "a vector of the transform down the rows")              \
  ROW(parts_sums_bytes, 32768, "Zen 5", "2026-11-23", "bytes of a block's sums that L1 keeps")               \
  ROW(parts_sums_vector, 8, "Zen 5", "2026-11-23", "more for a vector of outputs where it does not")         \
  ROW(parts_v_of_l2, 0.6, "Zen 5", "2026-11-23", "share of L2 that keeps transformed inputs and weights")    \
  ROW(parts_v_byte, 1.0 / 8, "Zen 5", "2026-11-23", "a byte of them from L3")                                \
  ROW(parts_weight_byte, 1.0 / 12, "Zen 5", "2026-11-23", "a byte of weights from L3")                       \
  /* winograd_rows. */                                                                                       \
  ROW(rows_tap, 0.65, "Zen 5", "2026-11-23", "share of a tap's loads and multiply-adds that is not hidden")  \
  ROW(rows_sum, 4, "Zen 5", "2026-11-23", "a sum of a register tile, transformed")                           \
  ROW(rows_call, 40, "Zen 5", "2026-11-23", "a call of a register tile")                                     \
  ROW(rows_cut_row, 30, "Zen 5", "2026-11-23", "a row past the caches that ends amid a line")                \
  ROW(rows_input_row, 30, "Zen 5", "2026-11-23", "a row of the input, split")                                \
  ROW(rows_input_vector, 3, "Zen 5", "2026-11-23", "a vector of it")                                         \
  ROW(rows_product_row, 4, "Zen 5", "2026-11-23", "a row of a product, transformed")                         \
  ROW(rows_product_vector, 2, "Zen 5", "2026-11-23", "a vector of it")                                       \
  ROW(rows_v_of_l2, 0.7, "Zen 5", "2026-11-23", "share of L2 that keeps transformed inputs and weights")     \
  ROW(rows_v_byte, 1.0 / 8, "Zen 5", "2026-11-23", "a byte of them from L3")                                 \
  /* winograd_filters. */                                                                                    \
  ROW(filters_weight_vector, 0.5, "Zen 5", "2026-11-24", "a vector of weights from L2")                      \
  ROW(filters_sum, 1, "Zen 5", "2026-11-24", "a sum of a register tile, stored")                             \
  ROW(filters_call, 40, "Zen 5", "2026-11-24", "a call of a register tile")                                  \
  ROW(filters_output_tile, 40, "Zen 5", "2026-11-24", "output's transform: a tile of a vector of filters")   \
  ROW(filters_output_square, 200, "Zen 5", "2026-11-24", "a square of pixels and filters, transposed")       \
  ROW(filters_input_vector, 7, "Zen 5", "2026-11-24", "input's transform: a vector of a strip")              \
  ROW(filters_narrow, 1.35, "Zen 3", "2026-11-28", "times as long with 16 registers")                        \
  ROW(filters_weight_byte, 1.0 / 60, "Zen 5", "2026-11-24", "a byte of weights from L3")                     \
  ROW(filters_weight_byte_far, 1.0 / 20, "Zen 5", "2026-11-24", "a byte of weights from memory")             \
  ROW(filters_weights_of_l2, 0.5, "Zen 5", "2026-11-24", "share of L2 that keeps weights")                   \
  ROW(filters_v_byte, 0.01, "Zen 5", "2026-11-24", "a byte of transformed inputs from L3")                   \
  /* direct. */                                                                                              \
  ROW(direct_load, 0.05, "Zen 5", "2026-11-22", "more for each load of a register tile")                     \
  ROW(direct_tap, 0.5, "Zen 5", "2026-11-22", "more for each tap")                                           \
  ROW(direct_call, 12, "Zen 5", "2026-11-22", "a call of a register tile")                                   \
  ROW(direct_piece, 9, "Zen 5", "2026-11-22", "a piece of a row, cut from a buffer")                         \
  ROW(direct_pixel, 6, "Zen 5", "2026-11-22", "an output, stored by itself")                                 \
  ROW(direct_far_plane, 2, "Zen 3", "2026-11-28", "a store to one of many planes whose translations meet")   \
  ROW(direct_shared_line, 30, "Zen 5", "2026-11-23", "a line past the caches that two pieces of rows share") \
  ROW(direct_unstaged, 0.3, "Zen 5", "2026-11-23", "an element of a window, read where it lies")             \
  ROW(direct_met_line, 2, "Zen 3", "2026-11-29", "a line of it, of planes that meet in the caches' sets")    \
  ROW(direct_window_row, 14, "Zen 5", "2026-11-24", "a row of a window, staged")                             \
  ROW(direct_slid, 0.25, "Zen 5", "2026-11-24", "an element of it, copied for each column of the filter")    \
  ROW(direct_copied, 0.5, "Zen 5", "2026-11-24", "an element of it, copied or split by vectors")             \
  ROW(direct_gathered, 1.5, "Zen 5", "2026-11-24", "an element of it, one by one")                           \
  ROW(direct_window_read, 1.0 / 16, "Zen 5", "2026-11-23", "an element of it, from L2 to L1")                \
  ROW(direct_window_far, 0.5, "Zen 5", "2026-11-23", "more where L2 does not hold it")                       \
  ROW(direct_window_of_l2, 0.25, "Zen 5", "2026-11-23", "share of L2 that holds a window for sure")          \
  ROW(direct_first_window, 1.5, "Zen 5", "2026-11-23", "an element of a thread's first window")              \
  /* implicit_gemm. */                                                                                       \
  ROW(gemm_load, 0.02, "Zen 5", "2026-11-22", "more for each load of a register tile")                       \
  ROW(gemm_weights_of_l1, 0.5, "Zen 5", "2026-11-22", "share of L1 that keeps the weights of a pass")        \
  ROW(gemm_weight_byte, 0.005, "Zen 5", "2026-11-22", "a byte of weights from L1")                           \
  ROW(gemm_weight_byte_l2, 0.01, "Zen 5", "2026-11-22", "a byte of weights from L2")                         \
  ROW(gemm_weight_byte_far, 0.06, "Zen 5", "2026-11-22", "a byte of weights from farther away")              \
  ROW(gemm_pass, 40, "Zen 5", "2026-11-24", "a pass of a register tile")                                     \
  ROW(gemm_pass_tap, 4, "Zen 5", "2026-11-24", "a tap of it, where pixels have pointers of their own")       \
  ROW(gemm_kept_sum, 2, "Zen 5", "2026-11-22", "a sum between two passes, stored and loaded")                \
  ROW(gemm_pixels, 3, "Zen 5", "2026-11-23", "a vector of sums, finished channels last")                     \
  ROW(gemm_planes, 14, "Zen 5", "2026-11-23", "a vector of sums, transposed and finished")                   \
  ROW(gemm_store_amiss, 2.5, "Zen 5", "2026-11-23", "its store past caches that keep it, or through others") \
  ROW(gemm_met_line, 5, "Zen 3", "2026-11-30", "a line read where it lies, of planes that meet there")       \
  ROW(gemm_window_row, 30, "Zen 5", "2026-11-22", "a row of a window, staged")                               \
  ROW(gemm_copied, 0.15, "Zen 5", "2026-11-22", "an element of it, channels last")                           \
  ROW(gemm_transposed, 1, "Zen 5", "2026-11-22", "an element of it, transposed by vectors")                  \
  ROW(gemm_gathered, 2, "Zen 5", "2026-11-22", "an element of it, one by one")                               \
  ROW(gemm_far_window, 1.5, "Zen 5", "2026-11-22", "times as long where L2 does not hold it")                \
  /* direct_depthwise. */                                                                                    \
  ROW(planes_row_input, 1.3, "Zen 5", "2026-11-24", "all rows at once: a vector of the input")               \
  ROW(planes_row_store, 1, "Zen 5", "2026-11-24", "the store of a vector")                                   \
  ROW(planes_row_store_amiss, 3, "Zen 5", "2026-11-24",                                                      \
      "the same past caches that keep it, or through others")                                                \
  ROW(planes_row_strip, 4, "Zen 5", "2026-11-24", "a row of a strip")                                        \
  ROW(planes_strip, 100, "Zen 5", "2026-11-24", "a strip of a task")                                         \
  ROW(planes_loads_a_vector, 1.9, "Zen 5", "2026-11-23", "loads that a vector across two lines counts as")   \
  ROW(planes_input_row, 3, "Zen 5", "2026-11-23", "a row of the input, for a column of the filter")          \
  ROW(planes_lines_at_once, 16, "Zen 5", "2026-11-23", "lines that a core fetches at a time")                \
  ROW(planes_fetched_line, 4.5, "Zen 5", "2026-11-23", "a line fetched beyond those")                        \
  ROW(planes_output, 3, "Zen 5", "2026-11-23", "a vector of outputs, stored")                                \
  ROW(planes_call, 20, "Zen 5", "2026-11-23", "a call of a register tile")                                   \
  ROW(pixels_word, 0.25, "Zen 5", "2026-11-23", "channels last: a word widened or shuffled")                 \
  ROW(pixels_store, 3, "Zen 5", "2026-11-23", "the store of a pixel's vector")                               \
  ROW(pixels_store_amiss, 6, "Zen 5", "2026-11-23", "the same past caches that keep it, or through others")  \
  ROW(pixels_part, 2, "Zen 5", "2026-11-23", "a sum of a pixel's vector, finished")                          \
  ROW(pixels_vector, 15, "Zen 5", "2026-11-23", "a vector of channels of a register tile")                   \
  ROW(pixels_call, 25, "Zen 5", "2026-11-23", "a call of a register tile")                                   \
  ROW(pixels_of_l1, 0.5, "Zen 3", "2026-11-28", "share of L1 that keeps the input of a register tile")       \
  ROW(pixels_far, 1.2, "Zen 3", "2026-11-28", "times as long where it does not")                             \
  /* amx. */                                                                                                 \
  ROW(amx_product, 16, "Emerald Rapids", "2026-11-23", "a product of tiles")                                 \
  ROW(amx_load, 8, "Emerald Rapids", "2026-11-23", "a tile's load from L1")                                  \
  ROW(amx_load_l2, 21, "Emerald Rapids", "2026-11-23", "a tile's load from L2")                              \
  ROW(amx_load_shared, 38, "Emerald Rapids", "2026-11-23", "a tile's load whose rows share lines")           \
  ROW(amx_load_across, 52, "Emerald Rapids", "2026-11-23", "a tile's load whose rows lie across lines")      \
  ROW(amx_of_l1, 0.5, "Emerald Rapids", "2026-11-24", "share of L1 that keeps weights or a window")          \
  ROW(amx_call, 60, "Emerald Rapids", "2026-11-23", "a call of a register tile")                             \
  ROW(amx_pixels, 4, "Emerald Rapids", "2026-11-24", "a vector of sums, finished channels last")             \
  ROW(amx_planes, 10, "Emerald Rapids", "2026-11-24", "a vector of sums, transposed and finished")           \
  ROW(amx_store, 2.5, "Emerald Rapids", "2026-11-24", "its store, of outputs that stay in the caches")       \
  ROW(amx_store_past, 5, "Emerald Rapids", "2026-11-24", "the same past the caches")                         \
  ROW(amx_store_ahead, 4, "Emerald Rapids", "2026-11-24", "the same where lines are fetched ahead")          \
  ROW(amx_far_store, 8, "Emerald Rapids", "2026-11-24", "its store, of outputs that do not stay")            \
  ROW(amx_far_store_past, 6, "Emerald Rapids", "2026-11-24", "the same past the caches")                     \
  ROW(amx_far_store_ahead, 5, "Emerald Rapids", "2026-11-24", "the same where lines are fetched ahead")      \
  ROW(amx_shared_set, 4, "Emerald Rapids", "2026-11-24", "more where lines of planes share a set of L1")     \
  ROW(amx_half_line, 10, "Emerald Rapids", "2026-11-24", "a pixel's half line, channels last")               \
  ROW(amx_row_of_pixels, 30, "Emerald Rapids", "2026-11-23", "a row of a call's outputs, channels last")     \
  ROW(amx_row_of_planes, 20, "Emerald Rapids", "2026-11-23", "the rows of a call's outputs, channels first") \
  ROW(amx_window_row, 40, "Emerald Rapids", "2026-11-23", "a row of a window, staged")                       \
  ROW(amx_copied, 0.1, "Emerald Rapids", "2026-11-23", "an element of it, copied")                           \
  ROW(amx_woven, 0.3, "Emerald Rapids", "2026-11-23", "an element of it, woven of a few planes")             \
  ROW(amx_read, 0.5, "Emerald Rapids", "2026-11-23", "an element of it, channels last, one by one")          \
  ROW(amx_transposed, 1, "Emerald Rapids", "2026-11-23", "an element of it, channels first, one by one")     \
  ROW(amx_gathered_run, 2, "Emerald Rapids", "2026-11-24", "a run of a pixel, gathered")                     \
  ROW(amx_gathered_chunk, 3, "Emerald Rapids", "2026-11-24", "a chunk of a pixel, gathered")

struct CpuCosts {
#define MEMBER(name, value, ...) double name = value;
  CONVTUNE_CPU_COSTS(MEMBER)
#undef MEMBER
};

// The numbers that estimates of this process use: the table, until a fit tries other numbers.
const CpuCosts& cpu_costs();
void set_cpu_costs(const CpuCosts& costs);  // for a fit alone, while nothing is planned

struct CpuCostRow {
  std::string_view name, machine, date, meaning;
  double CpuCosts::*value;
};
std::span<const CpuCostRow> cpu_cost_rows();

}  // namespace convtune::cpu
