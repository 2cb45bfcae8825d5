// Names nearly right: what a person may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convtune/language.h"

namespace convtune {

// "did you mean 'tune'?", "did you mean 'a', 'b' or 'c'?": the one of `names` that is a few letters off, else
// up to three that hold the text, else those that begin as it does. Empty where none of them is near.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& names);

}  // namespace convtune
