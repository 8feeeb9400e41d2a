// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>

#include "engine/base/system_error.h"

// Linux: sched_setaffinity(2), proc(5), and Documentation/ABI/stable/sysfs-devices-system-cpu.

namespace tally {
namespace {

namespace fs = std::filesystem;

std::atomic<int> core_limit{0};

struct Mask {
  std::array<cpu_set_t, CoreSet::kMax / CPU_SETSIZE> words{};  // one long set
};

CoreSet FromMask(const Mask& mask) {
  CoreSet set;
  for (int core = 0; core < CoreSet::kMax; ++core) {
    if (CPU_ISSET_S(static_cast<size_t>(core), sizeof mask.words, mask.words.data())) set.Add(core);
  }
  return set;
}

CoreSet CoresOfProcess(pid_t pid) {
  Mask mask;
  return ::sched_getaffinity(pid, sizeof mask.words, mask.words.data()) == 0 ? FromMask(mask) : CoreSet();
}

// The number that a file begins with; -1 if there is none.
int ReadInt(const fs::path& path) {
  std::ifstream in(path);
  int n = -1;
  return in >> n ? n : -1;
}

int NodeOf(const fs::path& cpu) {  // .../cpu3/node0
  std::error_code error;
  for (auto at = fs::directory_iterator(cpu, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    int node = 0;
    if (name.starts_with("node") && std::from_chars(name.data() + 4, name.data() + name.size(), node).ec == std::errc())
      return node;
  }
  return 0;
}

// "PID (name) state parent ..."; the name may hold anything.
struct ProcessLine {
  std::string name;
  pid_t parent = 0;
};
ProcessLine ReadProcess(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t open = text.find('('), close = text.rfind(')');
  ProcessLine line;
  if (open == text.npos || close == text.npos || close < open) return line;
  line.name = text.substr(open + 1, close - open - 1);
  std::istringstream rest(text.substr(close + 1));
  char state = 0;
  rest >> state >> line.parent;
  return line;
}

}  // namespace

int CoreSet::count() const {
  int n = 0;
  for (const uint64_t word : words_) n += std::popcount(word);
  return n;
}

std::vector<int> CoreSet::cores() const {
  std::vector<int> all;
  for (int core = 0; core < kMax; ++core) {
    if (has(core)) all.push_back(core);
  }
  return all;
}

CoreSet OwnCores() { return CoresOfProcess(0); }

CoreSet CoresOfLauncher(std::span<const char* const> daemons) {
  constexpr int kGenerations = 16;
  pid_t pid = ::getppid();
  for (int i = 0; i < kGenerations && pid > 1; ++i) {
    const ProcessLine process = ReadProcess(pid);
    if (std::any_of(daemons.begin(), daemons.end(), [&](const char* name) { return process.name == name; })) {
      if (CoreSet set = CoresOfProcess(pid); set.count() > 0) return set;
      break;
    }
    pid = process.parent;
  }
  // The kernel removes cores that the control group forbids from a mask. The thread's own mask is then restored.
  Mask all, own;
  for (int core = 0; core < CoreSet::kMax; ++core) CPU_SET_S(static_cast<size_t>(core), sizeof all.words, all.words.data());
  if (::sched_getaffinity(0, sizeof own.words, own.words.data()) != 0) return {};
  if (::sched_setaffinity(0, sizeof all.words, all.words.data()) != 0) return FromMask(own);
  const CoreSet allowed = OwnCores();
  (void)::sched_setaffinity(0, sizeof own.words, own.words.data());
  return allowed;
}

PhysicalCores PhysicalCoresOf(const CoreSet& set) {
  std::map<std::tuple<int, int, int>, std::vector<int>> found;  // by node, package and first hardware thread
  for (const int core : set.cores()) {
    const fs::path cpu = "/sys/devices/system/cpu/cpu" + std::to_string(core);
    const int first = ReadInt(cpu / "topology/thread_siblings_list");  // "0,64" or "0-1"
    found[{NodeOf(cpu), ReadInt(cpu / "topology/physical_package_id"), first < 0 ? core : first}].push_back(core);
  }
  PhysicalCores cores;
  for (auto& [key, threads] : found) cores.push_back(std::move(threads));
  return cores;
}

CoreSet ShareOfCores(const PhysicalCores& cores, int k, int n) {
  CoreSet share;
  const auto begin = [n](size_t parts, int i) { return parts * static_cast<size_t>(i) / static_cast<size_t>(n); };
  if (cores.size() >= static_cast<size_t>(n)) {
    for (size_t c = begin(cores.size(), k); c < begin(cores.size(), k + 1); ++c) {
      for (const int thread : cores[c]) share.Add(thread);
    }
    return share;
  }
  std::vector<int> threads;
  for (const std::vector<int>& core : cores) threads.insert(threads.end(), core.begin(), core.end());
  if (threads.empty()) return share;
  const size_t first = begin(threads.size(), k), last = std::max(begin(threads.size(), k + 1), first + 1);
  for (size_t t = first; t < last; ++t) share.Add(threads[t]);
  return share;
}

Status UseCores(const CoreSet& set) {
  Mask mask;
  for (const int core : set.cores()) CPU_SET_S(static_cast<size_t>(core), sizeof mask.words, mask.words.data());
  const auto refused = [&] { return SystemError("the system refuses to run this process on its share of the cores", errno); };
  if (::sched_setaffinity(0, sizeof mask.words, mask.words.data()) != 0) return refused();
  // Threads that exist already, such as a library's. One that ends meanwhile is skipped.
  std::error_code error;
  for (auto at = fs::directory_iterator("/proc/self/task", error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    pid_t thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec != std::errc()) continue;
    if (::sched_setaffinity(thread, sizeof mask.words, mask.words.data()) != 0 && errno != ESRCH) return refused();
  }
  return {};
}

void LimitAvailableCores(int cores) { core_limit = cores; }
int CoreLimit() { return core_limit; }

}  // namespace tally
