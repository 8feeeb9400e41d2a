// SPDX-License-Identifier: Apache-2.0
// The compiled part of the Python module tally. What people use is in tally/*.py; engine/python/tally/_tally.pyi has the types.
#include "engine/python/py.h"

PYBIND11_MODULE(_tally, module) {
  module.doc() = "The compiled part of tally; its names may change.";
  tally::python::AddModel(module);
  tally::python::AddBooks(module);
}
