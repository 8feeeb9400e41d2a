// SPDX-License-Identifier: Apache-2.0
// Which variables a scope sees before it sets them. jinja2 decides that when it compiles: a name that a scope sets, and that neither it
// nor a scope around it read before (in the text), is undefined there until it is set, even where a variable of that name was given.
// (jinja2/idtracking.py; it shows only where a loop or macro inside reads the name first.)
#pragma once

#include "engine/base/status.h"
#include "engine/chat/jinja/ast.h"

namespace tally::jinja {

// Fills `hidden` of every body of a template. An error where too many branches come after too many names.
Status FindHiddenNames(Body* body);

}  // namespace tally::jinja
