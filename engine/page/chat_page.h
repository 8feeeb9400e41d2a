// SPDX-License-Identifier: Apache-2.0
// The chat that a server gives at "/": one HTML document that asks for nothing else but the server's own endpoints.
//
//   GET  v1/models, POST v1/chat/completions   as OpenAI has them; streamed, with the header X-Tally: 1
//   POST cancel                                api_server.h
//   GET  live                                  live_figures.h
//
// Their paths are beside the page's own, so that it works behind any prefix.
#pragma once

#include <string>

namespace tally {

struct ChatPage {
  std::string html;  // UTF-8, less than 400 KB; served as text/html; charset=utf-8
  // Value of the header Content-Security-Policy: the document's own scripts and styles by their hashes, requests to the same origin, and
  // nothing else. The document may not be framed.
  std::string content_security_policy;
};

// The same each time. Without marked and DOMPurify (the build's TALLY_MARKDOWN) answers are shown as plain text, without KaTeX
// (TALLY_MATHS) formulas as they were written. KaTeX is in the page as a gzip file that the first formula unpacks; the policy has the
// hash of its text, too.
ChatPage MakeChatPage();

}  // namespace tally
