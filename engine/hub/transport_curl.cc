// SPDX-License-Identifier: Apache-2.0
// libcurl is loaded when the hub is first asked: it brings some thirty libraries, for which no other command should wait.
#include "engine/hub/transport.h"

#ifdef TALLY_CURL
#define CURL_DISABLE_TYPECHECK  // the functions are called through pointers
#include <curl/curl.h>
#endif

#include <algorithm>
#include <chrono>

#include "engine/base/shared_library.h"

namespace tally::hub {

std::string_view Response::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

#ifndef TALLY_CURL

Result<std::unique_ptr<Transport>> OpenCurl(const Settings&) {
  return BadInput(
      "this tally was built without libcurl and cannot fetch models: install libcurl4-openssl-dev and build again (CMake option "
      "TALLY_PULL)");
}

#else

namespace {

constexpr size_t kMaxHeaderBytes = size_t{64} << 10;  // of one answer

struct Library {
  // Debian's flavours differ in their TLS library only. The last file is the one found at build time.
  SharedLibrary file = {"libcurl", "libcurl4", {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib", TALLY_CURL}};
  decltype(&curl_global_init) global_init = file.Find("curl_global_init");
  decltype(&curl_easy_init) init = file.Find("curl_easy_init");
  decltype(&curl_easy_cleanup) cleanup = file.Find("curl_easy_cleanup");
  decltype(&curl_easy_reset) reset = file.Find("curl_easy_reset");
  decltype(&curl_easy_setopt) setopt = file.Find("curl_easy_setopt");
  decltype(&curl_easy_perform) perform = file.Find("curl_easy_perform");
  decltype(&curl_easy_getinfo) getinfo = file.Find("curl_easy_getinfo");
  decltype(&curl_easy_strerror) error_text = file.Find("curl_easy_strerror");
  decltype(&curl_slist_append) append = file.Find("curl_slist_append");
  decltype(&curl_slist_free_all) free_all = file.Find("curl_slist_free_all");
  bool begun = file.status().ok() && global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
};

const Library& Curl() {
  static const Library library;
  return library;
}

// What libcurl's callbacks work on.
struct Running {
  Receiver* receiver = nullptr;
  Exchange exchange;
  double stall_seconds = 0;
  size_t header_bytes = 0;
  bool headers_too_long = false, stalled = false;
  curl_off_t bytes = -1;  // that came, at `last`
  std::chrono::steady_clock::time_point last{};
};

size_t OnHeader(char* data, size_t one, size_t n, void* user) {
  auto& r = *static_cast<Running*>(user);
  std::string_view line(data, one * n);
  const size_t taken = line.size();
  r.header_bytes += taken;
  if (r.header_bytes > kMaxHeaderBytes) {
    r.headers_too_long = true;
    return 0;
  }
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // an interim answer (100) may have come before
    r.exchange.response = {};
    const size_t space = line.find(' ');
    for (size_t i = space == line.npos ? line.size() : space + 1; i < line.size() && line[i] >= '0' && line[i] <= '9'; ++i) {
      r.exchange.response.status = std::min(r.exchange.response.status * 10 + (line[i] - '0'), 9999);
    }
    return taken;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return taken;
  std::string name;
  for (const char c : line.substr(0, colon)) name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  line.remove_prefix(colon + 1);
  while (line.starts_with(' ') || line.starts_with('\t')) line.remove_prefix(1);
  r.exchange.response.headers.emplace_back(std::move(name), std::string(line));
  return taken;
}

size_t OnBody(char* data, size_t one, size_t n, void* user) {
  auto& r = *static_cast<Running*>(user);
  if (r.receiver->Body(r.exchange.response, {reinterpret_cast<const uint8_t*>(data), one * n})) return one * n;
  r.exchange.stopped = true;
  return one * n == 0 ? 1 : 0;
}

int OnProgress(void* user, curl_off_t, curl_off_t bytes, curl_off_t, curl_off_t) {
  auto& r = *static_cast<Running*>(user);
  if (!r.receiver->GoOn()) {
    r.exchange.stopped = true;
    return 1;
  }
  const auto now = std::chrono::steady_clock::now();
  if (bytes != r.bytes) {
    r.bytes = bytes;
    r.last = now;
  }
  r.stalled = std::chrono::duration<double>(now - r.last).count() > r.stall_seconds;
  return r.stalled ? 1 : 0;
}

bool IsHopeless(CURLcode code) {
  for (const CURLcode c :
       {CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
        CURLE_SSL_ENGINE_NOTFOUND, CURLE_SSL_CERTPROBLEM, CURLE_OUT_OF_MEMORY, CURLE_WRITE_ERROR}) {
    if (code == c) return true;
  }
  return false;
}

class CurlTransport : public Transport {
 public:
  CurlTransport(CURL* handle, const Settings& settings) : handle_(handle), settings_(settings) {}
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;
  ~CurlTransport() override { Curl().cleanup(handle_); }

  Exchange Send(const Request& request, Receiver& receiver) override {
    const Library& l = Curl();
    Running running;
    running.receiver = &receiver;
    running.stall_seconds = settings_.stall_seconds;
    char words[CURL_ERROR_SIZE] = "";
    l.reset(handle_);
    l.setopt(handle_, CURLOPT_URL, request.url.c_str());
    l.setopt(handle_, CURLOPT_FOLLOWLOCATION, 0L);
    l.setopt(handle_, CURLOPT_NOSIGNAL, 1L);
    l.setopt(handle_, CURLOPT_USERAGENT, "tally");
    l.setopt(handle_, CURLOPT_ERRORBUFFER, words);
    l.setopt(handle_, CURLOPT_HEADERFUNCTION, OnHeader);
    l.setopt(handle_, CURLOPT_HEADERDATA, &running);
    l.setopt(handle_, CURLOPT_WRITEFUNCTION, OnBody);
    l.setopt(handle_, CURLOPT_WRITEDATA, &running);
    l.setopt(handle_, CURLOPT_NOPROGRESS, 0L);
    l.setopt(handle_, CURLOPT_XFERINFOFUNCTION, OnProgress);
    l.setopt(handle_, CURLOPT_XFERINFODATA, &running);
    l.setopt(handle_, CURLOPT_BUFFERSIZE, 256L << 10);
    l.setopt(handle_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(settings_.stall_seconds * 1000));
    if (!settings_.ca_file.empty()) l.setopt(handle_, CURLOPT_CAINFO, settings_.ca_file.c_str());
    if (request.direct) l.setopt(handle_, CURLOPT_NOPROXY, "*");
#if LIBCURL_VERSION_NUM >= 0x073600
    l.setopt(handle_, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // a proxy's headers are not the hub's
#endif
    if (!request.range.empty()) l.setopt(handle_, CURLOPT_RANGE, request.range.c_str());
    curl_slist* headers = nullptr;
    if (!request.token.empty()) headers = l.append(headers, ("Authorization: Bearer " + request.token).c_str());
    if (headers != nullptr) {
      l.setopt(handle_, CURLOPT_HTTPHEADER, headers);
      l.setopt(handle_, CURLOPT_HEADEROPT, static_cast<long>(CURLHEADER_SEPARATE));  // not for a proxy
    }
    const CURLcode code = l.perform(handle_);
    l.free_all(headers);
    Exchange exchange = std::move(running.exchange);
    exchange.whole = code == CURLE_OK;
    if (exchange.whole || exchange.stopped) return exchange;
    exchange.trouble = words[0] != '\0' ? words : l.error_text(code);
    if (running.headers_too_long) exchange.trouble = "headers of more than 64 KiB";
    if (running.stalled) exchange.trouble = "nothing came for a while";
    exchange.hopeless = running.headers_too_long || IsHopeless(code);
    return exchange;
  }

 private:
  CURL* handle_;
  Settings settings_;
};

}  // namespace

Result<std::unique_ptr<Transport>> OpenCurl(const Settings& settings) {
  TALLY_RETURN_IF_ERROR(Status(Curl().file.status()));
  CURL* const handle = Curl().begun ? Curl().init() : nullptr;
  if (handle == nullptr) return BadInput("libcurl cannot be used: it does not begin");
  return std::unique_ptr<Transport>(std::make_unique<CurlTransport>(handle, settings));
}

#endif

}  // namespace tally::hub
