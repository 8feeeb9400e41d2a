// SPDX-License-Identifier: Apache-2.0
// A server whose engine plays a script of harmony, for tests of what stands between a model's tokens and a client.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/harmony.h"
#include "tests/serve/served_api.h"
#include "tests/session/fake_engine.h"

namespace tally {

// Bytes, and harmony's control tokens.
class HarmonyTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBytes = 256, kCall = kBytes + 5, kReturn = kBytes + 6;
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const override {
    return EncodeSegments(std::vector<TextSegment>{{text, options.parse_special}});
  }
  Result<std::vector<int32_t>> EncodeSegments(std::span<const TextSegment> segments, size_t = SIZE_MAX) const override {
    std::vector<int32_t> ids;
    for (const auto& [text, parse_special] : segments) {
      for (size_t at = 0; at < text.size();) {
        size_t c = kControl.size();
        for (size_t i = 0; parse_special && i < kControl.size(); ++i) c = text.substr(at).starts_with(kControl[i]) ? i : c;
        ids.push_back(c < kControl.size() ? kBytes + static_cast<int32_t>(c) : static_cast<uint8_t>(text[at]));
        at += c < kControl.size() ? kControl[c].size() : 1;
      }
    }
    return ids;
  }
  std::string ControlText(int32_t id) const override { return IsControl(id) ? TokenBytes(id) : ""; }
  std::string TokenBytes(int32_t id) const override {
    return IsControl(id) ? kControl[static_cast<size_t>(id - kBytes)] : std::string(1, static_cast<char>(id));
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id);
    return text;
  }
  bool DropsLeadingSpace() const override { return false; }
  bool IsControl(int32_t id) const override { return id >= kBytes; }
  int32_t vocab_size() const override { return kBytes + static_cast<int32_t>(kControl.size()); }
  int32_t bos() const override { return -1; }
  std::vector<int32_t> eos() const override { return {kCall, kReturn, kReturn + 1}; }
  std::string Description() const override { return "harmony"; }

 private:
  inline static const std::vector<std::string> kControl = {"<|start|>", "<|message|>", "<|channel|>", "<|constrain|>",
                                                           "<|end|>",   "<|call|>",    "<|return|>",  "<|endoftext|>"};
};

class ScriptedHarmony {
 public:
  // `side`: how the model is talked to, if not by harmony.
  explicit ScriptedHarmony(ChatSide side = {MakeHarmonyFormat(), {}})
      : engine_(std::make_unique<FakeEngine>(HarmonyTokenizer().vocab_size(), /*context=*/1 << 16)) {
    auto tokenizer = std::make_unique<HarmonyTokenizer>();
    tokenizer_ = tokenizer.get();
    FakeModel& model = engine_->fake_model();
    model.tokenizer_ = std::move(tokenizer);
    model.recipe_.eos_tokens = ends_ = tokenizer_->eos();
    engine_->batch = 4096;
    engine_->room = 1 << 20;
    engine_->next = [this](int32_t last, int64_t) { return Next(last); };
    served_.engine = engine_.get();
    served_.name = "gpt-oss";
    served_.sampling.temperature = 0;
    served_.chat = served_.tool_chat = std::move(side);
    api_ = std::make_unique<ServedApi>(served_);
  }

  // What the model says from now on, over and over; no request runs.
  void Say(std::string_view text) {
    script_ = *tokenizer_->EncodeSegments(std::vector<TextSegment>{{text, true}});
    at_ = 0;
  }

  const ServedApi& api() const { return *api_; }

 private:
  // Goes on behind `last` where that is what the script says next, though it was not drawn: a grammar left no other token. An answer that
  // nothing may follow ends without its end token.
  int32_t Next(int32_t last) {
    constexpr size_t kMostForced = 8;
    const auto said = [&](size_t at) { return script_[at % script_.size()]; };
    const auto is_end = [&](int32_t token) { return std::ranges::find(ends_, token) != ends_.end(); };
    if (at_ > 0 && said(at_ - 1) != last && !is_end(said(at_ - 1))) {
      size_t next = at_;
      while (next < at_ + kMostForced && said(next) != last && !is_end(said(next))) ++next;
      if (said(next) == last || is_end(said(at_))) at_ = next + 1;
    }
    return script_[at_++ % script_.size()];
  }

  std::unique_ptr<FakeEngine> engine_;
  const HarmonyTokenizer* tokenizer_ = nullptr;
  std::vector<int32_t> script_;
  size_t at_ = 0;
  std::vector<int32_t> ends_;
  ServedModel served_;
  std::unique_ptr<ServedApi> api_;
};

}  // namespace tally
