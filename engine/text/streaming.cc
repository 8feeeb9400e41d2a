#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace tally {

std::string StreamingDecoder::Push(int32_t id) {
  const std::string bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return "";
  const bool drop = first_ && bytes[0] == ' ' && tokenizer_->DropsLeadingSpace();
  first_ = false;
  pending_.append(bytes, drop ? 1 : 0);
  std::string text;
  pending_.erase(0, AppendWholeCharacters(pending_, &text));
  return text;
}

std::string StreamingDecoder::Finish() {
  std::string text;
  if (!pending_.empty()) AppendUtf8(0xFFFD, &text);  // what is held back is one subpart of a character
  pending_.clear();
  return text;
}

}  // namespace tally
