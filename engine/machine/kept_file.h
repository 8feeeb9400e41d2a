// SPDX-License-Identifier: Apache-2.0
// Small files that keep results of one process for later ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tally {

// The text of a regular file of at most 1 MiB; nullopt: there is none, or it cannot be read.
std::optional<std::string> ReadKeptFile(const std::string& path);

// Makes the directory if it is missing, and replaces the file as a whole. False if that fails, which is no error: the contents can be found
// out again. `private_file`: nobody but its owner may read it.
bool WriteKeptFile(const std::string& directory, const std::string& name, std::string_view text, bool private_file = false);

// An id of the running system, different after each start; "" if unknown.
std::string BootId();
// A name that tells this machine from others that share a home directory; "" if unknown.
std::string HostName();

}  // namespace tally
