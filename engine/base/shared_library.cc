// SPDX-License-Identifier: Apache-2.0
#include "engine/base/shared_library.h"

#include <dlfcn.h>

#include <utility>

#include "engine/base/format.h"

namespace tally {

SharedLibrary::SharedLibrary(std::string name, const char* package, std::initializer_list<const char*> files)
    : name_(std::move(name)) {
  std::string why;
  for (const char* file : files) {
    if (*file == '\0') continue;
    handle_ = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      file_ = file;
      return;
    }
    if (why.empty()) why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): thread-local by POSIX
  }
  status_ = BadInput(name_ + " cannot be loaded (Debian, Ubuntu: apt-get install " + package + "): " + Printable(why));
}

SharedLibrary::Address SharedLibrary::Find(const char* function) {
  if (handle_ == nullptr) return {nullptr};
  const Address found{::dlsym(handle_, function)};
  if (found.address == nullptr && status_.ok()) {
    status_ = BadInput(name_ + " cannot be used: " + Printable(file_) + " lacks " + function);
  }
  return found;
}

}  // namespace tally
