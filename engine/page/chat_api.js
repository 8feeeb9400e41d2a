// SPDX-License-Identifier: Apache-2.0
// The server's endpoints.

// They lie beside the page, whatever prefix its path has.
const kBeside = location.pathname.replace(/\/*$/, "/");

function headers(more = {}) {
  return settings.key ? { ...more, Authorization: `Bearer ${settings.key}` } : more;
}

// What a server says of an error, or the status.
async function errorOf(response) {
  const text = await response.text().catch(() => "");
  const said = parsed(text, {}).error;
  if (response.status === 401) return "The server wants an API key: see the settings.";
  return (typeof said === "string" ? said : said?.message) || `The server answers ${response.status} ${response.statusText}`;
}

const kEnded = "The connection ended before the answer did.";

// The data of each server-sent event of a response, with the event's name.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", name = "", data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw error instanceof TypeError ? new Error(kEnded) : error;
      });
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { name, data: data.join("\n") };
          name = "", data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(5).replace(/^ /, ""));
        } else if (line.startsWith("event:")) {
          name = line.slice(6).trim();
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The names of the models that are served.
async function modelNames(signal) {
  const response = await fetch(`${kBeside}v1/models`, { headers: headers(), signal });
  if (!response.ok) throw new Error(await errorOf(response));
  return ((await response.json()).data ?? []).map((one) => one.id).filter(isText);
}

// What is wrong with a schema that is to be sent; empty: nothing that is seen without the server.
function schemaError(text) {
  if (!text) return "A schema is wanted.";
  let schema;
  try {
    schema = JSON.parse(text);
  } catch (error) {
    return `This is no JSON: ${error.message}`;
  }
  if (typeof schema !== "boolean" && (schema === null || typeof schema !== "object" || Array.isArray(schema))) return "A JSON Schema is an object.";
  // What APIs put around a schema would be one that holds nothing: unknown keywords are annotations.
  return schema.schema && ("name" in schema || "strict" in schema) ? "The schema alone is wanted, without what stands around it." : "";
}

// The body of a request for an answer that is held as `held` says. The schema goes as it was pasted: as a value of this script its numbers
// could be rounded and its members sorted.
function requestText(model, messages, held) {
  const text = JSON.stringify(requestBody(model, messages, held));
  if (held !== "schema") return text;
  return `${text.slice(0, -1)},"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":${settings.schema}}}}`;
}

const kNumbers = {
  temperature: "temperature", max: "max_tokens", topP: "top_p", topK: "top_k", minP: "min_p", seed: "seed", repetition: "repetition_penalty",
  presence: "presence_penalty", frequency: "frequency_penalty",
};

// Messages that end with an answer ask for the rest of it.
function requestBody(model, messages, held) {
  const body = { model, messages, stream: true, stream_options: { include_usage: true } };
  if (messages.at(-1)?.role === "assistant") Object.assign(body, { add_generation_prompt: false, continue_final_message: true });
  for (const [name, field] of Object.entries(kNumbers)) if (settings[name] !== "") body[field] = Number(settings[name]);
  if (settings.effort) body.reasoning_effort = settings.effort;
  if (held === "json") body.response_format = { type: "json_object" };
  const tools = parsed(settings.tools || "[]", []);
  if (Array.isArray(tools) && tools.length > 0) body.tools = tools;
  return body;
}

// The messages as OpenAI has them. Thinking of answers is left out, but for that of one that is to go on, and so are calls without a
// result, and answers of which nothing came. The reader's messages before and after such an answer are one: many templates want turns.
function apiMessages(messages) {
  const list = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  for (const [i, m] of messages.entries()) {
    if (m.role === "tool") {
      list.push({ role: "tool", tool_call_id: m.call, content: m.content });
    } else if (m.role === "assistant") {
      if (messages[i + 1]?.role === "tool") {
        const calls = m.calls.map((c) => ({ id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
        list.push({ role: "assistant", content: m.content, tool_calls: calls });
      } else if (m.content) {
        const thought = i + 1 === messages.length && m.reasoning ? { reasoning_content: m.reasoning } : {};
        list.push({ role: "assistant", content: m.content, ...thought });
      }
    } else if (list.at(-1)?.role === "user") {
      list.at(-1).content += `\n\n${m.content}`;
    } else {
      list.push({ role: "user", content: m.content });
    }
  }
  return list;
}

function addDelta(message, delta) {
  message.content += delta.content ?? "";
  const thought = delta.reasoning_content ?? delta.reasoning ?? "";
  if (thought) message.reasoning = (message.reasoning ?? "") + thought;
  for (const part of delta.tool_calls ?? []) {
    message.calls ??= [];
    const call = (message.calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" });
    call.id ||= part.id ?? "";
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
}

// Ends the answer with this id: what has come of it ends with its bill. False: the server has no such answer, or does not answer.
async function cancelAnswer(id) {
  const response = await fetch(`${kBeside}cancel`, { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify({ id }) }).catch(() => null);
  return response?.ok === true && (await response.json().catch(() => null))?.cancelled === true;
}

// What two parts of an answer cost together.
function bothUsages(a, b, name = "") {
  if (typeof a !== "object" || typeof b !== "object" || !a || !b) {
    if (!Number.isFinite(a) || !Number.isFinite(b)) return b ?? a;
    return name === "parameters_touched" ? Math.max(a, b) : a + b;
  }
  return Object.fromEntries([...new Set([...Object.keys(a), ...Object.keys(b)])].map((key) => [key, bothUsages(a[key], b[key], key)]));
}

// Asks for the answer to `messages`, or for the rest of `message` where it is the last of them, and fills it as it comes. `changed` is
// called with the answer's id after every event. Throws where the server refuses, or the answer ends early.
async function ask(model, messages, message, signal, changed) {
  const before = message.usage;
  const response = await fetch(`${kBeside}v1/chat/completions`, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", "X-Tally": "1" }),
    body: requestText(model, apiMessages(messages), message.held),
    signal,
  });
  if (!response.ok) throw new Error(await errorOf(response));
  let whole = false;
  for await (const { data } of events(response)) {
    if (data === "[DONE]") {
      whole = true;
      break;
    }
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message ?? String(event.error));
    const choice = event.choices?.[0];
    if (choice?.delta) addDelta(message, choice.delta);
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    if (event.usage) message.usage = before ? bothUsages(before, event.usage) : event.usage;
    changed(event.id);
  }
  if (!whole && !message.finish) throw new Error(kEnded);
}

// --- bills (usage.tally)

const kMoved = ["weights packed", "KV read", "KV written", "state read", "state written"];
const movedBytes = (work) => sum(kMoved.map((kind) => work?.bytes?.[kind] ?? 0));

const kDisk = "weights from disk", diskBytes = (work) => work?.bytes?.[kDisk] ?? 0;

// What an answer cost; null: the server did not say.
function costOf(message) {
  const usage = message.usage, bill = usage?.tally;
  if (!usage) return null;
  return {
    read: usage.prompt_tokens ?? 0,
    written: usage.completion_tokens ?? 0,
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
    flops: (bill?.prefill?.flops ?? 0) + (bill?.decode?.flops ?? 0),
    bytes: movedBytes(bill?.prefill) + movedBytes(bill?.decode),
    disk: diskBytes(bill?.prefill) + diskBytes(bill?.decode),
    touched: bill?.parameters_touched ?? 0,
    seconds: bill?.generate_seconds ?? 0,
    decoded: bill?.decode_tokens ?? 0,
    forced: bill?.forced_tokens ?? 0,
  };
}

