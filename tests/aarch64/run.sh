#!/usr/bin/env bash
# run.sh BUILD_FOLDER: cross-compiles the CPU's kernels and their exactness tests for 64-bit Arm and runs them under an
# emulator: with SVE of 256 bits, which tries NEON as well, and without SVE. 77, ctest's "skipped", where it cannot.
set -euo pipefail

skip() {
  echo "aarch64: skipped, $1; on Debian: apt-get install g++-aarch64-linux-gnu qemu-user"
  exit 77
}

here=$(cd "$(dirname "$0")" && pwd)
command -v aarch64-linux-gnu-g++ >/dev/null || skip "there is no aarch64-linux-gnu-g++"
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || skip "there is no qemu-aarch64"

cmake -S "$here" -B "$1" -G Ninja --toolchain "$here/../../cmake/aarch64.cmake" >"$1.log" 2>&1 || { cat "$1.log"; exit 1; }
cmake --build "$1" --parallel "$(nproc)"
# AMX's model of tiles is no kernel of this processor. A sample has no time for every tile of the Winograds.
left_out='*/amx'
[ -z "${CONVTUNE_TEST_ONE_OF:-}" ] || left_out+=':Winograd*.*'
run() {
  "$emulator" -L /usr/aarch64-linux-gnu -cpu "$1" "$2/kernels_test" --gtest_brief=1 --gtest_filter="$3-$left_out"
}
GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=0 run max,sve256=on "$1" '*' &
first=$!
GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=1 run max,sve256=on "$1" '*'
wait "$first"
run max,sve=off "$1" 'Table/CpuAlgorithms.IsExactOnIntegers/*:ImplicitGemm.*:TensorKernels.*:InstructionSets.*'
