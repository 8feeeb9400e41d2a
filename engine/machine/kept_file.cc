// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/kept_file.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace tally {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const char* path) {
  std::ifstream in(path);
  std::string line;
  return std::getline(in, line) ? line : "";
}

}  // namespace

std::optional<std::string> ReadKeptFile(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 20;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::string text(kMost + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (in.bad() || text.empty() || text.size() > kMost) return std::nullopt;
  return text;
}

bool WriteKeptFile(const std::string& directory, const std::string& name, std::string_view text, bool private_file) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!fs::is_directory(directory, error)) return false;
  const std::string path = directory + "/" + name, draft = path + "." + std::to_string(::getpid());
  {
    std::ofstream out(draft, std::ios::binary | std::ios::trunc);
    if (private_file) fs::permissions(draft, fs::perms::owner_read | fs::perms::owner_write, error);
    out << text << std::flush;
    if (!out || error) {
      fs::remove(draft, error);
      return false;
    }
  }
  fs::rename(draft, path, error);
  if (!error) return true;
  fs::remove(draft, error);
  return false;
}

std::string BootId() { return FirstLine("/proc/sys/kernel/random/boot_id"); }  // random(4)

std::string HostName() {
  std::array<char, 257> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace tally
