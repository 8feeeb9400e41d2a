// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/ast.h"

namespace tally::jinja {
namespace {

class ChildVisitor {
 public:
  explicit ChildVisitor(const std::function<void(const Expression&)>& visit) : visit_(visit) {}

  void operator()(const Constant&) const {}
  void operator()(const Name&) const {}
  void operator()(const TupleDisplay& e) const { All(e.items); }
  void operator()(const ListDisplay& e) const { All(e.items); }
  void operator()(const DictDisplay& e) const {
    for (const auto& [key, value] : e.items) One(key), One(value);
  }
  void operator()(const Attribute& e) const { One(e.object); }
  void operator()(const Item& e) const { One(e.object), One(e.index); }
  void operator()(const Slice& e) const { One(e.object), One(e.start), One(e.stop), One(e.step); }
  void operator()(const Call& e) const { One(e.function), All(e.arguments); }
  void operator()(const Filter& e) const { One(e.value), All(e.arguments); }
  void operator()(const Test& e) const { One(e.value), All(e.arguments); }
  void operator()(const Unary& e) const { One(e.operand); }
  void operator()(const Binary& e) const { One(e.left), One(e.right); }
  void operator()(const Logical& e) const { One(e.left), One(e.right); }
  void operator()(const Concatenation& e) const { All(e.parts); }
  void operator()(const Comparison& e) const {
    One(e.first);
    for (const auto& [op, operand] : e.rest) One(operand);
  }
  void operator()(const Conditional& e) const { One(e.condition), One(e.value), One(e.otherwise); }

 private:
  void One(const ExpressionPtr& child) const {
    if (child != nullptr) visit_(*child);
  }
  void All(const Expressions& children) const {
    for (const ExpressionPtr& child : children) One(child);
  }
  void All(const Arguments& arguments) const {
    All(arguments.positional);
    for (const auto& [name, value] : arguments.named) One(value);
    One(arguments.star);
    One(arguments.stars);
  }

  const std::function<void(const Expression&)>& visit_;
};

}  // namespace

void ForEachChild(const Expression& expression, const std::function<void(const Expression&)>& visit) {
  std::visit(ChildVisitor(visit), expression.node);
}

}  // namespace tally::jinja
