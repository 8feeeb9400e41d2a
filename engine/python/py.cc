// SPDX-License-Identifier: Apache-2.0
#include "engine/python/py.h"

#include <unistd.h>

#include <atomic>

namespace tally::python {
namespace {

std::atomic<pid_t> threads_of = 0;  // the process that has the engine's threads; 0: there are none

[[noreturn]] void Raise(const char* name, const std::string& message) {
  const py::object type = py::module_::import("tally._errors").attr(name);
  PyErr_SetObject(type.ptr(), Text(message).ptr());
  throw py::error_already_set();
}

bool IsFinalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// A thread that may have nothing of Python any longer.
void StayIfFinalizing() {
  while (IsFinalizing()) pause();
}

}  // namespace

Unlocked::Unlocked() : of_finalizer_(IsFinalizing()), state_(PyEval_SaveThread()) {}

Unlocked::~Unlocked() noexcept(false) {
  if (!of_finalizer_) StayIfFinalizing();
  PyEval_RestoreThread(state_);
}

Locked::Locked() {
  StayIfFinalizing();
  state_ = PyGILState_Ensure();
}

void Throw(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  switch (status.code()) {
    case StatusCode::kUnreadable:
    case StatusCode::kBadInput: Raise("BadInput", status.message());
    case StatusCode::kNoRoom: Raise("NoRoom", status.message());
    case StatusCode::kNotFinite: Raise("NotFinite", status.message());
    case StatusCode::kDisagreement: Raise("Disagreement", status.message());
    case StatusCode::kInterrupted: PyErr_SetNone(PyExc_KeyboardInterrupt); throw py::error_already_set();
    default: Raise("InternalError", status.message());
  }
}

void ThrowType(const std::string& message) {
  PyErr_SetObject(PyExc_TypeError, Text(message).ptr());
  throw py::error_already_set();
}

py::str Text(std::string_view utf8) {
  PyObject* const text = PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "replace");
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

py::object ToPython(const Value& value) {
  return std::visit(
      [](const auto& x) -> py::object {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::nullptr_t>) {
          return py::none();
        } else if constexpr (std::is_same_v<T, std::string>) {
          return Text(x);
        } else if constexpr (std::is_same_v<T, Value::List>) {
          py::list list;
          for (const Value& item : x) list.append(ToPython(item));
          return list;
        } else if constexpr (std::is_same_v<T, Value::Members>) {
          py::dict object;
          for (const auto& [name, member] : x) object[Text(name)] = ToPython(member);
          return object;
        } else {
          return py::cast(x);
        }
      },
      value.variant());
}

void MarkThreads() {
  CheckFork();
  threads_of = getpid();
}

bool IsForked() {
  const pid_t of = threads_of;
  return of != 0 && of != getpid();
}

void CheckFork() {
  if (!IsForked()) return;
  Raise("ForkedError",
        "this process was made by fork() after its parent had used the engine, whose threads do not live here; start processes "
        "with multiprocessing's \"spawn\" or \"forkserver\", or fork before the first model is loaded");
}

}  // namespace tally::python
