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

Status RunLogits(Engine& engine, std::span<const int32_t> tokens, const LogitsCallbacks& callbacks) {
  TALLY_RETURN_IF_ERROR(CheckTokens(engine, tokens));
  TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::New(engine));
  const size_t piece = static_cast<size_t>(std::max<int64_t>(1, std::min(engine.max_batch(), engine.max_logit_rows())));
  std::vector<BatchRow> rows;
  for (size_t first = 0; first < tokens.size(); first += rows.size()) {
    if (callbacks.interrupted && callbacks.interrupted()) return {StatusCode::kInterrupted, "interrupted"};
    rows.clear();
    for (const int32_t token : tokens.subspan(first, std::min(piece, tokens.size() - first))) {
      rows.push_back({token, sequence.id(), true});
    }
    if (callbacks.begin_step) callbacks.begin_step();
    TALLY_ASSIGN_OR_RETURN(const Mat<const float> logits, engine.StepAll(rows));
    TALLY_RETURN_IF_ERROR(callbacks.take(static_cast<int64_t>(first), logits));
  }
  return {};
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
