// SPDX-License-Identifier: Apache-2.0
// Answers as models of each format write them, and what is in them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/message.h"

namespace tally {

struct AnswerSample {
  std::string_view format;  // AnswerSyntaxName
  std::string_view signs;   // what is in a template of it
  std::string_view output;
  std::string_view content, reasoning;
  std::vector<ToolCall> calls;
  std::string_view prompt = "<|assistant|>\n";
  std::vector<std::string> tools = {};
};

// A tool of the name f whose parameters have these types.
inline std::string ToolOfTypes(const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::string properties;
  for (const auto& [name, schema] : parameters) properties += (properties.empty() ? "\"" : ", \"") + name + "\": " + schema;
  return R"({"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {)" + properties +
         "}}}}";
}

inline const std::vector<AnswerSample>& AnswerSamples() {
  static constexpr std::string_view kHermes = "<tool_call></tool_call>",
                                    kCoder = "<tool_call><function=", kGlm = "<tool_call><arg_key>";
  static constexpr std::string_view kDeepSeek = "<｜tool▁calls▁begin｜>", kDsml = "<｜DSML｜",
                                    kLlama = "<|start_header_id|>ipython";
  static constexpr std::string_view kSeed = "<seed:tool_call><seed:think>", kGemma4 = "<|tool_call><|channel>";
  static constexpr std::string_view kKimi = "<|tool_calls_section_begin|>", kGranite = "<|start_of_role|><|tool_call|>";
  static constexpr std::string_view kApertus = "<|tools_prefix|><|inner_prefix|>", kLlama4 = "<|header_start|>ipython",
                                    kCommand = "<|START_ACTION|><|START_THINKING|>";
  static constexpr std::string_view kM3 = "]<]minimax[>[<mm:think>", kGigaChat = "<|role_sep|><|message_sep|>",
                                    kFunctionary = ">>>${recipient}", kSolar = "<|tool_call:begin|>",
                                    kHunyuan = "<tool_sep{}>:opensource", kApriel = "<tool_calls>[BEGIN FINAL RESPONSE]";
  static const std::vector<std::string> kTools = {
      ToolOfTypes({{"zip", R"({"type": "string"})"}, {"n", R"({"type": "integer"})"}, {"tags", R"({"type": "array"})"}}),
      R"({"function": {"name": "g"}})", R"({"function": {"name": "a.b"}})", R"({"function": {"name": "get_weather"}})",
      R"({"function": {"name": "get-time"}})"};
  static const std::vector<AnswerSample> kSamples = {
      {"none", "", "Just text.\n  <b>1 < 2</b> [x]\n", "Just text.\n  <b>1 < 2</b> [x]\n", "", {}},
      {"none", "", "<think>\nHm.\n</think>\n\nYes.", "Yes.", "Hm.", {}},
      {"none", "", "The tag <think> opens, </think> closes.", "The tag <think> opens, </think> closes.", "", {}},

      {"Qwen/Hermes",
       kHermes,
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
       "",
       "",
       {{"", "get_weather", R"({"city": "Paris"})"}}},
      {"Qwen/Hermes",
       kHermes,
       "<think>\nTwo calls.\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": {\"b\": [1, 2]}}}\n"
       "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"parameters\": {}}\n</tool_call>",
       "Let me see.",
       "Two calls.",
       {{"", "f", R"({"a": {"b": [1, 2]}})"}, {"", "g", "{}"}}},
      {"Qwen/Hermes", kHermes, "I think so.\n</think>\n\nYes.", "Yes.", "I think so.", {}, "<|im_start|>assistant\n<think>\n"},
      {"Qwen/Hermes", kHermes, "<think>again\n</think>Yes.", "Yes.", "again", {}, "<|im_start|>assistant\n<think>\n"},
      {"Qwen/Hermes", kHermes, "Yes.", "Yes.", "", {}, "<|im_start|>assistant\n<think>\n\n</think>\n\n"},
      {"Qwen/Hermes",
       kHermes,
       "a <tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"\\\"</tool_call>\\\"}\"}}</tool_call> b ",
       "a b ",
       "",
       {{"", "f", R"({"s": "\"</tool_call>\"}"})"}}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>[{\"name\": \"f\"}, {\"arguments\": \"{\\\"x\\\": 1}\", \"name\": \"g\", \"id\": \"7\"}]</tool_call>",
       "",
       "",
       {{"", "f", "{}"}, {"7", "g", R"({"x": 1})"}}},

      // Arguments without a member of their own, and in members of other names.
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{\"name\": \"f\", \"city\": \"Paris\"}</tool_call><tool_call>{\"city\":\"Paris\",\"name\":\"f\",\"days\":3}"
       "</tool_call>",
       "",
       "",
       {{"", "f", R"({"city": "Paris"})"}, {"", "f", R"({"city": "Paris", "days": 3})"}}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{\"name\": \"f\", \"input\": {\"city\": \"Paris\"}}</tool_call>\n<tool_call>{\"args\": {}, \"name\": \"g\"}"
       "</tool_call>\n<tool_call>{\"name\": \"h\", \"input\": \"x\", \"type\": \"house\"}</tool_call>",
       "",
       "",
       {{"", "f", R"({"city": "Paris"})"}, {"", "g", "{}"}, {"", "h", R"({"input": "x", "type": "house"})"}}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"b\": [2]}</tool_call><tool_call>{\"name\": \"f\", "
       "\"arguments\": "
       "{\"a\": 1}, \"a\": 2}</tool_call>",
       "",
       "",
       {{"", "f", R"({"a": 1, "b": [2]})"}, {"", "f", R"({"arguments": {"a": 1}, "a": 2})"}}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{\"name\": \"f\", \"id\": \"7\", \"type\": \"function\"}</tool_call><tool_call>{\"name\": \"g\", \"id\": 7}"
       "</tool_call>",
       "",
       "",
       {{"", "f", R"({"id": "7"})"}, {"7", "g", "{}"}},
       "<|im_start|>assistant\n",
       {ToolOfTypes({{"id", R"({"type": "string"})"}})}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{\"name\": \"f\", \"id\": 7, \"type\": \"function\"}</tool_call>",
       "",
       "",
       {{"", "f", R"({"id": 7, "type": "function"})"}},
       "<|im_start|>assistant\n",
       {ToolOfTypes({{"id", "{}"}, {"type", "{}"}})}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}"
       "</tool_call><tool_call>{\"function\": \"g\", \"parameters\": {}}</tool_call>",
       "",
       "",
       {{"c1", "f", R"({"a": 1})"}, {"", "g", "{}"}}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>\n```json\n{\"name\": \"f\", \"arguments\": {}}\n```\n</tool_call>\n<tool_call>```\n[{\"name\": "
       "\"g\"}]\n```\nDone.",
       "Done.",
       "",
       {{"", "f", "{}"}, {"", "g", "{}"}}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{{\"name\": \"f\", \"arguments\": {\"a\": 1}}}</tool_call><tool_call>{\"name\": \"g\", \"arguments\": {}}}"
       "</tool_call>Done.",
       "Done.",
       "",
       {{"", "f", R"({"a": 1})"}, {"", "g", "{}"}}},
      // Python, and strings that JSON would escape.
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>\n{'name': 'f', 'arguments': {'a': True, 'b': \"it's }\", 'c': '</tool_call>\"}', 'd': [None, "
       "-2.50]}}\n</tool_call>",
       "",
       "",
       {{"", "f", R"({"a": true, "b": "it's }", "c": "</tool_call>\"}", "d": [null, -2.50]})"}}},
      {"Qwen/Hermes",
       kHermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"text\": \"two\nlines, it's \\d\", \"a\": True}}</tool_call>",
       "",
       "",
       {{"", "f", R"({"text": "two\nlines, it's \\d", "a": true})"}}},
      // A call while thinking never ends; one in thinking that ends is thinking.
      {"Qwen/Hermes",
       kHermes,
       "I call, as <tool_call> says.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
       "1}}\n</tool_call>\n<tool_call>\n{\"name\": "
       "\"g\"}\n</tool_call>",
       "",
       "I call, as <tool_call> says.",
       {{"", "f", R"({"a": 1})"}, {"", "g", "{}"}},
       "<|im_start|>assistant\n<think>\n"},
      {"Qwen/Hermes",
       kHermes,
       "<think>\n<tool_call>{\"name\": \"f\"}</tool_call> or\n<tool_call>{\"name\": \"g\"}</tool_call>?\n</think>\n\nNo.",
       "No.",
       "<tool_call>{\"name\": \"f\"}</tool_call> or\n<tool_call>{\"name\": \"g\"}</tool_call>?",
       {}},

      {"Qwen3-Coder",
       kCoder,
       "Hm.\n\n<tool_call>\n<function=f>\n<parameter=a>\n</think\n</parameter>\n</function>\n</tool_call>",
       "",
       "Hm.",
       {{"", "f", R"({"a": "</think"})"}},
       "<|im_start|>assistant\n<think>\n"},
      {"Qwen3-Coder",
       kCoder,
       "<tool_call>\n<function=f>\n{\"a\": 1}\n</function>\n</tool_call>",
       "",
       "",
       {{"", "f", R"({"a": 1})"}}},
      {"Qwen3-Coder",
       kCoder,
       "I'll look.\n<tool_call>\n<function=read_file>\n<parameter=path>\n/tmp/a b.txt\n</parameter>\n<parameter=lines>\n[1, 20]\n"
       "</parameter>\n<parameter=text>\n\n  two\nlines "
       "</function>\n\n</parameter>\n<parameter=all>\nTrue\n</parameter>\n</function>\n"
       "</tool_call>",
       "I'll look.",
       "",
       {{"", "read_file", R"({"path": "/tmp/a b.txt", "lines": [1, 20], "text": "\n  two\nlines </function>\n", "all": true})"}}},
      {"Qwen3-Coder",
       kCoder,
       "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</tool_call>\nDone",
       "Done",
       "",
       {{"", "now", "{}"}, {"", "now", "{}"}}},
      {"Qwen3-Coder",
       kCoder,
       "Thinking.\n</think>\n<tool_call>\n<function=f>\n<parameter=x>\n12345678901234567890123\n</parameter>\n</function>\n</"
       "tool_call>",
       "",
       "Thinking.",
       {{"", "f", R"({"x": 12345678901234567890123})"}},
       "<|im_start|>assistant\n<think>\n"},

      {"Qwen3-Coder",
       kCoder,
       "<tool_call>\n<function=f>\n<parameter=zip>\n90210\n</parameter>\n<parameter=n>\n90210\n</parameter>\n<parameter=tags>\n"
       "[\"a\"]\n</parameter>\n<parameter=other>\n90210\n</parameter>\n</function>\n</tool_call>",
       "",
       "",
       {{"", "f", R"({"zip": "90210", "n": 90210, "tags": ["a"], "other": 90210})"}},
       "<|im_start|>assistant\n",
       kTools},

      {"Seed-OSS",
       kSeed,
       "<seed:think>Let me.<seed:cot_budget_reflect>10 used</seed:cot_budget_reflect></seed:think>\nSure.\n\n<seed:tool_call>\n"
       "<function=search>\n<parameter=q>two\nlines</parameter>\n<parameter=n>3</parameter>\n</function>\n</seed:tool_call>",
       "Sure.",
       "Let me.<seed:cot_budget_reflect>10 used</seed:cot_budget_reflect>",
       {{"", "search", R"({"q": "two\nlines", "n": 3})"}}},

      {"Seed-OSS",
       kSeed,
       "<seed:tool_call>\n<function=write>\n<parameter=text>\n\tx\n\n</parameter>\n</function>\n</seed:tool_call>",
       "",
       "",
       {{"", "write", R"({"text": "\n\tx\n\n"})"}}},

      {"MiniMax",
       "<minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">x \"y\"</parameter>\n<parameter "
       "name=\"b\">[1]</parameter>\n</invoke>\n"
       "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
       "",
       "",
       {{"", "f", R"({"a": "x \"y\"", "b": [1]})"}, {"", "g", "{}"}}},

      {"DeepSeek V3.2",
       kDsml,
       "Plan.</think>Looking.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
       "<｜DSML｜parameter name=\"location\" string=\"true\">杭州</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"zip\" string=\"true\">310000</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" string=\"false\">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "Looking.",
       "Plan.",
       {{"", "get_weather", R"({"location": "杭州", "zip": "310000", "days": 5})"}},
       "<｜Assistant｜><think>"},

      {"DeepSeek V3.2",
       kDsml,
       "Plan.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "",
       "Plan.",
       {{"", "now", "{}"}},
       "<｜Assistant｜><think>"},

      {"DeepSeek",
       kDeepSeek,
       "<think>\nHm\n</"
       "think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
       "\"Paris\"}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>",
       "",
       "Hm",
       {{"", "get_weather", R"({"city": "Paris"})"}, {"", "now", "{}"}}},
      {"DeepSeek",
       kDeepSeek,
       "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
       "\"<｜tool▁call▁end｜>\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g"
       "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "I look.",
       "",
       {{"", "f", R"({"a": "<｜tool▁call▁end｜>"})"}, {"", "g", "{}"}},
       "<｜Assistant｜><think></think>"},

      {"DeepSeek",
       kDeepSeek,
       "Now.<｜tool calls begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool calls end｜>",
       "Now.",
       "",
       {{"", "f", R"({"a": 1})"}}},
      {"DeepSeek",
       kDeepSeek,
       "<｜tool▁calls｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>Done.",
       "Done.",
       "",
       {{"", "f", R"({"a": 1})"}}},

      {"Kimi K2",
       kKimi,
       "I check.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": "
       "\"Oslo\"}"
       "<|tool_call_end|><|tool_call_begin|>functions.a.b:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_"
       "end|>",
       "I check.",
       "",
       {{"functions.get_weather:0", "get_weather", R"({"city": "Oslo"})"}, {"functions.a.b:1", "a.b", "{}"}}},

      {"Kimi K2",
       kKimi,
       "I check. <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{'a': "
       "None}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       "",
       "I check.",
       {{"functions.f:0", "f", R"({"a": null})"}},
       "<|im_assistant|>assistant<|im_middle|><think>"},

      {"Hunyuan",
       "<tool_calls><answer>",
       "<think>\nHm.\n</think>\n<answer>\nIt is <b>warm</b>.\n</answer>",
       "It is <b>warm</b>.",
       "Hm.",
       {}},
      {"Hunyuan",
       "<tool_calls><answer>",
       "<think>\nLook.\n</think>\n<tool_calls>[{\"name\": \"g\", \"arguments\": {\"x\": 1}}]</tool_calls>",
       "",
       "Look.",
       {{"", "g", R"({"x": 1})"}}},
      {"ERNIE",
       "<tool_call><response>",
       "Hm.\n</think>\n\n<response>\nIt is <b>warm</b>.\n</response>\n",
       "It is <b>warm</b>.",
       "Hm.",
       {},
       "<|im_start|>assistant\n<think>\n"},
      {"ERNIE",
       "<tool_call><response>",
       "Hm.\n</think>\n\n<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": 1}}\n</tool_call>\n",
       "",
       "Hm.",
       {{"", "g", R"({"x": 1})"}},
       "<|im_start|>assistant\n<think>\n"},
      // Laguna
      {"GLM",
       "<assistant><tool_call><arg_key></assistant>",
       "Hm.</think>Sure.\n<tool_call>f\n<arg_key>zip</arg_key>\n<arg_value>012</arg_value>\n</tool_call>\n",
       "Sure.",
       "Hm.",
       {{"", "f", R"({"zip": "012"})"}},
       "<assistant>\n<think>",
       kTools},
      // Ling 3: with and without a line feed behind the name
      {"GLM",
       "<role>ASSISTANT</role><|role_end|><tool_call><arg_key>",
       "Hm.\n</think>\n\nSure.\n<tool_call>f<arg_key>zip</arg_key><arg_value>012</arg_value><arg_key>n</arg_key>"
       "<arg_value>7</arg_value></tool_call>\n<tool_call>g\n<arg_key>x</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>\n"
       "<tool_call>get_weather</tool_call>",
       "Sure.",
       "Hm.",
       {{"", "f", R"({"zip": "012", "n": 7})"}, {"", "g", R"({"x": [1]})"}, {"", "get_weather", "{}"}},
       "<role>ASSISTANT</role>\n<think>\n",
       kTools},
      // EXAONE 4
      {"Qwen/Hermes",
       "[|assistant|]<tool_call>",
       "Hm.\n</think>\n\nI look.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"zip\": \"012\"}}</tool_call>\n"
       "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
       "I look.",
       "Hm.",
       {{"", "f", R"({"zip": "012"})"}, {"", "g", "{}"}},
       "[|assistant|]\n<think>\n"},
      {"GLM",
       kGlm,
       "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\nDone.\nBye.",
       "Done.\nBye.",
       "",
       {{"", "f", R"({"n": 7})"}}},
      {"GLM",
       kGlm,
       "<tool_call>f\n<arg_key>zip</arg_key>\n<arg_value>90210</arg_value>\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\n</"
       "tool_call>",
       "",
       "",
       {{"", "f", R"({"zip": "90210", "n": 7})"}},
       "<|assistant|>\n",
       kTools},
      {"GLM",
       kGlm,
       "\n<think>I call.</think>\nOK.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>New York</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>tag</arg_key>\n<arg_value></tool_call></arg_value>\n</"
       "tool_call>\n"
       "<tool_call>now\n</tool_call>\n<tool_call>now</tool_call>",
       "OK.",
       "I call.",
       {{"", "get_weather", R"({"city": "New York", "days": 3, "tag": "</tool_call>"})"}, {"", "now", "{}"}, {"", "now", "{}"}}},

      {"Mistral",
       "[TOOL_CALLS]",
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": \"[TOOL_CALLS]\"}, \"id\": \"abcdef123\"}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       "",
       "",
       {{"abcdef123", "f", R"({"x": "[TOOL_CALLS]"})"}, {"", "g", "{}"}}},
      {"Mistral",
       "[TOOL_CALLS]",
       "Now:[TOOL_CALLS]f[ARGS]{\"x\": [1]}[TOOL_CALLS]g[CALL_ID]VvvODy9mT[ARGS]{}",
       "Now:",
       "",
       {{"", "f", R"({"x": [1]})"}, {"VvvODy9mT", "g", "{}"}}},
      {"Mistral",
       "[TOOL_CALLS][THINK]",
       "[THINK]Hm.[/THINK]See [1].[TOOL_CALLS]f{\"x\": 1}",
       "See [1].",
       "Hm.",
       {{"", "f", R"({"x": 1})"}}},

      {"Mistral", "[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]\"{\\\"x\\\": \\\"]}\\\"}\"", "", "", {{"", "f", R"({"x": "]}"})"}}},

      {"Gemma 4",
       kGemma4,
       "<|channel>thought\nHm.<channel|><|tool_call>call:f{city:<|\"|>New "
       "{York}<|\"|>,days:3,ok:true,in:{a:[<|\"|>x<|\"|>,2]}}<tool_call|>"
       "<|tool_call>call:now{}<tool_call|>",
       "",
       "Hm.",
       {{"", "f", R"({"city":"New {York}","days":3,"ok":true,"in":{"a":["x",2]}})"}, {"", "now", "{}"}}},
      {"Gemma 4", kGemma4, "Hi.", "Hi.", "", {}, "<|turn>model\n<|channel>thought\n<channel|>"},
      {"Gemma 4", kGemma4, "Hi.<channel|>", "Hi.", "", {}},
      {"Gemma 4", kGemma4, "<|tool_call>call:now{}<tool_call|><|tool_response>", "", "", {{"", "now", "{}"}}},
      {"Gemma 4", kGemma4, "Hi.<|channel>thought\n<channel|>", "Hi.", "", {}},
      {"FunctionGemma",
       "<start_function_call>",
       "<start_function_call>call:get_temp{location:<escape>London<escape>}<end_function_call>",
       "",
       "",
       {{"", "get_temp", R"({"location":"London"})"}}},

      {"LFM2",
       "<|tool_list_start|>",
       "<|tool_call_start|>[get_status(id=\"12345\", n=2), f(l=['a', {'k': None}], t=True)]<|tool_call_end|>Checking.",
       "Checking.",
       "",
       {{"", "get_status", R"({"id":"12345", "n":2})"}, {"", "f", R"({"l":["a", {"k": null}], "t":true})"}}},

      {"LFM2",
       "<|tool_call_start|>",
       "<think>Hm.</think><|tool_call_start|>[f(a=1), g(x=false)]<|tool_call_end|>",
       "",
       "Hm.",
       {{"", "f", R"({"a":1})"}, {"", "g", R"({"x":false})"}}},
      {"LFM2", "List of tools: <|im_start|>", "<|tool_call_start|>[f()]<|tool_call_end|>", "", "", {{"", "f", "{}"}}},

      {"OLMo 3",
       "<functions></functions><function_calls>",
       "<think>\nHm.\n</think>\n\nI look.\n<function_calls>get_weather(city=\"Paris\", days=3, wet=true, note=null)\n"
       "f(tags=['a', \"it's\"])</function_calls>",
       "I look.",
       "Hm.",
       {{"", "get_weather", R"({"city":"Paris", "days":3, "wet":true, "note":null})"}, {"", "f", R"({"tags":["a", "it's"]})"}},
       "<|im_start|>assistant\n",
       kTools},
      {"Muse Glimmer",
       "<atem:function_calls>",
       " to=self<|message|>To whom, to=user?<|eom|><|start|>assistant to=user<|message|>I look.<|eom|><|start|>assistant "
       "to=get_weather<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter "
       "name=\"zip\">90210</atem:parameter>\n<atem:parameter "
       "name=\"tags\">[\"a\"]</atem:parameter>\n</atem:invoke>\n<atem:invoke "
       "name=\"g\">\n</atem:invoke>\n</atem:function_calls><|eot|>",
       "I look.",
       "To whom, to=user?",
       {{"", "f", R"({"zip": "90210", "tags": ["a"]})"}, {"", "g", "{}"}},
       "<|start|>assistant",
       kTools},
      {"Muse Glimmer",
       "<atem:function_calls>",
       " to=user<|message|>a to=b <|message",
       "a to=b <|message",
       "",
       {},
       "<|start|>assistant"},
      {"MiniMax-M3",
       kM3,
       "<mm:think>Hm.</mm:think>I look.]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"f\">]<]minimax[>[<zip>90210]<]minimax[>[</zip>"
       "]<]minimax[>[<in>]<]minimax[>[<city>New <b> "
       "York\n]<]minimax[>[</city>]<]minimax[>[<n>2]<]minimax[>[</n>]<]minimax[>[</in>"
       "]<]minimax[>[<list>\n]<]minimax[>[<item>a]<]minimax[>[</item>\n]<]minimax[>[<item>]<]minimax[>[<k>true]<]minimax[>[</"
       "k>]<]minimax[>[</item>"
       "\n]<]minimax[>[</list>]<]minimax[>[<tags>]<]minimax[>[</tags>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke "
       "name=\"g\">]<]minimax[>[</invoke>\n"
       "]<]minimax[>[</tool_call>",
       "I look.",
       "Hm.",
       {{"", "f", R"({"zip": "90210", "in": {"city": "New <b> York\n", "n": 2}, "list": ["a", {"k": true}], "tags": []})"},
        {"", "g", "{}"}},
       "]~b]ai\n",
       kTools},
      {"MiniMax-M3", kM3, "</mm:think>Yes.", "Yes.", "", {}},

      {"MiniCPM5",
       "<function name= <param name=",
       "<think>\nHm.\n</think>\n\n<function name=\"f\"><param name=\"zip\">90210</param>\n<param name=\"a\"><![CDATA[x </param> "
       "<b>]]></param>"
       "</function>\n<function name=\"g\"></function>",
       "",
       "Hm.",
       {{"", "f", R"({"zip": "90210", "a": "x </param> <b>"})"}, {"", "g", "{}"}},
       "<|im_start|>assistant\n",
       kTools},

      {"GigaChat",
       kGigaChat,
       "I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}<|message_sep|>\n\n",
       "I look.",
       "",
       {{"", "f", R"({"a": 1})"}}},
      {"GigaChat", kGigaChat, "I look.<|function_call|>{\"name\": \"f\", \"arguments\": {}}", "I look.", "", {{"", "f", "{}"}}},
      {"GigaChat", kGigaChat, "A function call is one.", "A function call is one.", "", {}},

      {"Functionary",
       kFunctionary,
       "all\nI look.\n>>>f\n{\"a\": \">>>g\"}>>>python\nx = {1: 2}\nprint(x)",
       "I look.",
       "",
       {{"", "f", R"({"a": ">>>g"})"}, {"", "python", "x = {1: 2}\nprint(x)"}},
       "<|end_header_id|>\n\n>>>"},
      {"Functionary", kFunctionary, "all\n>>> 1 + 1\n2", ">>> 1 + 1\n2", "", {}, "<|end_header_id|>\n\n>>>"},
      {"Functionary", kFunctionary, "g\n{}", "", "", {{"", "g", "{}"}}, "<|end_header_id|>\n\n>>>"},

      {"Solar Open",
       kSolar,
       "<|think|>Hm.<|end|><|begin|>assistant<|content|>I look.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2"
       "<|tool_call:name|>f<|tool_call:args|>{\"a\": "
       "1}<|tool_call:end|><|tool_call:begin|><|tool_call:name|>g<|tool_call:args|>{}"
       "<|tool_call:end|><|calls|>",
       "I look.",
       "Hm.",
       {{"a1b2", "f", R"({"a": 1})"}, {"", "g", "{}"}}},

      {"Hunyuan 3",
       kHunyuan,
       "Hm.</think:opensource>I "
       "look.<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>zip"
       "</arg_key:opensource>\n<arg_value:opensource>90210</arg_value:opensource>\n</"
       "tool_call:opensource>\n<tool_call:opensource>g"
       "<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
       "I look.",
       "Hm.",
       {{"", "f", R"({"zip": "90210"})"}, {"", "g", "{}"}},
       "<think:opensource>",
       kTools},
      {"Hunyuan 3",
       "<tool_sep>",
       "<think>Hm.</think><tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n"
       "</tool_calls>",
       "",
       "Hm.",
       {{"", "f", R"({"n": 3})"}}},

      {"Apriel",
       kApriel,
       "Hm.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]",
       "Yes.",
       "Hm.",
       {},
       "<|begin_assistant|>\nHere are my reasoning steps:\n"},
      {"Apriel",
       kApriel,
       "Here are my reasoning steps:\nHm.\n\n<tool_calls>[{\"name\": \"f\", \"arguments\": {}, \"id\": \"1\"}]</tool_calls>",
       "",
       "Hm.",
       {{"1", "f", "{}"}}},

      {"Command-R+",
       "<|CHATBOT_TOKEN|>Action:",
       "Plan: I look.\nAction: ```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\n            \"a\": "
       "1\n        "
       "}\n    },\n    {\"tool_name\": \"directly-answer\", \"parameters\": {}}\n]\n```",
       "Plan: I look.",
       "",
       {{"", "f", "{\n            \"a\": 1\n        }"}, {"", "directly-answer", "{}"}}},
      {"Command-R+", "<|CHATBOT_TOKEN|>Action:", "Action: none needed.", "Action: none needed.", "", {}},

      {"Apertus",
       kApertus,
       "<|inner_prefix|>Hm.<|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>",
       "",
       "Hm.",
       {{"", "f", R"({"a": 1})"}, {"", "g", "{}"}}},
      {"Apertus", kApertus, "<|inner_prefix|>Hm.<|inner_suffix|>Yes.", "Yes.", "Hm.", {}},

      {"Command R7B",
       kCommand,
       "<|START_THINKING|>I will.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
       "\"parameters\": {\"a\": "
       "1}}\n]<|END_ACTION|>",
       "",
       "I will.",
       {{"0", "f", R"({"a": 1})"}}},
      {"Command R7B", kCommand, "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", "Yes.", "", {}},
      {"Command R7B", kCommand, "<|START_TEXT|>Yes.<|END_TEXT|>", "Yes.", "", {}},

      {"Granite", kGranite, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "", "", {{"", "f", R"({"a": 1})"}}},
      {"Granite", kGranite, "<think>Hm.</think>\n<response>Yes.</response>", "Yes.", "Hm.", {}},
      {"Phi-4-mini",
       "<|tool_call|>",
       "<|tool_call|>{\"name\": \"f\", \"arguments\": {\"a\": 1}}<|/tool_call|>",
       "",
       "",
       {{"", "f", R"({"a": 1})"}}},
      {"Phi-4-mini",
       "<|/tool|>",
       "I look. functools[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]",
       "I look.",
       "",
       {{"", "f", R"({"a": [1]})"}, {"", "g", "{}"}}},
      {"FireFunction", "functools[", " functools[{\"name\": \"f\", \"arguments\": {}}]", "", "", {{"", "f", "{}"}}},
      {"FireFunction", "functools[", "See functools[1] and functools.", "See functools[1] and functools.", "", {}},
      {"Nemotron",
       "<TOOLCALL>",
       "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
       "",
       "",
       {{"", "f", "{}"}, {"", "g", "{}"}}},

      {"Jamba/Hunyuan",
       "<tool_calls>",
       "<tool_calls>[\n{\"name\": \"f\", \"arguments\": {}}\n]</tool_calls>",
       "",
       "",
       {{"", "f", "{}"}}},

      {"Llama 3", kLlama, "{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}", "", "", {{"", "f", R"({"a": "x"})"}}},
      {"Llama 3",
       kLlama,
       "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}\n",
       "",
       "",
       {{"", "f", "{}"}, {"", "g", "{}"}}},
      {"Llama 3",
       kLlama,
       "{\"name\": \"f\", \"parameters\": {}} calls f.",
       "{\"name\": \"f\", \"parameters\": {}} calls f.",
       "",
       {}},
      {"Llama 3", kLlama, "{\"name\": \"Ada\"}", "{\"name\": \"Ada\"}", "", {}},
      {"Llama 3",
       kLlama,
       "[{\"name\": \"f\", \"parameters\": {\"a\": 1}}, {\"name\": \"g\", \"parameters\": {}}]\n",
       "",
       "",
       {{"", "f", R"({"a": 1})"}, {"", "g", "{}"}}},
      {"Llama 3", kLlama, "[{\"name\": \"Ada\"}, 1]", "[{\"name\": \"Ada\"}, 1]", "", {}},
      {"Llama 3",
       kLlama,
       "[{\"name\": \"f\", \"parameters\": {}}] calls f.",
       "[{\"name\": \"f\", \"parameters\": {}}] calls f.",
       "",
       {}},
      {"Llama 3", kLlama, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "", "", {{"", "f", "{}"}}},
      {"Llama 3",
       kLlama,
       "<|python_tag|>brave_search.call(query=\"current (weather) in Menlo Park\")",
       "",
       "",
       {{"", "brave_search", R"({"query":"current (weather) in Menlo Park"})"}}},
      {"Llama 3",
       kLlama,
       "<function=spotify>{\"artist\": \"</function>\"}</function>",
       "",
       "",
       {{"", "spotify", R"({"artist": "</function>"})"}}},
      {"Llama 3",
       kLlama,
       "[f(a=\"x\"), g()]",
       "",
       "",
       {{"", "f", R"({"a":"x"})"}, {"", "g", "{}"}},
       "<|start_header_id|>assistant<|end_header_id|>\n\n",
       kTools},

      {"Llama 4",
       kLlama4,
       "[get_weather(city='Martha\\'s \"Vineyard\", \\xe9\\u00E9\\U0001F600\\ud83d\\ude00\\d\\n', n=-3.5e2),\n a.b(l=[1, (True, "
       "None)],"
       " d={'k': {\"x\": \"])}\"}, 2: []})] ",
       "",
       "",
       {{"", "get_weather", R"({"city":"Martha's \"Vineyard\", éé😀😀\\d\n", "n":-3.5e2})"},
        {"", "a.b", R"({"l":[1, [true, null]], "d":{"k": {"x": "])}"}, "2": []}})"}},
       "<|header_start|>assistant<|header_end|>\n\n",
       kTools},
      {"Llama 4", kLlama4, "[f(a=1)]", "[f(a=1)]", "", {}},  // without tools
      {"Llama 4", kLlama4, "[get(a=1)]", "[get(a=1)]", "", {}, "", kTools},
      {"Llama 4", kLlama4, "[get-time(), f()]", "", "", {{"", "get-time", "{}"}, {"", "f", "{}"}}, "", kTools},
      {"Llama 4",
       kLlama4,
       "Now:\n<|python_start|>[f(a=1), g()]<|python_end|>",
       "Now:",
       "",
       {{"", "f", R"({"a":1})"}, {"", "g", "{}"}},
       "<|header_start|>assistant<|header_end|>\n\n",
       kTools},
      {"Llama 4",
       kLlama4,
       "<|python_start|><|python_end|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}{\"name\": \"g\", \"parameters\": {}}",
       "",
       "",
       {{"", "f", R"({"a": 1})"}, {"", "g", "{}"}}},
      {"Llama 4", kLlama4, "{\"name\": \"f\", \"parameters\": {}}", "", "", {{"", "f", "{}"}}},
  };
  return kSamples;
}

}  // namespace tally
