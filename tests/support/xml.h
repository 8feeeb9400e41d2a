// SPDX-License-Identifier: Apache-2.0
// Reads XML as far as the SVG that we write uses it: elements, attributes in double quotes, text, and the references that need no
// declaration.
#pragma once

#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // its own, references resolved
};

class XmlReader {
 public:
  // All elements of a document, in the order in which they begin.
  std::vector<XmlElement> elements;
  std::string error;  // empty: the document is well-formed

  explicit XmlReader(std::string_view text) : text_(text) {
    Space();
    if (Expect("<")) Element();
    Space();
    if (error.empty() && at_ != text_.size()) Fail("something follows the root");
  }

  // The text of every element of this name.
  std::vector<std::string> Texts(std::string_view name) const {
    std::vector<std::string> all;
    for (const XmlElement& e : elements) {
      if (e.name == name) all.push_back(e.text);
    }
    return all;
  }

 private:
  void Fail(const std::string& what) {
    if (error.empty()) error = what + " at '" + std::string(text_.substr(at_, 40)) + "'";
  }
  bool Is(std::string_view s) const { return text_.substr(at_, s.size()) == s; }
  bool Expect(std::string_view s) {
    if (!Is(s)) Fail("no " + std::string(s));
    if (error.empty()) at_ += s.size();
    return error.empty();
  }
  void Space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  std::string Name() {
    const size_t from = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-')) ++at_;
    if (at_ == from) Fail("no name");
    return std::string(text_.substr(from, at_ - from));
  }

  // Up to one of `ends`, references resolved.
  std::string Characters(std::string_view ends) {
    static const std::map<std::string_view, char> kReferences = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}};
    std::string out;
    while (error.empty() && at_ < text_.size() && ends.find(text_[at_]) == ends.npos) {
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c < 0x20 && c != '\n' && c != '\t') Fail("a control character");
      if (c != '&') {
        out += text_[at_++];
        continue;
      }
      const auto known = kReferences.find(text_.substr(at_, text_.find(';', at_) + 1 - at_));
      if (known == kReferences.end()) {
        Fail("an unknown reference");
      } else {
        out += known->second;
        at_ += known->first.size();
      }
    }
    return out;
  }

  void Element() {  // after its '<'
    const size_t self = elements.size();
    elements.push_back({Name(), {}, {}});
    for (Space(); error.empty() && !Is(">") && !Is("/>"); Space()) {
      const std::string name = Name();
      if (!Expect("=\"")) return;
      if (!elements[self].attributes.emplace(name, Characters("\"<")).second) Fail("attribute " + name + " twice");
      if (!Expect("\"")) return;
    }
    if (error.empty() && Is("/>")) {
      at_ += 2;
      return;
    }
    Expect(">");
    while (error.empty()) {
      elements[self].text += Characters("<");
      if (Is("</")) {
        at_ += 2;
        const std::string name = Name();
        if (name != elements[self].name) Fail("</" + name + "> ends <" + elements[self].name + ">");
        Expect(">");
        return;
      }
      if (Expect("<")) Element();
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace tally
