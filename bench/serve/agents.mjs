// SPDX-License-Identifier: Apache-2.0
// Sends what coding agents send (tests/clients/bodies.json), with 40 tools and long first prompts, streamed and whole, in conversations of
// several turns in which each answer is sent back as its client does. Fails where a request is refused or an answer is not whole.
// usage: node agents.mjs URL [SECONDS=600] [CLIENTS=4]
//   tally serve demo -c 32768 --chat-template harmony --log none & node agents.mjs http://127.0.0.1:8080
import {readFileSync} from "node:fs";

const [url, seconds = 600, clients = 4] = process.argv.slice(2);
if (url == null) {
  console.error("usage: node agents.mjs URL [SECONDS] [CLIENTS]");
  process.exit(2);
}
const kTurns = 4, kTools = 40, kTokens = 24, kLongest = 12000;
const bodies = JSON.parse(readFileSync(new URL("../../tests/clients/bodies.json", import.meta.url)));
const failures = [], done = {};
let prompt = 0, cached = 0, slowest = 0;

const words = ["make", "error", "file", "line", "build", "test", "why", "the", "of", "fails"];
const text = (seed, bytes) => {
  let all = "";
  for (let i = 0; all.length < bytes; ++i) all += `${words[(seed * 7 + i * i + i * seed) % words.length]} `;
  return all;
};

// What differs between the three APIs: the first prompt, the tools, an answer out of a stream, and the next turn.
const apis = {
  "/v1/responses": {
    begin(body, long) { body.max_output_tokens = kTokens; body.input.push({role: "user", content: [{type: "input_text", text: long}]}); },
    ofStream: (events) => events.at(-1).response,
    usage: ({usage}) => [usage.input_tokens, usage.input_tokens_details.cached_tokens],
    go_on(body, {output}, say) {
      body.input.push(...output);
      for (const {type, call_id} of output) {
        if (type === "function_call") body.input.push({type: "function_call_output", call_id, output: "Exit code: 0"});
      }
      body.input.push({type: "message", role: "user", content: [{type: "input_text", text: say}]});
    }
  },
  "/v1/messages": {
    begin(body, long) { body.max_tokens = kTokens; body.messages.push({role: "user", content: [{type: "text", text: long}]}); },
    ofStream(events) {
      const message = events[0].message, input = {};
      for (const event of events) {
        const {index, delta} = event;
        if (event.type === "content_block_start") message.content[index] = event.content_block;
        if (delta?.type === "text_delta") message.content[index].text += delta.text;
        if (delta?.type === "thinking_delta") message.content[index].thinking += delta.thinking;
        if (delta?.type === "input_json_delta") input[index] = (input[index] ?? "") + delta.partial_json;
        if (event.type === "content_block_stop" && input[index] != null) message.content[index].input = JSON.parse(input[index]);
      }
      if (events.at(-1).type !== "message_stop") throw new Error("no message_stop");
      return message;
    },
    usage: ({usage}) => [usage.input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens],
    go_on(body, {role, content}, say) {
      const results = content.filter(({type}) => type === "tool_use")
        .map(({id}) => ({type: "tool_result", tool_use_id: id, content: "Exit code 0", is_error: false}));
      body.messages.push({role, content}, {role: "user", content: [...results, {type: "text", text: say, cache_control: {type: "ephemeral"}}]});
    }
  },
  "/v1/chat/completions": {
    begin(body, long) { body.max_tokens = kTokens; body.messages.push({role: "user", content: long}); },
    ofStream(events) {
      const message = {role: "assistant", content: "", refusal: null, parsed: null}, calls = [];
      let usage = {prompt_tokens: 0, prompt_tokens_details: {cached_tokens: 0}};
      for (const {choices, usage: last} of events) {
        if (last != null) usage = last;
        for (const {delta} of choices) {
          message.content += delta.content ?? "";
          for (const call of delta.tool_calls ?? []) calls[call.index] = call;
        }
      }
      if (calls.length > 0) message.tool_calls = calls;
      return {choices: [{message}], usage};
    },
    usage: ({usage}) => [usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens],
    go_on(body, {choices: [{message}]}, say) {
      body.messages.push(message);
      for (const {id} of message.tool_calls ?? []) body.messages.push({role: "tool", tool_call_id: id, content: "Exit code: 0"});
      body.messages.push({role: "user", content: say});
    }
  }
};

async function ask(client, path, headers, body) {
  const begin = performance.now();
  const response = await fetch(url.replace(/\/$/, "") + path,
    {method: "POST", headers: {"content-type": "application/json", ...headers}, body: JSON.stringify(body)});
  const said = await response.text();
  slowest = Math.max(slowest, performance.now() - begin);
  if (!response.ok) throw new Error(`${client}: ${response.status} ${said.slice(0, 300)}`);
  done[client] = (done[client] ?? 0) + 1;
  if (!body.stream) return JSON.parse(said);
  const events = said.split("\n").filter((line) => line.startsWith("data: ") && line !== "data: [DONE]").map((line) => JSON.parse(line.slice(6)));
  if (path === "/v1/chat/completions" && !said.includes("data: [DONE]")) throw new Error(`${client}: the stream was cut`);
  return apis[path].ofStream(events);
}

async function converse(seed) {
  const sent = structuredClone(bodies[seed % bodies.length]), api = apis[sent.path];
  if (api == null) return ask(sent.client, sent.path, sent.headers, {max_tokens: kTokens, ...sent.body});
  const {client, path, headers, body} = sent;
  if (body.tools != null) {
    for (let i = 0; body.tools.length < kTools; ++i) {
      const tool = structuredClone(body.tools[0]), named = tool.function ?? tool;
      named.name = `tool_${i}`;
      named.description = text(i, 120);
      body.tools.push(tool);
    }
  }
  api.begin(body, text(seed, 200 + (seed * 2749) % kLongest));
  for (let turn = 0; turn < kTurns && performance.now() < until; ++turn) {
    if (seed % 3 === 0) {
      body.stream = false;
      delete body.stream_options;
    }
    const answer = await ask(client, path, headers, body);
    const [tokens, found] = api.usage(answer);
    prompt += tokens;
    cached += found;
    api.go_on(body, answer, text(seed + turn, 60));
  }
}

const until = performance.now() + seconds * 1000;
let seed = 0;
await Promise.all(Array.from({length: Number(clients)}, async () => {
  while (performance.now() < until) {
    await converse(seed++).catch((error) => failures.push(error.message));
  }
}));
for (const [client, n] of Object.entries(done)) console.log(`${n} answers: ${client}`);
console.log(`${seed} conversations in ${seconds} s, ${prompt} tokens of prompts, ${cached} of them found; the slowest answer took ${(slowest / 1000).toFixed(1)} s`);
console.log(`${failures.length} refusals or broken answers`);
for (const failure of failures.slice(0, 20)) console.log(failure);
process.exit(failures.length > 0 ? 1 : 0);
