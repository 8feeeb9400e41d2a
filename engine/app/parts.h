// Where parameters are, coarsely: the rows of tables of parts and the segments of bars.
#pragma once

#include <span>
#include <string_view>

#include "engine/api/tally.h"

namespace tally::app {

// "embedding", "attention", "feed-forward", "experts", "router", "norms", "head".
std::span<const std::string_view> ParameterParts();
// The index of a tensor's part; `expert`: it is one of those that tokens choose among.
size_t PartOf(Component component, bool expert);

}  // namespace tally::app
