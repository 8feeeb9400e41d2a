// SPDX-License-Identifier: Apache-2.0
#include "engine/session/output_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/session/stop_filter.h"

namespace tally {
namespace {

class TextStream final : public OutputStream {
 public:
  TextStream(const Tokenizer* tokenizer, bool at_start, const std::vector<std::string>& stop) : stops_(stop) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer, at_start);
  }
  void Push(int32_t token, std::vector<OutputPart>* parts) override {
    if (decoder_) Add(stops_.Push(decoder_->Push(token)), parts);
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
  std::optional<StreamingDecoder> decoder_;
};

class AnswerStream final : public OutputStream {
 public:
  AnswerStream(const Tokenizer& tokenizer, std::unique_ptr<OutputParser> parser, const std::vector<std::string>& stop,
               std::set<std::string> call_ids)
      : tokenizer_(tokenizer),
        parser_(std::move(parser)),
        stops_(stop),
        call_ids_(std::move(call_ids)),
        decoder_(tokenizer, /*at_start=*/false) {}

  void Push(int32_t token, std::vector<OutputPart>* parts) override {
    if (tokenizer_.IsControl(token)) {
      PushControl(token);
    } else {
      PushText(decoder_.Push(token));
    }
    Deliver(parts);
  }
  void Finish(int32_t end_token, std::vector<OutputPart>* parts) override {
    if (end_token >= 0) PushControl(end_token);
    PushText(decoder_.Finish());
    parser_->Finish(&parts_);
    Deliver(parts);
    if (std::string held = stops_.Finish(); !held.empty()) parts->push_back({.text = std::move(held)});
  }
  bool stopped() const override { return stops_.stopped(); }
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
  // As templates of Mistral demand: call00001.
  std::string NewCallId() {
    for (;; ++next_call_) {
      const std::string digits = std::to_string(next_call_);
      std::string id = "call" + std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
      if (!call_ids_.contains(id)) return id;
    }
  }
  // Passes on the content before the first stop string that cannot be part of one. Drops the parts after a stop string.
  void Deliver(std::vector<OutputPart>* parts) {
    for (OutputPart& part : parts_) {
      if (stops_.stopped()) break;
      if (part.kind == OutputPart::Kind::kContent) {
        part.text = stops_.Push(part.text);
      } else if (std::string held = stops_.Finish(); !held.empty()) {
        parts->push_back({.text = std::move(held)});
      }
      if (part.call) {
        if (part.call->id.empty()) part.call->id = NewCallId();
        call_ids_.insert(part.call->id);
      }
      parts->push_back(std::move(part));
    }
    parts_.clear();
  }

  const Tokenizer& tokenizer_;
  std::unique_ptr<OutputParser> parser_;
  StopFilter stops_;
  std::set<std::string> call_ids_;  // of the history and of this answer
  size_t next_call_ = 1;            // ids before this one are used
  StreamingDecoder decoder_;
  std::vector<OutputPart> parts_;  // of the parser
};

}  // namespace

bool BeginsText(const Tokenizer* tokenizer, std::span<const int32_t> prompt) {
  return tokenizer != nullptr && std::all_of(prompt.begin(), prompt.end(), [&](int32_t id) { return tokenizer->IsControl(id); });
}

std::unique_ptr<OutputStream> NewTextStream(const Tokenizer* tokenizer, bool at_start, const std::vector<std::string>& stop) {
  return std::make_unique<TextStream>(tokenizer, at_start, stop);
}

std::unique_ptr<OutputStream> NewAnswerStream(const Tokenizer& tokenizer, std::unique_ptr<OutputParser> parser,
                                              const std::vector<std::string>& stop, std::set<std::string> call_ids) {
  return std::make_unique<AnswerStream>(tokenizer, std::move(parser), stop, std::move(call_ids));
}

}  // namespace tally
