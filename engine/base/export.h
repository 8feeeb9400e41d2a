// SPDX-License-Identifier: Apache-2.0
// TALLY_API: a symbol of the public interface. Everything else is compiled with hidden visibility, and libtally.so gives out
// nothing that is not marked.
#pragma once

#define TALLY_API __attribute__((visibility("default")))
