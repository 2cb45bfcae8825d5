// See joined_rows.h. Included once for each target, as vectors-inl.h is.
#if defined(CONVTUNE_JOINED_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_JOINED_ROWS_INL
#undef CONVTUNE_JOINED_ROWS_INL
#else
#define CONVTUNE_JOINED_ROWS_INL
#endif

#include <cstdint>
#include <utility>

#include "cpu/tile/elements-inl.h"
#include "cpu/tile/joined_rows.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Rows in registers while some vectors of them are put.
struct JoiningRows {
  explicit JoiningRows(JoinedRows* rows) : kept(rows), floats{hn::Zero(Floats()), hn::Zero(Floats())} {
    for (int row = 0; rows != nullptr && row < 2; ++row) {
      lines[row] = rows->lines[row];
      floats[row] = hn::Load(Floats(), rows->floats[row]);
    }
  }
  void keep() {
    for (int row = 0; row < 2; ++row) {
      kept->lines[row] = lines[row];
      hn::Store(floats[row], Floats(), kept->floats[row]);
    }
  }

  JoinedRows* kept;
  WaitingLine lines[2];  // the last one of each row
  SizedVector floats[2];
};

HWY_INLINE void store_waiting(WaitingLine& line, Vector floats) {
  if (line.at != nullptr) store_lanes(floats, line.at, line.begun, line.filled);
  line.at = nullptr;
}

// Stores the end of the first row and the beginning of the second, one line if they meet; then the second row
// is what the next first one goes on from.
HWY_INLINE void close_rows(JoiningRows& rows) {
  const Floats d;
  WaitingLine &end = rows.lines[0], &begin = rows.kept->second_begins;
  const Vector begins = hn::Load(d, rows.kept->begins);
  if (end.at != nullptr && end.at == begin.at && end.begun == 0 && end.filled == begin.begun) {
    const auto first = hn::FirstN(d, static_cast<std::size_t>(end.filled));
    store_past_caches(hn::IfThenElse(first, rows.floats[0], begins), end.at);
    end.at = begin.at = nullptr;
  }
  store_waiting(end, rows.floats[0]);
  store_waiting(begin, begins);
  end = std::exchange(rows.lines[1], {});
  rows.floats[0] = rows.floats[1];
}

// Result lane l is lane l - filled of the vector, and those that are none are its last ones.
HWY_INLINE auto turn_by(std::int64_t filled) {
  const hn::RebindToSigned<Floats> di;
  const auto lanes = hn::Add(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(kLanes - filled)));
  return hn::IndicesFromVec(Floats(), hn::And(lanes, hn::Set(di, static_cast<std::int32_t>(kLanes - 1))));
}

// Puts a register tile's rows, y_step apart, which begin `turn` floats behind a line at `y`. What was before
// them in their lines is in `begun`, null: is not ours; what they leave of a line is left in `cut`.
template <int rows, int vectors>
HWY_INLINE void store_turned(const SizedVector (&values)[rows][vectors], float* y, std::int64_t y_step,
                             std::int64_t used, std::int64_t turn, const float* begun, float* cut) {
  const Floats d;
  const auto lanes = turn_by(turn);
  const auto before = hn::FirstN(d, static_cast<std::size_t>(turn));
  CONVTUNE_UNROLL
  for (int i = 0; i < rows; ++i) {
    if (i >= used) break;
    float* const line = y + i * y_step - turn;
    Vector last = hn::TableLookupLanes(Vector(values[i][0]), lanes);
    if (begun != nullptr)
      store_past_caches(hn::IfThenElse(before, hn::Load(d, begun + i * kLanes), last), line);
    else
      store_lanes(last, line, turn, kLanes);
    CONVTUNE_UNROLL
    for (int v = 1; v < vectors; ++v) {
      const Vector next = hn::TableLookupLanes(Vector(values[i][v]), lanes);
      store_past_caches(hn::IfThenElse(before, last, next), line + v * kLanes);
      last = next;
    }
    hn::Store(last, d, cut + i * kLanes);
  }
}

// Puts two vectors of each row that follow what waits, at `y` and y_pitch behind it; false: they do not.
HWY_INLINE bool join_whole(JoiningRows& rows, const SizedVector (&values)[2][2], const float* y,
                           std::int64_t y_pitch) {
  const WaitingLine(&lines)[2] = rows.lines;
  if (y != lines[0].next() || y + y_pitch != lines[1].next() || lines[0].filled != lines[1].filled ||
      lines[0].begun + lines[1].begun != 0)
    return false;
  const auto lanes = turn_by(lines[0].filled);
  const auto waiting = hn::FirstN(Floats(), static_cast<std::size_t>(lines[0].filled));
  CONVTUNE_UNROLL
  for (int row = 0; row < 2; ++row) {
    const Vector first = hn::TableLookupLanes(Vector(values[row][0]), lanes),
                 second = hn::TableLookupLanes(Vector(values[row][1]), lanes);
    store_past_caches(hn::IfThenElse(waiting, Vector(rows.floats[row]), first), lines[row].at);
    store_past_caches(hn::IfThenElse(waiting, first, second), lines[row].at + kLanes);
    rows.floats[row] = second;
    rows.lines[row].at += 2 * kLanes;
  }
  return true;
}

// Puts lanes [skip, end) of a vector, which belong to `y` + lane, into the first or the second row.
HWY_INLINE void join_row(JoiningRows& rows, int row, Vector values, float* y, std::int64_t skip,
                         std::int64_t end) {
  const Floats d;
  WaitingLine& line = rows.lines[row];
  if (HWY_UNLIKELY(y + skip != line.next())) {
    if (row == 0) close_rows(rows);
    if (y + skip != line.next()) {
      store_waiting(line, rows.floats[row]);
      line.begun = line.filled = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y + skip) %
                                                           kCacheLineBytes / sizeof(float));
      line.at = y + skip - line.filled;
    }
  }
  const Vector turned = hn::TableLookupLanes(values, turn_by(line.filled - skip));
  const Vector joined =
      hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(line.filled)), Vector(rows.floats[row]), turned);
  line.filled += end - skip;
  rows.floats[row] = joined;
  if (line.filled < kLanes) return;
  if (HWY_LIKELY(line.begun == 0)) {
    store_past_caches(joined, line.at);
  } else if (row == 1) {  // the first row's end is still to come
    store_waiting(rows.kept->second_begins, hn::Load(d, rows.kept->begins));
    rows.kept->second_begins = {line.at, line.begun, kLanes};
    hn::Store(joined, d, rows.kept->begins);
  } else {
    store_lanes(joined, line.at, line.begun, kLanes);
  }
  rows.floats[row] = turned;
  line = {line.at + kLanes, 0, line.filled - kLanes};
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
