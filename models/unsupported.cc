// SPDX-License-Identifier: Apache-2.0
// Architectures that are known by name and have layers without ops here, so that an error can say why they are refused.
#include <algorithm>
#include <string>

#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kStateSpace = "state-space layers", kLinearAttention = "linear-attention layers",
                           kRecurrent = "recurrent layers", kSparse = "attention to positions that an indexer chooses";

// In lower case, letters and digits only, without "forcausallm" and the like. '*': whatever follows.
struct Unsupported {
  std::string_view name, layers;
};
constexpr Unsupported kUnsupported[] = {
    {"mamba", kStateSpace},
    {"falconmamba", kStateSpace},
    {"jamba*", kStateSpace},
    {"zamba*", kStateSpace},
    {"plamo2", kStateSpace},
    {"hymba", kStateSpace},
    {"phi4flash", kStateSpace},
    {"rwkv*", kLinearAttention},
    {"arwkv*", kLinearAttention},
    {"minimax", kLinearAttention},
    {"minimaxtext01", kLinearAttention},
    {"minimaxm1*", kLinearAttention},
    {"minimaxm3*", kSparse},
    {"deepseek32", kSparse},
    {"deepseek4", kSparse},
    {"glmdsa", kSparse},
    {"glm5next", kLinearAttention},
    {"kimik3", kLinearAttention},
    {"qwen4exp", kSparse},
    {"bailingmoelinear*", kLinearAttention},
    {"recurrentgemma", kRecurrent},
    {"xlstm", kRecurrent},
};

}  // namespace

std::string BareArchitecture(std::string_view architecture) {
  std::string bare;
  for (const char c : architecture) {
    if (c >= 'A' && c <= 'Z') bare += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) bare += c;
  }
  for (const std::string_view ending : {"forcausallm", "forconditionalgeneration", "lmheadmodel", "model"}) {
    if (bare.ends_with(ending)) return bare.substr(0, bare.size() - ending.size());
  }
  return bare;
}

std::string_view UnsupportedLayers(std::string_view architecture) {
  const std::string bare = BareArchitecture(architecture);
  const auto found = std::ranges::find_if(kUnsupported, [&](const Unsupported& u) {
    return u.name.ends_with('*') ? bare.starts_with(u.name.substr(0, u.name.size() - 1)) : bare == u.name;
  });
  return found == std::end(kUnsupported) ? std::string_view() : found->layers;
}

}  // namespace tally
