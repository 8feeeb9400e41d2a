// SPDX-License-Identifier: Apache-2.0
// Models by their names on the Hugging Face hub: where their files are on this machine, and fetching them.
//
// Files lie in the cache that huggingface_hub has (models--ORG--NAME with blobs, refs and snapshots), so that each finds what the other
// fetched: https://huggingface.co/docs/huggingface_hub/guides/manage-cache. Errors are kBadInput with one line; a token is in none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally::hub {

// ORG/NAME, ORG/NAME:FILE or ORG/NAME:TYPE. FILE is a path in the repository, TYPE the type of a GGUF file: Q4_K_M.
struct Name {
  std::string org, name;
  std::string choice;  // FILE or TYPE; empty: what Plan::files says
  std::string repository() const { return org + "/" + name; }
  std::string text() const { return choice.empty() ? repository() : repository() + ":" + choice; }
};

// kBadInput: not of that form, longer than the hub's names are, or with "..", "--", an absolute path or control characters.
TALLY_API Result<Name> ParseName(std::string_view text);

// What the environment says, by huggingface_hub's variables: HF_ENDPOINT; HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME,
// HOME; HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN; HF_HUB_OFFLINE, or else TRANSFORMERS_OFFLINE. Also
// CURL_CA_BUNDLE, SSL_CERT_FILE: certificates instead of the system's.
struct Settings {
  std::string endpoint = "https://huggingface.co";  // no slash at its end
  std::string cache;                                // the folder of models--ORG--NAME
  // Sent to the endpoint's scheme, host and port alone, and over http only to this machine. Empty: none.
  std::string token;
  Status token_status;  // error of reading the token. Only OpenHub fails with it: the cache needs no token
  std::string ca_file;
  bool offline = false;
  double retry_seconds = 1;   // before the second attempt; doubles with each further one
  double stall_seconds = 30;  // without a byte: the connection is given up, and tried again
  double longest_wait = 120;  // a server that asks for more (Retry-After) is an error
};
using Environment = std::function<const char*(const char* variable)>;  // null: not set
TALLY_API Result<Settings> ReadSettings(const Environment& environment);

struct File {
  std::string path;    // in the repository
  uint64_t size = 0;   // bytes
  std::string digest;  // SHA-256 if it has 64 digits, else git's SHA-1 of the file as a blob: also the blob's name in the cache
};

enum class Want : uint8_t {
  kWeights,
  kConfiguration,  // what counting needs: config.json alone, or the headers of GGUF files
};

// What a name stands for.
//   FILE: that file and, if it is one of several parts (-00001-of-00003), the others.
//   TYPE: the GGUF file of that type, with its parts.
//   Neither: config.json, the tokenizer's files, the chat template and the safetensors files that the index names. Where there are
//   none, the GGUF file of type Q4_K_M, or the only one.
struct Plan {
  Name name;
  Want want = Want::kWeights;
  std::string commit;  // 40 hexadecimal digits
  std::vector<File> files;
  std::string open;       // which of the files a reader is to open; empty: the directory
  bool headers = false;   // kConfiguration of GGUF files: their beginnings only
  uint64_t bytes = 0;     // of the files
  uint64_t missing = 0;   // that are not in the cache yet
  std::string listing{};  // the hub's answer that this was made of; Fetch keeps it for FindCached
};

struct Progress {
  std::string_view file;
  uint64_t done = 0, total = 0;  // bytes of all files; what was there before counts as done
  uint64_t fetched = 0;          // bytes that came over the network
  bool waiting = false;          // for another process that fetches the same file
};
using ProgressCallback = std::function<bool(const Progress&)>;  // false: stop, kInterrupted

// Headers of GGUF files lie in a temporary folder, which is removed with the last copy of this.
struct Fetched {
  std::string path;  // to open: a file or a directory
  std::shared_ptr<void> keep;
};

// A connection to the hub. Belongs to one thread at a time.
class TALLY_API Hub {
 public:
  virtual ~Hub() = default;
  // Asks the hub what the repository has. The index of safetensors is fetched for it.
  virtual Result<Plan> MakePlan(const Name& name, Want want, const ProgressCallback& progress) = 0;
  // Fetches what is missing. A download that was cut off resumes where it ended, in this call (after a wait) or in the next. A file gets
  // its name once its digest is the hub's. Room on the disk is checked first. Processes that fetch one file wait for one another.
  // kInterrupted: what has come so far stays for the next call.
  virtual Result<Fetched> Fetch(const Plan& plan, const ProgressCallback& progress) = 0;
};

// kBadInput: built without libcurl (TALLY_PULL), libcurl cannot be loaded, settings.offline, or token_status is an error.
TALLY_API Result<std::unique_ptr<Hub>> OpenHub(const Settings& settings);

// Looks into the cache only, at the revision that was fetched last. The name stands for the same files as in a plan, since Fetch keeps the
// hub's list of all files. If another program fetched them and there is no list, a name without FILE or TYPE means safetensors only.
// kBadInput: the model is missing or incomplete; the line says what is there.
TALLY_API Result<std::string> FindCached(const Settings& settings, const Name& name, Want want);

// A model in the cache: files that a reader opens together.
struct CachedModel {
  Name name = {};         // the shortest one for which FindCached gives `path`, with TYPE or FILE beside other models
  std::string path = {};  // to open; empty: not all of the model is there
  std::string type = {};  // of a GGUF file, by its name (TypeInFileName)
  uint64_t bytes = 0;     // of its files; of an incomplete one what has come
};
// Sorted by name. A repository without a whole model (a configuration alone, a download that was cut off) is one that is not complete.
TALLY_API Result<std::vector<CachedModel>> ListCached(const Settings& settings);
// The type of weights that the name of a file ends with: "Q4_K_M" of "x-Q4_K_M-00001-of-00002.gguf". Empty: it has none, or no suffix.
TALLY_API std::string TypeInFileName(std::string_view path);
// NAME or NAME:CHOICE, in any case: the repositories of that name in the cache, with the choice. Sorted.
TALLY_API std::vector<Name> FindShortName(const Settings& settings, std::string_view given);

// What Remove deletes.
struct Removal {
  Name name = {};
  std::vector<std::string> files = {};  // and links
  std::string folder = {};              // all of it goes, if no other model of the repository is left; else empty
  uint64_t bytes = 0;                   // that are free then
  std::string cache = {};               // Settings::cache
};
// Of a name without FILE or TYPE the repository's whole folder, all revisions, if it has one model or `all`; else the model's files that no
// other file of the repository shares. kBadInput: it is not in the cache; a file of it is not one that Tally has noted to have written, so
// that another program may want it; a link leads out of the cache; another process is fetching a file of it.
TALLY_API Result<Removal> PlanRemoval(const Settings& settings, const Name& name, bool all = false);
TALLY_API Status Remove(const Removal& removal);

}  // namespace tally::hub
