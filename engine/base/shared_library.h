// SPDX-License-Identifier: Apache-2.0
// Libraries that are loaded on first use: a program runs without them until it needs them.
#pragma once

#include <initializer_list>
#include <string>

#include "engine/base/status.h"

namespace tally {

class SharedLibrary {
 public:
  // Loads the first of `files` that it can, for the life of the process. Empty names are skipped. Messages show `name` and the Debian
  // package.
  SharedLibrary(std::string name, const char* package, std::initializer_list<const char*> files);

  // A function's address. It converts to the pointer type that it is assigned to; null if the library lacks it.
  struct Address {
    void* address;
    template <class Function>
    operator Function*() const {  // NOLINT(google-explicit-constructor): the type stands where it is assigned to
      return reinterpret_cast<Function*>(address);
    }
  };
  Address Find(const char* function);

  // kBadInput: no file could be loaded (names the package), or one lacks a function that was asked for.
  const Status& status() const { return status_; }

 private:
  std::string name_;
  const char* file_ = nullptr;
  void* handle_ = nullptr;
  Status status_;
};

}  // namespace tally
