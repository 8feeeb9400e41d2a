// SPDX-License-Identifier: Apache-2.0
// Requests to the hub: redirects, who gets the token, what is tried again, and what its answers mean.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/hub/transport.h"
#include "engine/hub/url.h"

namespace tally::hub {

using Poll = std::function<bool()>;  // false: stop

// The hub's own headers about a file, before it redirects to the storage.
struct Reply {
  Exchange exchange;        // of the last answer
  std::string commit;       // X-Repo-Commit
  std::string etag;         // X-Linked-Etag, or the ETag
  std::string linked_size;  // X-Linked-Size
  Status refused;           // why a redirect was not followed
};

class Client {
 public:
  // kBadInput: an endpoint that is no address.
  static Result<Client> Make(const Settings& settings, std::unique_ptr<Transport> transport);

  // One request for `path` ("/api/...", escaped) at the endpoint, redirects followed. `body` gets the bytes of an answer 200 or 206 and
  // says whether it wants more.
  using Body = std::function<bool(const Reply& reply, std::span<const uint8_t> bytes)>;
  Reply Get(const std::string& path, const std::string& range, const Body& body, const Poll& poll);

  // The whole of a small document, attempts included. `what`: ORG/NAME, for messages.
  Result<std::string> GetText(const std::string& path, uint64_t max_bytes, const Name& what, const Poll& poll);

  const Settings& settings() const { return settings_; }
  std::string host() const;  // of the endpoint, as people write it

 private:
  Client(const Settings& settings, Url endpoint, std::unique_ptr<Transport> transport)
      : settings_(settings), endpoint_(std::move(endpoint)), transport_(std::move(transport)) {}
  Settings settings_;
  Url endpoint_;
  std::unique_ptr<Transport> transport_;
};

// Says whether a failed request is tried again, after waiting.
class Attempts {
 public:
  Attempts(const Client& client, std::string what) : client_(client), what_(std::move(what)) {}
  // Ok: the wait is over. Else why there is no other attempt.
  Status Again(const Reply& reply, const Name& name, const Poll& poll);
  void Progressed() { failed_ = 0; }

 private:
  const Client& client_;
  std::string what_;
  int failed_ = 0;
};

// The message with "***" for the token and for any 8 bytes or more of it: servers may send back what they got, and messages cut long
// quotations.
Status WithoutToken(const Status& status, std::string_view token);

// Waits; false: `poll` said to stop.
bool Sleep(double seconds, const Poll& poll);

}  // namespace tally::hub
