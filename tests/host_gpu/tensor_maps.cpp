// Boxes of tensors, and pixels along a walk, between global and shared memory.
#include "tensor_maps.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "cluster.h"

namespace host_gpu {
namespace {

constexpr std::uint64_t kMagic = 0x70616d726f736e65ull;
using Coordinates = std::array<int, 5>;

const TensorMap& map_at(const void* opaque) {
  std::uint64_t words[2];
  std::memcpy(words, opaque, sizeof words);
  if (words[0] != kMagic) fail("%p is no tensor map", opaque);
  return *reinterpret_cast<const TensorMap*>(words[1]);
}

Coordinates coordinates(const int* at, int rank) {
  Coordinates all{};
  std::copy(at, at + rank, all.begin());
  return all;
}

// f(bytes from the box's first, the row of the tensor, or null where that is outside) for each row of a box.
template <class F>
void for_each_row(const TensorMap& map, const Coordinates& first, const F& f) {
  Coordinates i{};
  unsigned offset = 0;
  const auto count = [&](int dimension) { return dimension < map.rank ? map.count(dimension) : 1; };
  for (i[4] = 0; i[4] < count(4); ++i[4])
    for (i[3] = 0; i[3] < count(3); ++i[3])
      for (i[2] = 0; i[2] < count(2); ++i[2])
        for (i[1] = 0; i[1] < count(1); ++i[1], offset += map.row_bytes()) {
          bool inside = true;
          const char* row = static_cast<const char*>(map.base);
          for (std::size_t d = 1; d < static_cast<std::size_t>(map.rank); ++d) {
            const std::int64_t place = first[d] + std::int64_t{i[d]} * map.steps[d];
            inside = inside && place >= 0 && place < static_cast<std::int64_t>(map.extents[d]);
            if (inside) row += place * static_cast<std::int64_t>(map.strides[d - 1]);
          }
          f(offset, inside ? row : nullptr);
        }
}

// f(address, byte of the row, bytes) for the pieces of a row in shared memory, of up to 16 bytes.
template <class F>
void for_each_piece(const TensorMap& map, unsigned row, const F& f) {
  for (unsigned byte = 0; byte < map.row_bytes();) {
    const unsigned some = std::min(map.row_bytes() - byte, 16 - (row + byte) % 16);
    f(exchanged(row + byte, map.exchange), byte, some);
    byte += some;
  }
}

bool has_element(const TensorMap& map, std::int64_t element) {
  return element >= 0 && element < static_cast<std::int64_t>(map.extents[0]);
}

// A row from element `first` on; zeros where there is none.
void load_row(const TensorMap& map, unsigned to, const char* row, std::int64_t first) {
  for_each_piece(map, to, [&](unsigned there, unsigned byte, unsigned some) {
    unsigned char* const place = at(there, some, 1);
    for (unsigned b = 0; b < some; b += static_cast<unsigned>(map.element_bytes)) {
      const std::int64_t element = first + (byte + b) / static_cast<unsigned>(map.element_bytes);
      if (row && has_element(map, element))
        std::memcpy(place + b, row + element * map.element_bytes,
                    static_cast<std::size_t>(map.element_bytes));
      else
        std::memset(place + b, 0, static_cast<std::size_t>(map.element_bytes));
    }
  });
}

void check(const TensorMap& map, int rank, bool walks, unsigned shared) {
  if (map.rank != rank || map.walks != walks)
    fail("a %s of %d extents by a map of %d", walks ? "walk" : "box", rank, map.rank);
  if (shared % 128 != 0) fail("a box at shared address %u, which is no multiple of 128", shared);
}

}  // namespace

unsigned TensorMap::bytes() const {
  if (walks) return row_bytes() * static_cast<unsigned>(box[1]);
  unsigned all = row_bytes();
  for (int i = 1; i < rank; ++i) all *= static_cast<unsigned>(count(i));
  return all;
}

void place(const TensorMap& map, void* opaque) {
  // For ever: maps are values, which may be kept anywhere.
  static std::mutex adds;
  static auto* const kept = new std::deque<TensorMap>;
  const std::lock_guard lock(adds);
  kept->push_back(map);
  const std::uint64_t words[16] = {kMagic, reinterpret_cast<std::uint64_t>(&kept->back())};
  std::memcpy(opaque, words, sizeof words);
}

void box_load(unsigned to, const void* opaque, const int* where, int rank, unsigned barrier) {
  const TensorMap& map = map_at(opaque);
  check(map, rank, false, to);
  const Coordinates first = coordinates(where, rank);
  if (first[0] * map.element_bytes % 16 != 0) fail("a box that begins at element %d", first[0]);
  spoil(to, map.bytes());
  later(barrier, [&map, to, barrier, first] {
    for_each_row(map, first,
                 [&](unsigned offset, const char* row) { load_row(map, to + offset, row, first[0]); });
    written_by_copy(to, map.bytes());
    bytes_came(barrier, map.bytes());
  });
}

// The walk is over columns and rows, with a rank of 5 over one more extent, and then over the last one.
// `on`: an offset along each but the last.
void pixels_load(unsigned to, const void* opaque, const int* where, int rank, const int* on,
                 unsigned barrier) {
  const TensorMap& map = map_at(opaque);
  check(map, rank, true, to);
  const Coordinates first = coordinates(where, rank);
  spoil(to, map.bytes());
  const auto last = static_cast<std::size_t>(rank) - 1;
  Coordinates offsets{};
  std::copy(on, on + rank - 2, offsets.begin() + 1);
  later(barrier, [&map, to, barrier, first, last, offsets] {
    Coordinates place = first;
    const auto extent = [&](std::size_t d) { return static_cast<int>(map.extents[d]); };
    for (int i = 0; i < map.box[1]; ++i) {
      const char* from = static_cast<const char*>(map.base);
      bool inside = true;
      for (std::size_t d = 1; d <= last; ++d) {
        const int at = place[d] + offsets[d];
        inside = inside && at >= 0 && at < extent(d);
        if (inside) from += at * static_cast<std::int64_t>(map.strides[d - 1]);
      }
      load_row(map, to + static_cast<unsigned>(i) * map.row_bytes(), inside ? from : nullptr, first[0]);
      for (std::size_t d = 1; d <= last; ++d) {
        place[d] += d < last ? map.steps[d] : 1;
        if (d == last || place[d] < extent(d) + map.last_corner[d - 1]) break;
        place[d] = map.first_corner[d - 1];
      }
    }
    written_by_copy(to, map.bytes());
    bytes_came(barrier, map.bytes());
  });
}

void box_store(const void* opaque, const int* where, int rank, unsigned from) {
  const TensorMap& map = map_at(opaque);
  check(map, rank, false, from);
  const Coordinates first = coordinates(where, rank);
  if (std::any_of(first.begin(), first.end(), [](int one) { return one < 0; }))
    fail("a box that begins before its tensor");  // which the instruction does not take
  check_fenced(from, map.bytes(), "a box");
  Work work = [&map, from, first] {
    for_each_row(map, first, [&](unsigned offset, const char* row) {
      if (!row) return;
      for_each_piece(map, from + offset, [&](unsigned there, unsigned byte, unsigned some) {
        // Pieces of 16 bytes are written whole, also where the row's last elements end within one.
        const std::int64_t element = first[0] + byte / static_cast<unsigned>(map.element_bytes);
        if (has_element(map, element))
          std::memcpy(const_cast<char*>(row) + element * map.element_bytes, at(there, some, 1), some);
      });
    });
  };
  if (settings.async == Async::eager) return work();
  current->stores.add(std::move(work));
}

}  // namespace host_gpu
