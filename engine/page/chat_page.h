// SPDX-License-Identifier: Apache-2.0
// The chat that a server gives at "/": one HTML document that asks for nothing else but the server's own endpoints.
//
//   GET  /v1/models, POST /v1/chat/completions   as OpenAI has them; streamed, with the header X-Tally: 1
//   GET  /live                                   live_figures.h
#pragma once

#include <string>

namespace tally {

struct ChatPage {
  std::string html;  // UTF-8, less than 400 KB; served as text/html; charset=utf-8
  // Value of the header Content-Security-Policy: the document's own scripts and styles by their hashes, requests to the same origin, and
  // nothing else. The document may not be framed.
  std::string content_security_policy;
};

// The same each time. Without marked and DOMPurify (the build's TALLY_MARKDOWN) answers are shown as plain text.
ChatPage MakeChatPage();

}  // namespace tally
