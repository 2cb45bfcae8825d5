// The progress line's text and its pace.
#include "progress.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "output.h"

namespace convtune::cli {
namespace {

constexpr double kRedrawSeconds = 0.1;  // a terminal: as often as the eye can follow
constexpr double kLineSeconds = 5;      // a log: rarely enough to stay readable

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string duration(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(seconds));
  return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

}  // namespace

std::string progress_text(std::string_view label, const Progress& progress) {
  std::string text = fmt::format("{}: {}", label, progress.stage);
  if (progress.total > 0) text += fmt::format(" {}/{}", progress.done, progress.total);
  if (progress.best_us > 0) text += fmt::format(", best {:.4g} us", progress.best_us);
  if (progress.best_us > 0 && !progress.best.empty()) text += fmt::format(" ({})", progress.best);
  if (progress.eta_seconds > 0) text += fmt::format(", {} left", duration(progress.eta_seconds));
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
    put(stream_, line + '\n');
  }
}

void ProgressLine::clear() {
  if (!drawn_) return;
  put(stream_, "\r\033[K");
  drawn_ = false;
}

}  // namespace convtune::cli
