// SPDX-License-Identifier: Apache-2.0
// What the files of the module share: errors as exceptions, values as Python's, waiting without the interpreter's lock. All of it is
// called with the lock held.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <string>
#include <utility>

#include "engine/api/tally.h"

namespace tally::python {

namespace py = pybind11;

// Throws the exception of tally._errors for the status. kInterrupted: what a signal handler has raised, or else KeyboardInterrupt.
[[noreturn]] void Throw(const Status& status);
[[noreturn]] void ThrowType(const std::string& message);  // TypeError
inline void Check(const Status& status) {
  if (!status.ok()) Throw(status);
}
template <class T>
T Unwrap(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

py::object ToPython(const Value& value);
py::str Text(std::string_view utf8);  // bytes that are no UTF-8 become U+FFFD

// Releases the interpreter's lock (the GIL) while it lives. If the interpreter ends meanwhile, the destructor never returns: the thread may
// not take the lock any more (https://docs.python.org/3/c-api/init.html, "Cautions regarding runtime finalization").
class Unlocked {
 public:
  Unlocked();
  ~Unlocked() noexcept(false);
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  const bool of_finalizer_;  // this thread ends the interpreter: it had the lock when the end had begun
  PyThreadState* const state_;
};

// Takes the interpreter's lock while it lives, for callbacks. The constructor never returns once the interpreter ends.
class Locked {
 public:
  Locked();
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

// Whether a signal handler has raised something, which then is Python's current error.
inline bool SignalRaised() { return PyErr_CheckSignals() != 0; }

// Calls `wait(milliseconds)`, without the interpreter's lock, until it returns true. Between two calls signals are handled. If a handler
// raises an exception (Ctrl-C), calls `stop` and throws it; with `until_over`, it first waits until `wait` returns true.
template <class Wait, class Stop>
void WaitFor(const Wait& wait, const Stop& stop, bool until_over) {
  constexpr std::chrono::milliseconds kBetweenSignals{50};
  const auto waited = [&] {
    const Unlocked unlocked;
    return wait(kBetweenSignals);
  };
  while (!waited()) {
    if (!SignalRaised()) continue;
    py::error_already_set raised;
    stop();
    while (until_over && !waited()) {
    }
    throw raised;  // NOLINT(misc-throw-by-value-catch-by-reference): it is moved
  }
}

// Threads of the engine do not live in a child of fork(), so that nothing of theirs works there. Call MarkThreads before they are started.
// CheckFork throws ForkedError in such a child.
void MarkThreads();
bool IsForked();
void CheckFork();

void StopAll();  // ends the threads of all models: the interpreter is about to end
void AddModel(py::module_& module);
void AddBooks(py::module_& module);

}  // namespace tally::python
