// SPDX-License-Identifier: Apache-2.0
#include "models/catalog/catalog.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/edit_distance.h"
#include "engine/base/format.h"
#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {
namespace {

// kVariant: `config` is what changes in the configuration of `base`.
enum class Kind : uint8_t { kRuns, kCounted, kVariant };
struct Row {
  Kind kind;
  std::string_view name, base;
  PublishedClaim claim;
  std::string_view config;
};

constexpr bool kUnstated = false, kBodyAndPrediction = true;  // PublishedClaim::body_and_prediction

constexpr Row kRows[] = {
#define TALLY_MODEL(name, total, active, non_embedding, source, counts, config) \
  {Kind::kRuns, name, {}, {total, active, non_embedding, source, counts}, config},
#define TALLY_COUNTED(name, total, active, non_embedding, source, counts, config) \
  {Kind::kCounted, name, {}, {total, active, non_embedding, source, counts}, config},
#include "models/catalog/published.inc"
#include "models/catalog/published_m_to_z.inc"
#define TALLY_VARIANT(name, base, total, active, non_embedding, source, changes) \
  {Kind::kVariant, name, base, {total, active, non_embedding, source}, changes},
#include "models/catalog/variants.inc"
};

struct Aliases {
  std::string_view name, names;
};
constexpr Aliases kAliases[] = {
#define TALLY_ALIASES(name, aliases) {name, aliases},
#include "models/catalog/aliases.inc"
};

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// In lower case, without "(text)".
std::string WantedName(std::string_view name) {
  constexpr std::string_view kTextModel = "(text)";
  std::string wanted = Lower(name);
  if (wanted.ends_with(kTextModel)) wanted.resize(wanted.size() - kTextModel.size());
  return wanted;
}

bool IsMark(char c) { return c == '-' || c == '.' || c == '_' || c == ':'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Without marks, but one of any kind between two digits: "llama3.1:8b" and "Llama-3.1-8B" are the same, "opt-13b" and "OPT-1.3B" are
// not.
std::string ComparedName(std::string_view name) {
  std::string compared;
  bool marked = false;
  for (const char c : Lower(name)) {
    if (IsMark(c)) {
      marked = true;
      continue;
    }
    if (marked && IsDigit(c) && !compared.empty() && IsDigit(compared.back())) compared += '.';
    marked = false;
    compared += c;
  }
  return compared;
}

// Without all marks and blanks: to tell what is near.
std::string LettersAndDigits(std::string_view name) {
  std::string letters = Lower(name);
  std::erase_if(letters, [](char c) { return IsMark(c) || c == ' '; });
  return letters;
}

std::vector<std::string_view> Words(std::string_view names) {
  std::vector<std::string_view> words;
  while (!names.empty()) {
    const std::string_view word = names.substr(0, names.find(' '));
    words.push_back(word);
    names.remove_prefix(std::min(names.size(), word.size() + 1));
  }
  return words;
}

// Null: there is none.
const Row* FindRow(std::string_view given) {
  const std::string wanted = ComparedName(WantedName(given));
  std::string_view name;  // that `given` is an alias of
  for (const Aliases& a : kAliases) {
    const std::vector<std::string_view> aliases = Words(a.names);
    if (std::ranges::find(aliases, wanted, ComparedName) != aliases.end()) name = a.name;
  }
  const std::string row_name = name.empty() ? wanted : ComparedName(name);
  const auto found = std::ranges::find(kRows, row_name, [](const Row& row) { return ComparedName(row.name); });
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

std::string NearestCatalogNames(std::string_view given, bool only_near) {
  constexpr size_t kShown = 3, kLongest = 64;  // of a longer text the beginning is enough to tell
  const std::string wanted = LettersAndDigits(given);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const Row& row : kRows) {
    const std::string name = LettersAndDigits(row.name);
    const bool part = !wanted.empty() && (name.find(wanted) != std::string::npos || wanted.find(name) != std::string::npos);
    near.emplace_back(part ? 0 : EditDistance(std::string_view(wanted).substr(0, kLongest), name), row.name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string names;
  for (size_t i = 0; i < kShown; ++i) {
    if (only_near && 3 * near[i].first > wanted.size()) break;
    names += (i == 0 ? "" : ", ") + std::string(near[i].second);
  }
  return names;
}

std::vector<std::string_view> CatalogNames() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    if (row.kind == Kind::kRuns) names.push_back(row.name);
  }
  return names;
}

std::vector<std::string_view> CountedNames() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

std::string_view CatalogName(std::string_view given) {
  const Row* const row = FindRow(given);
  return row == nullptr ? std::string_view() : row->name;
}

std::vector<std::string_view> CatalogAliases(std::string_view name) {
  const auto of = std::ranges::find(kAliases, name, &Aliases::name);
  return of == std::end(kAliases) ? std::vector<std::string_view>() : Words(of->names);
}

size_t CatalogAliasCount() {
  size_t n = 0;
  for (const Aliases& a : kAliases) n += Words(a.names).size();
  return n;
}

bool RunsFromCatalog(std::string_view name) {
  const Row* row = FindRow(name);
  if (row != nullptr && row->kind == Kind::kVariant) row = FindRow(row->base);
  return row != nullptr && row->kind == Kind::kRuns;
}

std::string PublishedConfig(std::string_view name) {
  const Row* const row = FindRow(name);
  if (row == nullptr) return {};
  if (row->kind != Kind::kVariant) return std::string(row->config);
  nlohmann::json config = nlohmann::json::parse(PublishedConfig(row->base));
  config.update(nlohmann::json::parse(row->config), /*merge_objects=*/true);
  return config.dump();
}

Result<CatalogModel> FindCatalogModel(std::string_view name) {
  const Row* const row = FindRow(name);
  if (row == nullptr) {
    return BadInput("no built-in model is called " + Quote(name) + "; the nearest: " + NearestCatalogNames(WantedName(name)));
  }
  const std::string source = "the built-in configuration of " + std::string(row->name);
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadConfigText(PublishedConfig(name), source));
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadFamily(inventory));
  TALLY_ASSIGN_OR_RETURN(const CountTypes types, ReadCountTypes(inventory));
  return CatalogModel{row->name,          std::move(spec.recipe),       types.type, types.expert_type, row->claim,
                      types.other_method, std::move(spec.parts_not_run)};
}

}  // namespace tally
