// SPDX-License-Identifier: Apache-2.0
// The table of fields: its page, that each row does what it says, and what is made of names without a row.
#include "engine/serve/api_fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "engine/serve/api_request.h"
#include "engine/serve/api_routes.h"

namespace tally {
namespace {

using enum ApiEndpoint;

// Of the rows of one use: "| `name` | endpoints | values that ask for nothing | why |".
std::string Table(FieldUse use) {
  std::string text;
  for (const ApiField& field : ApiFields()) {
    if (field.use != use) continue;
    const std::string object = field.object, place = (object.empty() ? "" : object + ".") + field.name;
    std::string endpoints;
    constexpr const char* kNames[] = {"chat", "completions", "responses", "messages", nullptr, "api/chat", "api/generate"};
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (kNames[i] != nullptr && (field.endpoints >> i & 1) != 0)
        endpoints += (endpoints.empty() ? "" : ", ") + std::string(kNames[i]);
    }
    text += "| `" + place + "` | " + (endpoints == "chat, completions, responses, messages" ? "all" : endpoints) + " |";
    if (use != FieldUse::kTaken) {
      std::string nothing;
      if (*field.nothing != '\0') {
        for (const OrderedJson& value : OrderedJson::parse(field.nothing)) {
          nothing += (nothing.empty() ? "`" : ", `") + value.dump() + "`";
        }
      }
      text += " " + nothing + (nothing.empty() ? "|" : " |") + " " + field.why + " |";
    }
    text += "\n";
  }
  return text;
}

std::string PathTable() {
  std::string text;
  for (const NotServed& other : PathsNotServed()) {
    text += "| " + std::string(other.path) + " | " + std::string(other.why) + " |\n";
  }
  return text;
}

std::string Page() {
  return "# Fields of requests\n\n"
         "Which fields of a body does `tally serve` (and `batch`) take, which does it ignore, and which does it refuse?\n\n"
         "tests/serve/api_fields_test writes this page out of engine/serve/api_fields.cc, the table by which bodies are read.\n\n"
         "Endpoints: chat is /v1/chat/completions, completions /v1/completions, responses /v1/responses, messages /v1/messages "
         "and\n"
         "/v1/messages/count_tokens; api/chat and api/generate are ollama's, and not among \"all\". `messages[].content` is the "
         "field\n"
         "`content` of each object in `messages`.\n\n"
         "* A field that is **taken** is read, and an error if its type or value is wrong.\n"
         "* A **hint** changes no answer that can be given here. It is ignored, and so is any name that is not on this page. The "
         "answer names\n"
         "  what was ignored in a header, `X-Tally-Ignored: verbosity, messages[].parsed`, and so does the request's line of the "
         "log; an answer\n"
         "  of `batch` names it in its response, as `ignored`. With `--strict` such a field is an error.\n"
         "* A field that is **refused** would change the answer in a way that cannot be had. It is an error (400) that names "
         "it.\n"
         "* null asks for nothing, and of a name on this page it is neither refused nor named. So are the values in the second "
         "column "
         "below.\n\n"
         "Tools of other types than function (custom for messages), which a server would run or only their maker's model knows, "
         "are left out\n"
         "and named, `tools[web_search]`, as long as others remain; so are an item web_search_call and unknown values of "
         "`include`.\n"
         "Calls of such tools in a conversation (custom_tool_call, local_shell_call) are read as calls of functions.\n\n"
         "An effort of none or minimal becomes low, and no thinking where the template can leave it out; xhigh and max become "
         "high.\n\n"
         "## Refused\n\n| field | endpoints | asks for nothing | why |\n|---|---|---|---|\n" +
         Table(FieldUse::kRefused) +
         "\n## Hints\n\n| field | endpoints | asks for nothing | why it is one |\n|---|---|---|---|\n" + Table(FieldUse::kHint) +
         "\n## Taken\n\n| field | endpoints |\n|---|---|\n" + Table(FieldUse::kTaken) +
         "\n## Paths of other servers\n\nThey are answered with 404, as is all below them, and with these words.\n\n"
         "| path | why it is not here |\n|---|---|\n" +
         PathTable() +
         "\n## What else differs\n\n"
         "| other servers | here |\n|---|---|\n"
         "| llama.cpp and vLLM leave /v1/models open | with keys, all but / and /health needs one |\n"
         "| vLLM takes any role | system, developer, user, assistant and tool; others are an error that names them |\n"
         "| vLLM hands unknown fields of a part of content to the template | they are ignored, and named |\n"
         "| OpenAI and vLLM refuse `tool_choice` auto without tools | it asks for nothing |\n"
         "| OpenAI refuses the name of a model that it has not | so does a server of several models; one that has one answers to "
         "any name |\n"
         "| vLLM refuses a body whose Content-Type is not JSON's | so does this one, but for none, text/plain and curl's form "
         "type |\n"
         "| llama.cpp can shift a context that is full | an answer ends where the context does |\n"
         "| llama.cpp saves and restores slots when asked | `--cache-dir` keeps what conversations have run |\n";
}

TEST(ApiFields, ThePageIsTheTable) {
  std::ifstream file(std::string(TALLY_SOURCE_DIR) + "/docs/serve_fields.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string expected = Page();
  if (page.str() == expected) return;
  const std::string written = testing::TempDir() + "serve_fields.md";
  std::ofstream(written) << expected;
  ADD_FAILURE() << "docs/serve_fields.md: cp " << written << " docs/serve_fields.md";
}

TEST(ApiFields, RowsAreWhole) {
  std::set<std::string> seen;
  std::string last = "none yet";
  for (const ApiField& field : ApiFields()) {
    SCOPED_TRACE(std::string(field.object) + "." + field.name);
    if (field.object != last) {
      EXPECT_TRUE(seen.insert(field.object).second) << "rows of one object stand together";
    }
    last = field.object;
    EXPECT_NE(field.endpoints, 0);
    EXPECT_EQ(*field.why == '\0', field.use == FieldUse::kTaken);
    if (*field.nothing != '\0') {
      EXPECT_TRUE(OrderedJson::parse(field.nothing).is_array());
    }
    size_t rows = 0;
    for (const ApiField& other : ApiFieldsOf(field.object)) {
      if (std::string(other.name) == field.name && (other.endpoints & field.endpoints) != 0) ++rows;
    }
    EXPECT_EQ(rows, 1u);
  }
}

// A body with all objects that the table names.
OrderedJson Whole(ApiEndpoint endpoint) {
  const char* text = "";
  switch (endpoint) {
    case kChat:
      text = R"({"stream": true, "stream_options": {}, "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, "structured_outputs": {}, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {"role": "assistant", "content": "c", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "d"}]})";
      break;
    case kCompletions:
      text = R"({"prompt": "a", "stream": true, "stream_options": {}, "structured_outputs": {},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}})";
      break;
    case kResponses:
      text =
          R"({"stream": true, "stream_options": {}, "text": {"format": {"type": "json_schema", "schema": {}}}, "structured_outputs": {}, "reasoning": {}, "tools": [{"type": "function", "name": "f"}], "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "c"}, {"type": "refusal", "refusal": "d"}]},
        {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "e"},
        {"type": "local_shell_call", "call_id": "3", "action": {}},
        {"type": "reasoning", "content": []}]})";
      break;
    case kOllamaChat:
      text = R"({"options": {}, "tools": [{"type": "function", "function": {"name": "f"}}], "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "c", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]},
        {"role": "tool", "tool_name": "f", "content": "d"}]})";
      break;
    case kOllamaGenerate: text = R"({"prompt": "a", "options": {}})"; break;
    default:
      text =
          R"({"max_tokens": 1, "system": [{"type": "text", "text": "a"}], "thinking": {"type": "adaptive"}, "structured_outputs": {}, "output_config": {"format": {"type": "json_schema", "schema": {}}},
        "output_format": {"type": "text"},
        "tool_choice": {"type": "auto"}, "tools": [{"name": "f", "input_schema": {}}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "c"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "d"}]}]}]})";
  }
  return OrderedJson::parse(text);
}

// Calls `visit` with each object of `json` at `object`, "messages[].content[]".
void Visit(OrderedJson& json, const std::string& object, const std::function<void(OrderedJson&)>& visit) {
  if (object.empty()) {
    if (json.is_object()) visit(json);
    return;
  }
  if (object.starts_with("[]")) {
    if (!json.is_array()) return;
    for (OrderedJson& element : json) Visit(element, object.substr(object.starts_with("[].") ? 3 : 2), visit);
    return;
  }
  const size_t end = object.find_first_of(".[");
  const std::string name = object.substr(0, end);
  if (!json.is_object() || !json.contains(name)) return;
  std::string rest = end == object.npos ? "" : object.substr(end);
  if (rest.starts_with('.')) rest.erase(0, 1);
  Visit(json[name], rest, visit);
}

struct Outcome {
  std::optional<ApiError> error;
  std::vector<std::string> ignored;
  bool Ignores(const std::string& place) const { return std::find(ignored.begin(), ignored.end(), place) != ignored.end(); }
};

// What comes of the whole body with `value` as `name` of each object at `object`, one after another.
std::vector<Outcome> Outcomes(ApiEndpoint endpoint, const std::string& object, const std::string& name, const OrderedJson& value,
                              bool strict = false) {
  std::vector<Outcome> outcomes;
  for (size_t which = 0;; ++which) {
    OrderedJson body = Whole(endpoint);
    size_t at = 0;
    Visit(body, object, [&](OrderedJson& found) {
      if (at++ == which) found[name] = value;
    });
    if (which >= at) return outcomes;
    ApiRequest request;
    Outcome& outcome = outcomes.emplace_back();
    outcome.error = ParseApiRequest(endpoint, body, &request, strict);
    outcome.ignored = request.ignored;
  }
}

std::string PlaceOf(const std::string& object, const std::string& name) { return (object.empty() ? "" : object + ".") + name; }

constexpr ApiEndpoint kEndpoints[] = {kChat, kCompletions, kResponses, kMessages, kCountTokens, kOllamaChat, kOllamaGenerate};

void ExpectNothing(const ApiField& field, ApiEndpoint endpoint, const OrderedJson& value) {
  for (const bool strict : {false, true}) {
    for (const Outcome& outcome : Outcomes(endpoint, field.object, field.name, value, strict)) {
      EXPECT_FALSE(outcome.error.has_value()) << value << ": " << outcome.error->message;
      EXPECT_FALSE(outcome.Ignores(PlaceOf(field.object, field.name))) << value;
    }
  }
}

TEST(ApiFields, RowsDoWhatTheySay) {
  const OrderedJson odd = {{"odd", {1}}};
  for (const ApiField& field : ApiFields()) {
    for (const ApiEndpoint endpoint : kEndpoints) {
      const std::string place = PlaceOf(field.object, field.name);
      if ((field.endpoints & EndpointBit(endpoint)) == 0) continue;
      SCOPED_TRACE(place + " of endpoint " + std::to_string(static_cast<int>(endpoint)));
      const std::vector<Outcome> outcomes = Outcomes(endpoint, field.object, field.name, odd);
      ASSERT_FALSE(outcomes.empty()) << "the whole body lacks the object";
      bool read = false;
      for (const Outcome& outcome : outcomes) {
        if (field.use == FieldUse::kTaken) {
          read = read || outcome.error || !outcome.Ignores(place);
          continue;
        }
        ASSERT_EQ(outcome.error.has_value(), field.use == FieldUse::kRefused);
        if (field.use == FieldUse::kHint) {
          EXPECT_TRUE(outcome.Ignores(place));
          continue;
        }
        EXPECT_EQ(outcome.error->status, 400);
        EXPECT_EQ(PlaceWithoutIndices(outcome.error->param), place);
        EXPECT_EQ(outcome.error->code, field.code);
      }
      if (field.use == FieldUse::kTaken) {
        EXPECT_TRUE(read) << "nothing reads it";
        continue;
      }
      for (const Outcome& outcome : Outcomes(endpoint, field.object, field.name, odd, /*strict=*/true)) {
        ASSERT_TRUE(outcome.error.has_value());
        EXPECT_EQ(PlaceWithoutIndices(outcome.error->param), place);
      }
      ExpectNothing(field, endpoint, nullptr);
      if (*field.nothing == '\0') continue;
      for (const OrderedJson& value : OrderedJson::parse(field.nothing)) ExpectNothing(field, endpoint, value);
    }
  }
}

// In the body and in every object of it, null or not.
TEST(ApiFields, NamesWithoutARow) {
  std::set<std::string> objects;
  for (const ApiField& field : ApiFields()) objects.insert(field.object);
  for (const ApiEndpoint endpoint : kEndpoints) {
    for (const std::string& object : objects) {
      for (const OrderedJson& value : {OrderedJson(), OrderedJson(1)}) {
        for (const Outcome& outcome : Outcomes(endpoint, object, "no_such", value)) {
          EXPECT_FALSE(outcome.error.has_value()) << object << ": " << outcome.error->message;
          EXPECT_TRUE(outcome.Ignores(PlaceOf(object, "no_such"))) << object;
        }
        for (const Outcome& outcome : Outcomes(endpoint, object, "no_such", value, /*strict=*/true)) {
          ASSERT_TRUE(outcome.error.has_value()) << object;
          EXPECT_EQ(outcome.error->code, "unknown_parameter");
          EXPECT_EQ(PlaceWithoutIndices(outcome.error->param), PlaceOf(object, "no_such"));
        }
      }
    }
  }
}

TEST(ApiFields, NamesAreSafeAndBounded) {
  OrderedJson body = Whole(kCompletions);
  body["a\r\nSet-Cookie: b, \xc3\xa9\x7f"] = 1;
  body[std::string(5000, 'x')] = 1;
  for (int i = 0; i < 1000; ++i) body["n" + std::to_string(i)] = i;
  ApiRequest request;
  ASSERT_FALSE(ParseApiRequest(kCompletions, body, &request));
  ASSERT_EQ(request.ignored.size(), 41u);
  EXPECT_EQ(request.ignored.front(), "a??Set-Cookie: b? ???");
  EXPECT_EQ(request.ignored[1], std::string(80, 'x') + "...");
  EXPECT_EQ(request.ignored.back(), "...");
}

// Tools of a server are left out and named, unless nothing remains, or a call of one is forced.
TEST(ApiFields, HostedTools) {
  const struct {
    ApiEndpoint endpoint;
    const char* tool;
    const char* hosted;
    const char* named;
  } cases[] = {
      {kChat, R"({"type": "function", "function": {"name": "f"}})", R"({"type": "custom", "custom": {"name": "g"}})",
       "tools[custom]"},
      {kResponses, R"({"type": "function", "name": "f"})", R"({"type": "web_search"})", "tools[web_search]"},
      {kMessages, R"({"name": "f", "input_schema": {}})", R"({"type": "bash_20250124", "name": "bash"})", "tools[bash_20250124]"},
  };
  for (const auto& c : cases) {
    const OrderedJson tool = OrderedJson::parse(c.tool), hosted = OrderedJson::parse(c.hosted);
    OrderedJson body = Whole(c.endpoint);
    body["tools"] = {hosted, tool};
    ApiRequest request;
    std::optional<ApiError> error = ParseApiRequest(c.endpoint, body, &request);
    ASSERT_FALSE(error.has_value()) << error->message;
    EXPECT_EQ(request.chat.tools.size(), 1u);
    EXPECT_EQ(request.ignored, std::vector<std::string>{c.named});
    error = ParseApiRequest(c.endpoint, body, &request, /*strict=*/true);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->param, "tools[0].type");
    body["tools"] = OrderedJson::array({hosted});
    error = ParseApiRequest(c.endpoint, body, &request);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->param, "tools[0].type");
    body["tools"] = {hosted, tool};
    body["tool_choice"] =
        c.endpoint == kMessages ? OrderedJson{{"type", "tool"}, {"name", "bash"}} : OrderedJson{{"type", "web_search"}};
    EXPECT_TRUE(ParseApiRequest(c.endpoint, body, &request).has_value());
  }
}

// What clients send is taken, and what is ignored of it is this.
TEST(ApiFields, BodiesOfClients) {
  std::ifstream file(std::string(TALLY_SOURCE_DIR) + "/tests/clients/bodies.json");
  const OrderedJson bodies = OrderedJson::parse(file);
  ASSERT_GT(bodies.size(), 8u);
  for (const OrderedJson& sent : bodies) {
    SCOPED_TRACE(sent["client"]);
    const std::string path = sent["path"];
    const ApiEndpoint endpoint = path == "/v1/messages"                ? kMessages
                                 : path == "/v1/messages/count_tokens" ? kCountTokens
                                                                       : ApiEndpointOf(path).value();
    ApiRequest request;
    const std::optional<ApiError> error = ParseApiRequest(endpoint, sent["body"], &request);
    ASSERT_FALSE(error.has_value()) << error->message;
    EXPECT_EQ(OrderedJson(request.ignored), sent["ignored"]);
    EXPECT_EQ(ParseApiRequest(endpoint, sent["body"], &request, /*strict=*/true).has_value(), !sent["ignored"].empty());
  }
}

}  // namespace
}  // namespace tally
