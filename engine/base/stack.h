// SPDX-License-Identifier: Apache-2.0
// What a stack of layers is for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tally {

// kPrediction: multi-token prediction, from the text's last hidden state and the next token.
enum class StackKind : uint8_t { kText, kPrediction };
inline constexpr std::array<std::string_view, 2> kStackKindNames = {"text", "prediction"};

}  // namespace tally
