// SPDX-License-Identifier: Apache-2.0
// Libraries that are loaded when they are first needed, so that nothing else waits for them or needs them.
#pragma once

#include <initializer_list>
#include <string>

#include "engine/base/status.h"

namespace tally {

class SharedLibrary {
 public:
  // The first of `files` that can be loaded, for the life of the process; an empty name is passed over. `name` and the Debian package
  // are for people.
  SharedLibrary(std::string name, const char* package, std::initializer_list<const char*> files);

  // A function's address, which becomes a pointer of the type that it is assigned to; null where there is none.
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
