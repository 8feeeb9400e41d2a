// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/batch_file.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/base/hash.h"
#include "engine/serve/api_object.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestAnswerLine = size_t{256} << 20;  // bytes
constexpr JsonLimits kLineLimits = {.values = kOrderedJsonLimits.values, .members = kOrderedJsonLimits.members, .object = true};

// The texts of some members of an object, without the object. A path is made of keys with dots between: "response.body.model".
class MemberFinder final : public JsonHandler {
 public:
  MemberFinder(std::initializer_list<std::string_view> paths) : paths_(paths) {}
  Status Key(std::string key) override {
    if (keys_.size() > kDeepest) return {};
    keys_.back() = std::move(key);
    if (Path() == paths_.front()) there_ = true;
    return {};
  }
  Status Scalar(JsonScalar value) override {
    if (keys_.empty() || keys_.size() > kDeepest || keys_.back().empty()) return {};
    const std::string path = Path();
    if (std::holds_alternative<std::string>(value) && std::ranges::find(paths_, path) != paths_.end()) {
      texts_[path] = std::move(std::get<std::string>(value));
    }
    return {};
  }
  Status Begin(bool object) override {
    keys_.emplace_back(object ? "" : "[]");
    return {};
  }
  Status End() override {
    keys_.pop_back();
    return {};
  }
  bool there() const { return there_; }  // the first path, whatever its value
  std::optional<std::string> Text(std::string_view path) const {
    const auto found = texts_.find(path);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  static constexpr size_t kDeepest = 3;
  std::string Path() const {
    std::string path = keys_.front();
    for (size_t i = 1; i < keys_.size(); ++i) path += "." + keys_[i];
    return path;
  }
  const std::vector<std::string_view> paths_;
  std::vector<std::string> keys_;  // of the open objects; "[]" of arrays
  bool there_ = false;
  StringMap<std::string> texts_;
};

std::string Hex(uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return digits;
}

std::string LinePlace(const std::string& path, uint64_t number) { return Printable(path) + ":" + std::to_string(number); }

// The custom_id that ReadBatchRequest would find.
std::optional<std::string> CustomIdOf(const TextLine& line) {
  MemberFinder finder({"custom_id"});
  if (line.cut || !ParseJson("", line.text, kLineLimits, finder).ok()) return std::nullopt;
  std::optional<std::string> id = finder.Text("custom_id");
  if (id && id->empty()) id.reset();
  return id;
}

std::string IdText(const std::optional<std::string>& id) { return id ? Quote(*id) : "none"; }

struct NamedLine {
  uint64_t number = 0;
  std::optional<std::string> custom_id = {};
  std::string sum = {};
};

// The requests of a file, by their names.
class RequestLines {
 public:
  static Result<RequestLines> Open(const std::string& path, const std::function<bool()>& interrupted) {
    TALLY_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path, kLongestBatchLine));
    return RequestLines(std::move(reader), interrupted);
  }
  // The next request; none: the file has ended.
  Result<std::optional<NamedLine>> Next() {
    for (;;) {
      if (interrupted_ && interrupted_()) return Status(StatusCode::kInterrupted, "interrupted");
      TALLY_ASSIGN_OR_RETURN(const std::optional<TextLine> line, reader_.Next());
      if (!line) return std::optional<NamedLine>();
      if (!IsBlank(*line)) return std::optional(NamedLine{line->number, CustomIdOf(*line), RequestSum(*line)});
    }
  }

 private:
  RequestLines(LineReader reader, std::function<bool()> interrupted)
      : reader_(std::move(reader)), interrupted_(std::move(interrupted)) {}
  LineReader reader_;
  std::function<bool()> interrupted_;
};

// An id of every request takes eight bytes, whatever its length.
class IdSet {
 public:
  void Add(const std::string& id) { hashes_.push_back(hash_(id)); }
  // Ids that may occur twice.
  std::vector<uint64_t> Suspects() {
    std::sort(hashes_.begin(), hashes_.end());
    std::vector<uint64_t> suspects;
    for (size_t i = 1; i < hashes_.size(); ++i) {
      if (hashes_[i] == hashes_[i - 1] && (suspects.empty() || suspects.back() != hashes_[i])) suspects.push_back(hashes_[i]);
    }
    return suspects;
  }
  uint64_t HashOf(const std::string& id) const { return hash_(id); }

 private:
  StringHash hash_;
  std::vector<uint64_t> hashes_;
};

// Counts the requests. kBadInput: two have one id.
Status CheckIds(const std::string& path, const std::function<bool()>& interrupted, uint64_t* total) {
  IdSet ids;
  TALLY_ASSIGN_OR_RETURN(RequestLines lines, RequestLines::Open(path, interrupted));
  for (;;) {
    TALLY_ASSIGN_OR_RETURN(const std::optional<NamedLine> line, lines.Next());
    if (!line) break;
    ++*total;
    if (line->custom_id) ids.Add(*line->custom_id);
  }
  const std::vector<uint64_t> suspects = ids.Suspects();
  if (suspects.empty()) return {};
  StringMap<uint64_t> seen;
  TALLY_ASSIGN_OR_RETURN(lines, RequestLines::Open(path, interrupted));
  for (;;) {
    TALLY_ASSIGN_OR_RETURN(const std::optional<NamedLine> line, lines.Next());
    if (!line) return {};
    if (!line->custom_id || !std::binary_search(suspects.begin(), suspects.end(), ids.HashOf(*line->custom_id))) continue;
    const auto [first, is_new] = seen.try_emplace(*line->custom_id, line->number);
    if (is_new) continue;
    return BadInput(LinePlace(path, line->number) + ": the custom_id " + Quote(*line->custom_id) + " is that of line " +
                    std::to_string(first->second) + " too: answers are told apart by it");
  }
}

struct Answered {
  std::optional<std::string> custom_id;
  std::string request;  // RequestSum; empty: not known
  BatchOrigin origin;
};

// kBadInput: the line is no answer, or was not written to its end.
Result<Answered> ReadAnswered(const TextLine& line) {
  if (!line.ended || line.cut) return BadInput("it has no end");
  MemberFinder finder({"custom_id", "response.body.model", "tally.request", "tally.model", "tally.settings"});
  TALLY_RETURN_IF_ERROR(ParseJson("", line.text, {.object = true}, finder));
  if (!finder.there()) return BadInput("no custom_id");
  const auto text = [&](std::string_view path) { return finder.Text(path).value_or(""); };
  return Answered{finder.Text("custom_id"),
                  text("tally.request"),
                  {text("response.body.model"), text("tally.model"), text("tally.settings")}};
}

// Adds what a further answer says of its origin.
void Complete(const BatchOrigin& answer, BatchOrigin* all) {
  if (all->name.empty()) all->name = answer.name;
  if (all->model.empty()) all->model = answer.model;
  if (all->settings.empty()) all->settings = answer.settings;
}

// The words of `there` that `now` has not: "temperature=0 kv=f16".
std::string Missing(const std::string& there, const std::string& now) {
  std::string missing;
  const std::string padded = " " + now + " ";
  for (size_t at = 0; at < there.size();) {
    const size_t end = std::min(there.find(' ', at), there.size());
    const std::string word = there.substr(at, end - at);
    if (padded.find(" " + word + " ") == padded.npos) missing += (missing.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return missing;
}

// True if a text may be the beginning of a BatchAnswer. Any other text is not a torn line, and must not be dropped.
bool MayBeginAnswer(std::string_view text) {
  constexpr std::string_view kStart = R"({"id":"batch_req_)";
  return text.starts_with(kStart) || kStart.starts_with(text);
}

// Compares the answers in the plan's file with its requests.
Status FindKept(const std::function<bool()>& interrupted, BatchPlan* plan) {
  const auto refuse = [&](uint64_t number, const std::string& why) {
    return BadInput(LinePlace(plan->answers, number) + ": " + why + ": this is no file of answers to " + Quote(plan->requests) +
                    " that could be continued (--force replaces it)");
  };
  TALLY_ASSIGN_OR_RETURN(RequestLines requests, RequestLines::Open(plan->requests, interrupted));
  TALLY_ASSIGN_OR_RETURN(LineReader answers, LineReader::Open(plan->answers, kLongestAnswerLine));
  TALLY_ASSIGN_OR_RETURN(std::optional<TextLine> next, answers.Next());
  while (next) {
    const TextLine line = std::move(*next);
    TALLY_ASSIGN_OR_RETURN(next, answers.Next());
    const Result<Answered> answered = ReadAnswered(line);
    if (!answered.ok()) {
      const bool last = !next && !line.cut;
      if (!last || (plan->kept == 0 && !MayBeginAnswer(line.text))) return refuse(line.number, "no answer");
      plan->torn_bytes = line.end - plan->kept_bytes;
      return {};
    }
    TALLY_ASSIGN_OR_RETURN(const std::optional<NamedLine> request, requests.Next());
    if (!request) return refuse(line.number, "an answer more than there are requests");
    if (answered->custom_id != request->custom_id) {
      return refuse(line.number, "its custom_id is " + IdText(answered->custom_id) + ", expected " + IdText(request->custom_id));
    }
    if (!answered->request.empty() && answered->request != request->sum) {
      return BadInput(LinePlace(plan->answers, line.number) + ": the request " + IdText(request->custom_id) + ", " +
                      LinePlace(plan->requests, request->number) +
                      ", was another one when it was answered (--force answers all anew)");
    }
    TALLY_RETURN_IF_ERROR(CheckOrigin(LinePlace(plan->answers, line.number), plan->origin, answered->origin));
    Complete(answered->origin, &plan->origin);
    ++plan->kept;
    plan->kept_bytes = line.end;
  }
  return {};
}

}  // namespace

bool IsBlank(const TextLine& line) { return line.text.find_first_not_of(" \t\r") == line.text.npos; }

std::string RequestSum(const TextLine& line) {
  Checksum sum;
  const size_t end = line.text.find_last_not_of(" \t\r") + 1;  // npos + 1 is 0
  const size_t begin = std::min(line.text.find_first_not_of(" \t\r"), end);
  sum.Add(std::string_view(line.text).substr(begin, end - begin));
  return Hex(sum.value());
}

Status CheckOrigin(const std::string& path, const BatchOrigin& there, const BatchOrigin& now) {
  const auto refuse = [&](const std::string& what, const std::string& before, const std::string& after) {
    return BadInput(Printable(path) + ": its answers are of " + what + " (" + Printable(before) + " there, " + Printable(after) +
                    " now): one file has answers of one kind (--force answers all anew)");
  };
  const bool marked = !there.model.empty() && !now.model.empty();
  const bool named = !there.name.empty() && !now.name.empty();
  if (marked ? there.model != now.model : named && there.name != now.name) {
    const bool names_tell = named && there.name != now.name;
    return refuse("another model", names_tell ? there.name : there.model, names_tell ? now.name : now.model);
  }
  if (there.settings.empty() || now.settings.empty() || there.settings == now.settings) return {};
  return refuse("other settings", Missing(there.settings, now.settings), Missing(now.settings, there.settings));
}

BatchRequest ReadBatchRequest(const TextLine& line, bool strict) {
  BatchRequest read;
  const std::string place = "line " + std::to_string(line.number);
  if (line.cut) {
    read.error = ApiError{.message = place + ": longer than " + BytesText(kLongestBatchLine), .code = "invalid_line"};
    return read;
  }
  const Result<OrderedJson> json = ReadJson<OrderedJson>(place, line.text, kLineLimits);
  if (!json.ok()) {
    read.error = ApiError{.message = json.status().message(), .code = "invalid_json_line"};
    return read;
  }
  ApiReading reading;
  ApiObject object(*json, "", &reading);
  read.custom_id = object.Text("custom_id");
  if (read.custom_id && read.custom_id->empty()) read.custom_id.reset();
  if (!read.custom_id)
    object.Fail("custom_id", "is missing: a text by which the answer is told apart", "missing_required_parameter");
  if (object.Text("method").value_or("POST") != "POST") object.Fail("method", "must be POST");
  const std::optional<ApiEndpoint> endpoint = ApiEndpointOf(object.Text("url").value_or(""));
  if (!endpoint) object.Fail("url", "must be /v1/chat/completions, /v1/completions or /v1/responses", "invalid_url");
  const OrderedJson* const body = object.Object("body");
  if (body == nullptr) object.Fail("body", "is missing", "missing_required_parameter");
  object.End();
  read.error = reading.error;
  if (read.error) return read;
  read.error = ParseApiRequest(*endpoint, *body, &read.request, strict);
  if (!read.error && read.request.stream) {
    read.error = ApiError{.message = "stream is not supported in a batch: an answer is one line",
                          .param = "stream",
                          .code = "unsupported_parameter"};
  }
  return read;
}

std::string BatchAnswer(const std::optional<std::string>& custom_id, int status, OrderedJson body, const std::string& id,
                        const std::string& request_id, const std::string& request, const BatchOrigin& origin,
                        const std::vector<std::string>& ignored) {
  OrderedJson line = {{"id", id},
                      {"custom_id", custom_id ? OrderedJson(*custom_id) : OrderedJson()},
                      {"response", {{"status_code", status}, {"request_id", request_id}, {"body", std::move(body)}}},
                      {"error", nullptr},
                      {"tally", {{"request", request}, {"model", origin.model}, {"settings", origin.settings}}}};
  if (!ignored.empty()) line["response"]["ignored"] = ignored;
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Result<BatchPlan> PlanBatch(const std::string& requests, const std::string& answers, bool anew,
                            const std::function<bool()>& interrupted) {
  BatchPlan plan = {.requests = requests, .answers = answers, .anew = anew};
  std::error_code none;
  if (fs::exists(requests, none) && !fs::is_regular_file(requests, none)) {
    return BadInput(Quote(requests) + " is no regular file: requests are read twice");
  }
  TALLY_RETURN_IF_ERROR(CheckIds(requests, interrupted, &plan.total));
  if (!anew && fs::is_regular_file(answers, none)) TALLY_RETURN_IF_ERROR(FindKept(interrupted, &plan));
  return plan;
}

}  // namespace tally
