// SPDX-License-Identifier: Apache-2.0
// The figures of a report's rows, each said once: a table shows them under their headings, documents have them under their keys.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/render/table.h"

namespace tally {

template <class Row>
struct Field {
  const char* key;      // in documents; null: not there
  const char* heading;  // in tables; null: not there
  std::function<Cell(const Row&)> cell;

  template <class Get>
  Field(const char* in_documents, const char* in_tables, Get get)
      : key(in_documents), heading(in_tables), cell([get](const Row& row) { return CellOf(std::invoke(get, row)); }) {}
};
template <class Row>
using Fields = std::vector<Field<Row>>;

// The first column is flush left.
template <class Row>
Table TableOf(std::string title, const Fields<Row>& fields, const std::vector<Row>& rows) {
  Table t{std::move(title), {}, std::vector<std::vector<Cell>>(rows.size()), {true}};
  for (const Field<Row>& field : fields) {
    if (field.heading == nullptr) continue;
    t.columns.emplace_back(field.heading);
    for (size_t i = 0; i < rows.size(); ++i) t.rows[i].push_back(field.cell(rows[i]));
  }
  return t;
}

template <class Row>
Value ObjectOf(const Fields<Row>& fields, const Row& row) {
  Value object = Value::Object();
  for (const Field<Row>& field : fields) {
    if (field.key != nullptr) object[field.key] = field.cell(row).value;
  }
  return object;
}

template <class Row>
Value ObjectsOf(const Fields<Row>& fields, const std::vector<Row>& rows) {
  return Value::ListOf(rows, [&](const Row& row) { return ObjectOf(fields, row); });
}

}  // namespace tally
