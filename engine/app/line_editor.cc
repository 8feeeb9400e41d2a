// SPDX-License-Identifier: Apache-2.0
#include "engine/app/line_editor.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/base/shared_library.h"

#ifdef TALLY_LIBEDIT
#include <histedit.h>
#include <langinfo.h>
#endif

namespace tally::app {
namespace {

// What a wait for the keyboard came to.
enum class Key { kReady, kSignal, kTerminalChanged };

// Until something was typed or a signal has come.
Key WaitForKey() {
  pollfd waiting[] = {{STDIN_FILENO, POLLIN, 0}, {WakeDescriptor(), POLLIN, 0}};
  for (;;) {
    if (Interrupted()) return Key::kSignal;
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) return Key::kReady;  // reading says what is wrong
    if (waiting[1].revents != 0) {
      if (TakeWakeUp()) return Key::kTerminalChanged;
    } else if (waiting[0].revents != 0) {
      return Key::kReady;
    }
  }
}

// A byte from the keyboard; none: its end.
std::optional<char> ReadByte() {
  char c = 0;
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n == 1) return c;
    if (n == 0 || errno != EINTR) return std::nullopt;
  }
}

TypedLine Interruption(std::string text) {
  Note("\n");
  TakeInterrupt();
  return {TypedLine::Kind::kInterrupted, std::move(text)};
}

// The terminal's own line, which only its end makes readable.
class PlainEditor : public LineEditor {
 public:
  TypedLine Read(const std::string& prompt) override {
    Note(prompt);
    for (std::string line;;) {
      const Key key = WaitForKey();
      if (key == Key::kSignal) return Interruption(std::move(line));
      if (key == Key::kTerminalChanged) continue;
      const std::optional<char> c = ReadByte();
      if (c == '\n') return {TypedLine::Kind::kLine, std::move(line)};
      if (c) {
        line += *c;
        continue;
      }
      Note("\n");
      return {line.empty() ? TypedLine::Kind::kEnd : TypedLine::Kind::kLine, std::move(line)};
    }
  }
  void Remember(const std::string&) override {}
};

#ifdef TALLY_LIBEDIT

// histedit.h, editline(3).
struct Libedit {
  // At last the file that was found at build time.
  SharedLibrary file = {"libedit", "libedit2", {"libedit.so.2", "libedit.so.0", "libedit.3.dylib", TALLY_LIBEDIT}};
  decltype(&el_init) init = file.Find("el_init");
  decltype(&el_end) end = file.Find("el_end");
  decltype(&el_set) set = file.Find("el_set");
  decltype(&el_get) get = file.Find("el_get");
  decltype(&el_gets) gets = file.Find("el_gets");
  decltype(&el_line) line = file.Find("el_line");
  decltype(&el_winsertstr) insert = file.Find("el_winsertstr");
  decltype(&el_resize) resize = file.Find("el_resize");
  decltype(&el_source) source = file.Find("el_source");
  decltype(&::history) history = file.Find("history");
  decltype(&::history_init) history_init = file.Find("history_init");
  decltype(&::history_end) history_end = file.Find("history_end");
};

const Libedit& LoadedLibedit() {
  static const Libedit library;
  return library;
}

// The locale of characters, which libedit reads: the user's, or that of UTF-8 where theirs has another encoding.
void SetLocale() {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing else here reads or sets the locale
  if (std::setlocale(LC_CTYPE, "") == nullptr || std::string_view(nl_langinfo(CODESET)) != "UTF-8") {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  // NOLINTEND(concurrency-mt-unsafe)
}

class LibeditEditor : public LineEditor {
 public:
  explicit LibeditEditor(const Libedit& l) : l_(l), edit_(l.init("tally", stdin, stderr, stderr)), history_(l.history_init()) {
    if (edit_ == nullptr || history_ == nullptr) return;
    HistEvent event{};
    constexpr int kRemembered = 1000;
    l_.history(history_, &event, H_SETSIZE, kRemembered);
    l_.history(history_, &event, H_SETUNIQUE, 1);  // a line that is that before it is not kept twice
    l_.set(edit_, EL_CLIENTDATA, this);
    l_.set(edit_, EL_PROMPT, Prompt);
    l_.set(edit_, EL_HIST, l_.history, history_);
    l_.set(edit_, EL_GETCFN, ReadCharacter);
    l_.set(edit_, EL_SIGNAL, 0);
    l_.set(edit_, EL_EDITOR, "emacs");
    l_.set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    l_.set(edit_, EL_BIND, "^I", "ed-insert", nullptr);  // tabs of text that is pasted
    l_.set(edit_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
    l_.source(edit_, nullptr);  // the user's own keys: ~/.editrc, where there is one
    // In vi's mode Escape is a key of its own, and with editing off there are no keys.
    const char* keys = "";
    int edits = 0;
    l_.get(edit_, EL_EDITOR, &keys);
    l_.get(edit_, EL_EDITMODE, &edits);
    takes_pastes_ = edits != 0 && std::string_view(keys) == "emacs" &&
                    l_.set(edit_, EL_ADDFN, "tally-paste", "Text between the marks of a paste", Paste) == 0 &&
                    l_.set(edit_, EL_BIND, kPasteBegin, "tally-paste", nullptr) == 0;
  }
  LibeditEditor(const LibeditEditor&) = delete;
  LibeditEditor& operator=(const LibeditEditor&) = delete;
  ~LibeditEditor() override {
    if (history_ != nullptr) l_.history_end(history_);
    if (edit_ != nullptr) l_.end(edit_);
  }
  bool usable() const { return edit_ != nullptr && history_ != nullptr; }

  TypedLine Read(const std::string& prompt) override {
    prompt_ = prompt;
    interrupted_.reset();
    if (TakeWakeUp()) l_.resize(edit_);  // what came since the last line; the prompt is still to be drawn
    l_.set(edit_, EL_PREP_TERM, 1);      // before the prompt is there: what is typed at it must not meet the terminal's own line
    MarkPastes(true);
    int length = 0;
    const char* const line = l_.gets(edit_, &length);
    MarkPastes(false);
    if (interrupted_) {
      TypedLine left = Interruption(std::move(*interrupted_));
      Note("\x1b[J");  // the rows of the line below the cursor
      return left;
    }
    if (line == nullptr || length <= 0) {
      Note("\n");
      return {TypedLine::Kind::kEnd, {}};
    }
    std::string text(line, static_cast<size_t>(length));
    if (text.ends_with('\n')) text.pop_back();
    return {TypedLine::Kind::kLine, std::move(text)};
  }
  void Remember(const std::string& line) override {
    // libedit goes no further back than a line that is not in the locale's encoding.
    if (std::mbstowcs(nullptr, line.c_str(), 0) == static_cast<size_t>(-1)) return;
    HistEvent event{};
    l_.history(history_, &event, H_ENTER, line.c_str());
  }

 private:
  static LibeditEditor& Of(EditLine* edit) {
    void* self = nullptr;
    LoadedLibedit().get(edit, EL_CLIENTDATA, &self);
    return *static_cast<LibeditEditor*>(self);
  }
  static char* Prompt(EditLine* edit) { return Of(edit).prompt_.data(); }
  // 1: a character, 0: the end, -1: a signal, at which reading ends.
  static int ReadCharacter(EditLine* edit, wchar_t* character) {
    LibeditEditor& self = Of(edit);
    std::mbstate_t state{};
    for (;;) {
      const Key key = WaitForKey();
      if (key == Key::kSignal) {
        const LineInfo* const typed = self.l_.line(edit);
        self.interrupted_.emplace(typed->buffer, typed->lastchar);
        return -1;
      }
      if (key == Key::kTerminalChanged) {
        self.Redraw();
        continue;
      }
      const std::optional<char> c = ReadByte();
      if (!c) return 0;
      const size_t read = std::mbrtowc(character, &*c, 1, &state);  // NOLINT(concurrency-mt-unsafe): the state is ours
      if (read == static_cast<size_t>(-2)) continue;                // more bytes belong to it
      if (read != static_cast<size_t>(-1)) return 1;
      state = {};  // no character of the locale: dropped
    }
  }
  // https://invisible-island.net/xterm/ctlseqs/ctlseqs.html, "Bracketed Paste Mode".
  static constexpr const char* kPasteBegin = "\\e[200~";
  void MarkPastes(bool on) const {
    if (takes_pastes_) Note(on ? "\x1b[?2004h" : "\x1b[?2004l");
  }
  // The key before a paste: what follows is text up to the mark of its end. Of its line ends the last one is dropped.
  static unsigned char Paste(EditLine* edit, int) {
    const std::wstring_view end = L"\x1b[201~";
    std::wstring text;
    while (!text.ends_with(end)) {
      wchar_t c = 0;
      if (ReadCharacter(edit, &c) <= 0) return CC_EOF;
      text += c == L'\r' ? L'\n' : c;
    }
    text.resize(text.size() - end.size());
    std::erase_if(text, [](wchar_t c) { return (c < L' ' && c != L'\n' && c != L'\t') || c == 0x7f; });
    if (text.ends_with(L'\n')) text.pop_back();
    Of(edit).l_.insert(edit, text.c_str());
    return CC_REFRESH;
  }
  void Redraw() {
    l_.resize(edit_);
    MarkPastes(true);                // a shell may have switched them off
    l_.set(edit_, EL_PREP_TERM, 0);  // forgets the modes that it believes in
    l_.set(edit_, EL_PREP_TERM, 1);
    l_.set(edit_, EL_REFRESH);
  }

  const Libedit& l_;
  EditLine* edit_;
  History* history_;
  std::string prompt_;
  bool takes_pastes_ = false;               // the terminal is asked to mark them
  std::optional<std::string> interrupted_;  // what had been typed when a signal came
};

#endif

}  // namespace

std::unique_ptr<LineEditor> NewLineEditor() {
#ifdef TALLY_LIBEDIT
  if (CanMoveCursor(Stream::kError)) {
    const Status& loaded = LoadedLibedit().file.status();
    if (loaded.ok()) {
      SetLocale();
      auto editor = std::make_unique<LibeditEditor>(LoadedLibedit());
      if (editor->usable()) return editor;
    } else {
      Note(loaded.message() + "; lines are read without editing\n");
    }
  }
#else
  if (CanMoveCursor(Stream::kError)) {
    Note(
        "tally was built without libedit: lines are read without editing and history (libedit-dev, CMake option "
        "TALLY_LINE_EDITING)\n");
  }
#endif
  return std::make_unique<PlainEditor>();
}

}  // namespace tally::app
