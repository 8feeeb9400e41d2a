// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/logits.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "engine/session/scoped_sequence.h"
#include "loaders/npy.h"

namespace tally {
namespace {

// "attn.q_norm" -> "attn_q_norm", "kv store" -> "kv_store"
std::string FileWord(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c == '.' || c == ' ' || c == '/') c = '_';
  }
  return out;
}

}  // namespace

Status RunTokens(Engine& engine, std::span<const int32_t> tokens, const TokenRun& run) {
  TALLY_RETURN_IF_ERROR(CheckTokens(engine, tokens));
  const bool reuse = !run.prefix_key.empty() && run.logits_from > 0;
  const int64_t n = static_cast<int64_t>(tokens.size());
  TALLY_ASSIGN_OR_RETURN(
      const ScopedSequence sequence,
      reuse ? ScopedSequence::For(engine, run.prefix_key, tokens.first(static_cast<size_t>(std::min(run.logits_from, n))))
            : ScopedSequence::New(engine));
  std::vector<BatchRow> rows;
  for (int64_t first = engine.Length(sequence.id()); first < n; first += static_cast<int64_t>(rows.size())) {
    if (run.interrupted && run.interrupted()) return {StatusCode::kInterrupted, "interrupted"};
    rows.clear();
    int64_t with_logits = 0;
    for (int64_t i = first; i < n && static_cast<int64_t>(rows.size()) < engine.max_batch(); ++i) {
      const bool logits = i >= run.logits_from;
      if (logits && ++with_logits > engine.max_logit_rows()) break;
      if (reuse && i == run.logits_from && !rows.empty()) break;  // a state is remembered where a step ends
      rows.push_back(
          {.token = tokens[static_cast<size_t>(i)], .sequence = sequence.id(), .want_logits = logits, .want_hidden = run.hidden});
    }
    if (run.begin_step) run.begin_step();
    TALLY_ASSIGN_OR_RETURN(const StepOutput out, engine.Step(rows));
    if (const Status* const error = out.ErrorOf(sequence.id())) return *error;
    const int64_t size = static_cast<int64_t>(rows.size());
    if (reuse) {
      engine.Remember(sequence.id(), run.prefix_key, tokens.first(static_cast<size_t>(first + size)), /*states=*/1);
    }
    TALLY_RETURN_IF_ERROR(run.take(first, size, out));
  }
  return {};
}

Status RunLogits(Engine& engine, std::span<const int32_t> tokens, const LogitsCallbacks& callbacks) {
  return RunTokens(engine, tokens,
                   {.take = [&](int64_t first, int64_t, const StepOutput& out) { return callbacks.take(first, out.logits); },
                    .begin_step = callbacks.begin_step,
                    .interrupted = callbacks.interrupted});
}

std::string TapName(Site site, std::string_view op) {
  return (site.layer >= 0 ? "blk." + std::to_string(site.layer) + "." : std::string()) + FileWord(ComponentName(site.component)) +
         "." + FileWord(op);
}

Result<OpDump> OpDump::Create(const std::string& directory) {
  std::error_code error;
  OpDump dump;
  dump.made_ = std::filesystem::create_directories(directory, error);
  if (error) return BadInput(directory + ": cannot be made a directory: " + error.message());
  dump.directory_ = directory;
  return dump;
}

void OpDump::Write(Site site, std::string_view op, Mat<const float> output) {
  if (!status_.ok() || output.empty()) return;  // some ops have nothing to show
  std::string name = TapName(site, op);
  if (const int again = seen_[name]++; again > 0) name += "." + std::to_string(again);
  name += ".npy";
  const std::string path = (std::filesystem::path(directory_) / name).string();
  auto write = [&]() -> Status {
    const auto known = rows_.find(name);
    TALLY_ASSIGN_OR_RETURN(NpyWriter writer, known == rows_.end() ? NpyWriter::Create(path, output.cols)
                                                                  : NpyWriter::Reopen(path, known->second, output.cols));
    TALLY_RETURN_IF_ERROR(writer.Append(output));
    rows_[name] = writer.rows();
    return writer.Close();
  };
  status_ = write();
  if (status_.ok()) return;
  std::error_code ignored;
  for (const auto& [file, rows] : rows_) std::filesystem::remove(std::filesystem::path(directory_) / file, ignored);
  if (made_) std::filesystem::remove(directory_, ignored);  // unless it has something else
}

}  // namespace tally
