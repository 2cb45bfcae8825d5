// Terms that several algorithms of the CPU have alike: activations, stores of outputs, and windows of planes.
#pragma once

#include "convtune/device.h"
#include "convtune/problem.h"
#include "cpu/model/cpu_work.h"
#include "cpu/tile/line_blocks.h"

namespace convtune::cpu {

// Adds `vectors` stores of outputs by tasks that store `task_bytes` each. Outputs that do not stay in the
// caches are read before they are written there. Of outputs that stay, few at a time are found nearer:
// sd_unet_conv_in takes a Zen 3 770 us in tasks of 80 KB and 1,340 in tasks of 1.3 MB. A store past the
// caches costs no more there than where nothing stays: with 3 in place of 2.5 first layers were chosen worse,
// by the times of five runs, and others alike.
void add_stores(CpuWork& work, const ConvProblem& problem, const DeviceInfo& info, bool past_caches,
                double task_bytes, double vectors);

// Cycles that the activation takes of all outputs, in vectors of so many bits. Those of a few instructions
// hide behind stores.
double activation_cycles(const ConvProblem& problem, int vector_bits);

// Adds to `vectors` stores their waits where lines of several planes meet (cpu/tile/stagger.h), on processors
// that let them wait, unless they are staggered. `stream` as in the configs.
void add_meeting_stores(CpuWork& work, const ConvProblem& problem, const DeviceInfo& info, int stream,
                        double vectors);

// Adds to `rows` rows of outputs the cost of lines cut in two, where they are stored in blocks that end amid
// a line: past the caches, the two parts of it are stored with other planes' outputs between them, so that
// the buffer which gathers a line is given up half full. Where planes lie a multiple of a page apart, a
// block's planes take such buffers from each other: 27 taps of 4 channels by 24 f32 outputs take a Zen 3 291
// ns there in place of 95, 150 cycles for each channel's half line; through the caches it is a quarter of
// that.
void add_cut_lines(CpuWork& work, const ConvProblem& problem, const LineBlocks& blocks,
                   std::int64_t vector_bytes, bool past_caches, double rows);

// Adds to `windows` windows of NCHW the cost of short pieces, where memory is not read from end to end, but a
// short piece of each channel's plane.
void add_short_pieces(CpuWork& work, const ConvProblem& problem, std::int64_t output_rows, double windows);

}  // namespace convtune::cpu
