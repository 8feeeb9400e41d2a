// SPDX-License-Identifier: Apache-2.0
// Options of Python's calls: dictionaries by the names that tally's structs have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/python/py.h"

namespace tally::python {

// Members that are missing or None leave what they would set. TypeError names a member of another type, BadInput one out of range.
class Options {
 public:
  Options(py::dict dict, std::string of) : dict_(std::move(dict)), of_(std::move(of)) {}

  template <class T>
  void Read(const char* name, T& value) {
    const py::object member = Take(name);
    if (!member.is_none()) Set(name, member, value);
  }
  // One of the names, whose place is the value's number.
  template <class E, class Names>
  void ReadName(const char* name, E& value, const Names& names) {
    std::string given;
    Read(name, given);
    if (given.empty()) return;
    size_t i = 0;
    for (const std::string_view known : names) {
      if (known == given) {
        value = static_cast<E>(i);
        return;
      }
      ++i;
    }
    FailName(name, given, {std::begin(names), std::end(names)});
  }
  py::object Take(const char* name);  // None: it is missing
  void End();                         // TypeError: there are other members

 private:
  void Set(const char* name, const py::object& member, bool& value);
  void Set(const char* name, const py::object& member, int32_t& value);
  void Set(const char* name, const py::object& member, int64_t& value);
  void Set(const char* name, const py::object& member, uint64_t& value);
  void Set(const char* name, const py::object& member, double& value);
  void Set(const char* name, const py::object& member, std::string& value);
  void Set(const char* name, const py::object& member, std::vector<std::string>& value);
  template <class T>
  void Set(const char* name, const py::object& member, std::optional<T>& value) {
    T given{};
    Set(name, member, given);
    value = std::move(given);
  }
  [[noreturn]] void FailName(const char* name, const std::string& given, const std::vector<std::string_view>& names);

  py::dict dict_;
  std::string of_;  // the function, for messages
  std::vector<std::string> known_;
};

EngineOptions EngineOptionsOf(Options& options);  // reads, and leaves others for End
void ReadSampling(Options& options, SamplingOptions* sampling);
void CheckDraft(const Engine& engine, int64_t draft);                       // BadInput: the engine has no room for drafts
std::vector<int32_t> TokensOf(const py::handle& tokens, const char* name);  // any iterable of whole numbers
std::string TextOf(const py::handle& text, const char* name);               // str; TypeError otherwise

}  // namespace tally::python
