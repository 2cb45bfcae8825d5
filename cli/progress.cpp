// The progress line's text and its pace.
#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "convtune/units.h"
#include "output.h"

namespace convtune::cli {
namespace {

constexpr double kRedrawSeconds = 0.1;  // a terminal: as often as the eye can follow
constexpr double kLineSeconds = 5;      // a log: rarely enough to stay readable
constexpr int kLogWidth = 80;           // and short enough
constexpr int kLabelWidth = 28;         // of a problem without a name: what follows matters more

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string progress_text(std::string_view label, const Progress& progress, double seconds_behind) {
  std::string text;
  const double left = progress.eta_seconds + seconds_behind;
  if (left > 0) text = duration_text(left) + " left, ";
  if (seconds_behind > 0 && progress.eta_seconds > 0)
    text += duration_text(progress.eta_seconds) + " of this case, ";
  text += fmt::format("{}: {}", cut(label, kLabelWidth), progress.stage);
  if (progress.total > 0) text += fmt::format(" {}/{}", progress.done, progress.total);
  if (progress.best_us > 0) text += ", best " + time_text(progress.best_us);
  if (progress.best_us > 0 && !progress.best.empty()) text += fmt::format(" ({})", progress.best);
  return text;
}

ProgressLine::ProgressLine(std::FILE* stream, const Style& style, std::function<double()> seconds)
    : stream_(stream), style_(style), seconds_(seconds ? std::move(seconds) : steady_seconds) {
  // A terminal shows the first text at once; a log only what lasts.
  last_ = style_.terminal ? -kRedrawSeconds : seconds_();
}

void ProgressLine::show(std::string_view text) {
  const double now = seconds_();
  if (now - last_ < (style_.terminal ? kRedrawSeconds : kLineSeconds)) return;
  last_ = now;
  const std::string line = printable(text);
  if (style_.terminal) {
    // One column is left free: some terminals wrap as soon as the last one is written.
    put(stream_, fmt::format("\r{}\033[K", style_.width > 1 ? cut(line, style_.width - 1) : line));
    drawn_ = true;
  } else {
    put(stream_, cut(line, kLogWidth) + '\n');
  }
}

void ProgressLine::clear() {
  if (!drawn_) return;
  put(stream_, "\r\033[K");
  drawn_ = false;
}

}  // namespace convtune::cli
