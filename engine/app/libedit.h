// SPDX-License-Identifier: Apache-2.0
// libedit (histedit.h, editline(3)), loaded when a conversation begins, so that no other command waits for it or needs it.
#pragma once

#ifdef TALLY_LIBEDIT

#include <histedit.h>

namespace tally::app {

struct Libedit {
  decltype(&el_init) init = nullptr;
  decltype(&el_end) end = nullptr;
  decltype(&el_set) set = nullptr;
  decltype(&el_get) get = nullptr;
  decltype(&el_gets) gets = nullptr;
  decltype(&el_line) line = nullptr;
  decltype(&el_winsertstr) insert = nullptr;
  decltype(&el_resize) resize = nullptr;
  decltype(&el_source) source = nullptr;
  decltype(&::history) history = nullptr;
  decltype(&::history_init) history_init = nullptr;
  decltype(&::history_end) history_end = nullptr;
};

// Null where it is not installed. The first call also sets the locale of characters (LC_CTYPE), which libedit reads: the user's, or
// that of UTF-8 where theirs has another encoding.
const Libedit* LoadedLibedit();

}  // namespace tally::app

#endif
