// SPDX-License-Identifier: Apache-2.0
#include "engine/app/libedit.h"

#ifdef TALLY_LIBEDIT

#include <dlfcn.h>
#include <langinfo.h>

#include <clocale>
#include <string_view>

namespace tally::app {
namespace {

template <class F>
bool Find(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  return function != nullptr;
}

bool Load(Libedit* l) {
  void* handle = nullptr;
  // At last the file that was found at build time.
  for (const char* name : {"libedit.so.2", "libedit.so.0", "libedit.3.dylib", TALLY_LIBEDIT}) {
    if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) return false;
  const bool all = Find(handle, "el_init", l->init) && Find(handle, "el_end", l->end) && Find(handle, "el_set", l->set) &&
                   Find(handle, "el_get", l->get) && Find(handle, "el_gets", l->gets) && Find(handle, "el_line", l->line) &&
                   Find(handle, "el_winsertstr", l->insert) && Find(handle, "el_resize", l->resize) &&
                   Find(handle, "el_source", l->source) && Find(handle, "history", l->history) &&
                   Find(handle, "history_init", l->history_init) && Find(handle, "history_end", l->history_end);
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing else here reads or sets the locale
  if (all && (std::setlocale(LC_CTYPE, "") == nullptr || std::string_view(nl_langinfo(CODESET)) != "UTF-8")) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  // NOLINTEND(concurrency-mt-unsafe)
  return all;
}

}  // namespace

const Libedit* LoadedLibedit() {
  static Libedit library;
  static const bool loaded = Load(&library);
  return loaded ? &library : nullptr;
}

}  // namespace tally::app

#endif
