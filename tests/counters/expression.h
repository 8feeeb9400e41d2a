// SPDX-License-Identifier: Apache-2.0
// Evaluates the formulas that counters/books/form.h prints, from their text alone: sums and differences of products of numbers,
// symbols and parentheses; a space multiplies; "(x / 2)" halves.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <map>
#include <string>

namespace tally::books {

class Expression {
 public:
  Expression(std::string text, const std::map<std::string, uint64_t>& symbols) : text_(std::move(text)), symbols_(symbols) {}

  uint64_t Value() {
    const int64_t v = Sum();
    EXPECT_EQ(at_, text_.size()) << text_;
    return static_cast<uint64_t>(v);
  }

 private:
  bool Eat(const std::string& token) {
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  int64_t Sum() {
    int64_t v = Product();
    for (;;) {
      if (Eat(" + ")) {
        v += Product();
      } else if (Eat(" - ")) {
        v -= Product();
      } else {
        return v;
      }
    }
  }
  int64_t Product() {
    int64_t v = Factor();
    while (at_ + 1 < text_.size() && text_[at_] == ' ' && (std::isalnum(text_[at_ + 1]) != 0 || text_[at_ + 1] == '(')) {
      ++at_;
      v *= Factor();
    }
    if (Eat(" / 2")) {
      EXPECT_EQ(static_cast<int>(v % 2), 0) << text_;
      v /= 2;
    }
    return v;
  }
  int64_t Factor() {
    if (Eat("(")) {
      const int64_t v = Sum();
      EXPECT_TRUE(Eat(")")) << text_ << " at " << at_;
      return v;
    }
    std::string word;
    while (at_ < text_.size() && (std::isalnum(text_[at_]) != 0 || text_[at_] == '_')) word += text_[at_++];
    if (!word.empty() && std::isdigit(word[0]) != 0) return std::stoll(word);
    const auto found = symbols_.find(word);
    EXPECT_TRUE(found != symbols_.end()) << "'" << word << "' in " << text_;
    return found != symbols_.end() ? static_cast<int64_t>(found->second) : 0;
  }

  std::string text_;
  const std::map<std::string, uint64_t>& symbols_;
  size_t at_ = 0;
};

}  // namespace tally::books
