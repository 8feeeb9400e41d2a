// SPDX-License-Identifier: Apache-2.0
// Documents in the language of a schema, their members in whatever order it has them.
#include <set>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/schema_compiler.h"

namespace tally {
namespace {

using Json = SchemaJson;

// Reads a document, its members in whatever order the language has them.
class DocumentReader {
 public:
  DocumentReader(Expressions& e, const SchemaOptions& options) : e_(e), options_(options) {}

  // Ends of `state` after the value.
  Expr Read(Expr state, const Json& value) {
    if (state == Expressions::kNone || ++steps_ > 1'000'000) return Expressions::kNone;
    if (value.is_array()) {
      state = e_.Read(state, "[");
      bool first = true;
      for (const Json& part : value) {
        if (!first) state = e_.Read(state, options_.space == JsonSpace::kNone ? "," : ", ");
        first = false;
        state = Read(state, part);
      }
      return e_.Read(state, "]");
    }
    if (value.is_object()) {
      std::vector<bool> used(value.size());
      std::set<std::pair<std::vector<bool>, Expr>> failed;
      return Members(e_.Read(state, "{"), value, used, failed, 0);
    }
    return e_.Read(state, WrittenJson(value, options_.space));
  }
  bool gave_up() const { return steps_ > 1'000'000; }

 private:
  Expr Members(Expr state, const Json& value, std::vector<bool>& used, std::set<std::pair<std::vector<bool>, Expr>>& failed,
               size_t count) {
    if (state == Expressions::kNone) return state;
    if (count == value.size()) return e_.Read(state, "}");
    if (failed.contains({used, state})) return Expressions::kNone;
    if (count > 0) {
      const Expr after = e_.Read(state, options_.space == JsonSpace::kNone ? "," : ", ");
      if (after == Expressions::kNone) return after;
    }
    size_t i = 0;
    for (auto it = value.begin(); it != value.end(); ++it, ++i) {
      if (used[i]) continue;
      Expr next = count == 0 ? state : e_.Read(state, options_.space == JsonSpace::kNone ? "," : ", ");
      next = e_.Read(next, Json(it.key()).dump() + (options_.space == JsonSpace::kNone ? ":" : ": "));
      next = Read(next, *it);
      if (next == Expressions::kNone) continue;
      used[i] = true;
      const Expr end = Members(next, value, used, failed, count + 1);
      used[i] = false;
      if (end != Expressions::kNone) return end;
    }
    failed.insert({used, state});
    return Expressions::kNone;
  }

  Expressions& e_;
  const SchemaOptions options_;
  uint64_t steps_ = 0;
};

}  // namespace

Result<bool> AcceptsDocument(Expressions& e, Expr root, std::string_view document, const SchemaOptions& options) {
  TALLY_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>("document", std::string(document), kOrderedJsonLimits));
  DocumentReader reader(e, options);
  const Expr end = reader.Read(root, json);
  if (reader.gave_up()) return BadInput("document: too many orders of its members would have to be tried");
  return end != Expressions::kNone && e.MayEnd(end);
}

}  // namespace tally
