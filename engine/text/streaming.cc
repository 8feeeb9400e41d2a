// SPDX-License-Identifier: Apache-2.0
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace tally {

std::string Tokenizer::FirstTokenBytes(int32_t id) const {
  const std::string bytes = TokenBytes(id);
  return DropsLeadingSpace() && bytes.starts_with(' ') ? bytes.substr(1) : bytes;
}

std::string StreamingDecoder::Push(int32_t id) {
  const std::string bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return "";
  pending_ += first_ ? tokenizer_->FirstTokenBytes(id) : bytes;
  first_ = false;
  std::string text;
  pending_.erase(0, AppendWholeCharacters(pending_, &text));
  return text;
}

std::string StreamingDecoder::Finish() {
  std::string text;
  if (!pending_.empty()) AppendUtf8(0xFFFD, &text);  // the held bytes begin one character
  pending_.clear();
  return text;
}

}  // namespace tally
