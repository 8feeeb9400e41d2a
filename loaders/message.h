// Pieces of the one line that an error is: names out of untrusted files made harmless, system errors in
// words.
#pragma once

#include <string>
#include <string_view>

namespace tally::internal {

// 'name' in quotes, control characters and bytes that are not UTF-8 written as \xNN, cut in the middle where
// it is long.
std::string Quote(std::string_view name);

// The same for a path, without quotes and never cut.
std::string Printable(std::string_view text);

// strerror, thread-safe.
std::string ErrnoText(int error_number);

// The directory part of a path, "." where it has none; and what follows it.
std::string DirectoryOf(const std::string& path);
std::string FileNameOf(const std::string& path);
std::string JoinPath(const std::string& directory, const std::string& name);

}  // namespace tally::internal
