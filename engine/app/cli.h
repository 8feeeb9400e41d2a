// SPDX-License-Identifier: Apache-2.0
// Classes of CLI11 that headers name: its own header is large.
#pragma once

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI
