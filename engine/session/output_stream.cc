// SPDX-License-Identifier: Apache-2.0
#include "engine/session/output_stream.h"

#include <algorithm>
#include <utility>

#include "engine/session/stop_filter.h"

namespace tally {
namespace {

class TextStream final : public OutputStream {
 public:
  TextStream(const Tokenizer* tokenizer, bool at_start, const std::vector<std::string>& stop, const StopOptions& options)
      : stops_(stop, options.shown), free_(options.after) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer, at_start);
  }
  void Push(int32_t token, std::vector<OutputPart>* parts) override {
    if (!decoder_) return;
    const std::string text = decoder_->Push(token);
    Add(free_-- > 0 ? stops_.PushThrough(text) : stops_.Push(text), parts);
  }
  void Finish(int32_t, std::vector<OutputPart>* parts) override {
    if (!decoder_ || stops_.stopped()) return;
    std::string text = stops_.Push(decoder_->Finish());
    if (!stops_.stopped()) text += stops_.Finish();
    Add(std::move(text), parts);
  }
  bool stopped() const override { return stops_.stopped(); }
  const std::string& stop() const override { return stops_.stop(); }

 private:
  static void Add(std::string text, std::vector<OutputPart>* parts) {
    if (!text.empty()) parts->push_back({.text = std::move(text)});
  }

  StopFilter stops_;
  int64_t free_;  // tokens that end nothing
  std::optional<StreamingDecoder> decoder_;
};

class AnswerStream final : public OutputStream {
 public:
  AnswerStream(const Tokenizer& tokenizer, std::unique_ptr<OutputParser> parser, const std::vector<std::string>& stop,
               CallOptions calls, const StopOptions& options)
      : tokenizer_(tokenizer),
        parser_(std::move(parser)),
        stops_(stop, options.shown),
        free_(options.after),
        calls_(std::move(calls)),
        decoder_(tokenizer, /*at_start=*/false) {}

  void Push(int32_t token, std::vector<OutputPart>* parts) override {
    if (tokenizer_.IsControl(token)) {
      PushControl(token);
    } else {
      PushText(decoder_.Push(token));
    }
    Deliver(parts);
    --free_;
  }
  void Finish(int32_t end_token, std::vector<OutputPart>* parts) override {
    if (end_token >= 0) PushControl(end_token);
    PushText(decoder_.Finish());
    parser_->Finish(&parts_);
    Deliver(parts);
    if (std::string held = stops_.Finish(); !held.empty()) parts->push_back({.text = std::move(held)});
  }
  bool stopped() const override { return stops_.stopped() || called_all(); }
  const std::string& stop() const override { return stops_.stop(); }

 private:
  void PushText(const std::string& text) {
    if (!text.empty()) parser_->Push({text, false}, &parts_);
  }
  void PushControl(int32_t token) {
    PushText(decoder_.Finish());
    const std::string text = tokenizer_.IsControl(token) ? tokenizer_.ControlText(token) : tokenizer_.TokenBytes(token);
    parser_->Push({text, true}, &parts_);
  }
  bool called_all() const { return calls_.most > 0 && n_calls_ >= *calls_.most; }
  // Passes on the content before the first stop string that cannot be part of one. Drops the parts after the answer has stopped.
  void Deliver(std::vector<OutputPart>* parts) {
    for (OutputPart& part : parts_) {
      if (stopped()) break;
      if (part.kind == OutputPart::Kind::kContent) {
        part.text = free_ > 0 ? stops_.PushThrough(part.text) : stops_.Push(part.text);
      } else if (std::string held = stops_.Finish(); !held.empty()) {
        parts->push_back({.text = std::move(held)});
      }
      if (part.call) {
        std::string& id = part.call->id;
        while (id.empty() || calls_.used_ids.contains(id)) id = calls_.new_id();
        calls_.used_ids.insert(id);
        ++n_calls_;
      }
      parts->push_back(std::move(part));
    }
    parts_.clear();
  }

  const Tokenizer& tokenizer_;
  std::unique_ptr<OutputParser> parser_;
  StopFilter stops_;
  int64_t free_;       // tokens that end nothing
  CallOptions calls_;  // used_ids: those of this answer too
  int64_t n_calls_ = 0;
  StreamingDecoder decoder_;
  std::vector<OutputPart> parts_;  // of the parser
};

}  // namespace

bool BeginsText(const Tokenizer* tokenizer, std::span<const int32_t> prompt) {
  return tokenizer != nullptr && std::all_of(prompt.begin(), prompt.end(), [&](int32_t id) { return tokenizer->IsControl(id); });
}

std::unique_ptr<OutputStream> NewTextStream(const Tokenizer* tokenizer, bool at_start, const std::vector<std::string>& stop,
                                            const StopOptions& options) {
  return std::make_unique<TextStream>(tokenizer, at_start, stop, options);
}

std::unique_ptr<OutputStream> NewAnswerStream(const Tokenizer& tokenizer, std::unique_ptr<OutputParser> parser,
                                              const std::vector<std::string>& stop, CallOptions calls,
                                              const StopOptions& options) {
  return std::make_unique<AnswerStream>(tokenizer, std::move(parser), stop, std::move(calls), options);
}

}  // namespace tally
