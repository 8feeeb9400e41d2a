// SPDX-License-Identifier: Apache-2.0
// Python's two ways to format: "%s" % x (https://docs.python.org/3/library/stdtypes.html#printf-style-string-formatting) and
// "{}".format(x) (https://docs.python.org/3/library/string.html#format-string-syntax). Types are s, r, d, i and f, and % of the second.
#pragma once

#include "engine/base/status.h"
#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/value.h"

namespace tally::jinja {

Result<Value> PercentFormat(Budget* budget, const Text& format, const Value& values);
Result<Value> StrFormat(Budget* budget, const Text& format, const CallArguments& arguments);

}  // namespace tally::jinja
