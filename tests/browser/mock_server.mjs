// SPDX-License-Identifier: Apache-2.0
// usage: node mock_server.mjs FOLDER [PORT]
// A server for tests of the chat page, without an engine: what `tally serve` gives at /, /v1/models, /v1/chat/completions, /cancel and /live, with
// answers that depend on the last message alone. FOLDER holds chat.html and policy.txt (the page and its policy) and live.txt, events of
// /live, the first of which is a client's first. POST /lock sets the key that all else but / wants from then on; empty: none. POST /serve sets
// the names of the models, a JSON list. All of it is at /llm, too. Prints its URL.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const [folder, port = "0"] = process.argv.slice(2);
const read = (name) => readFileSync(`${folder}/${name}`, "utf8");
const liveEvents = read("live.txt").split("\n\n").filter(Boolean);
let key = "";
let served = ["gpt-oss-20b"];
const asked = [];  // bodies, for the test to look at
let askedText = "";  // the last one as it came
const open = new Set();  // ids of answers that come

const kMarkdown = `Here is a **list**:

1. one *thing*
2. another, with \`code\`

\`\`\`python
def merge(a, b):
    """Two sorted lists as one."""
    out = []
    while a and b:
        out.append((a if a[0] <= b[0] else b).pop(0))
    return out + a + b
\`\`\`

| sort | best | worst |
|---|---|---|
| merge | n log n | n log n |
| quick | n log n | n² |
| insertion | n | n² |

> It depends on what comes in.

- [x] done
- [ ] not done

See [the ledger](https://example.com/ledger) for more.`;

const kMaths = String.raw`Inline \(a^2\), \(b_1*c\), \(d_1*e < f\), $x_i$ and $O(n \log n)$ over \(\mathbb{R}\) and \(\boldsymbol{\alpha}\):
\[ \int_0^1 x^2\,dx = \frac{1}{3} \]
and, in lines,

$$
\begin{aligned} a_1 &= \sqrt{b} \\[4pt] c &= \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} \end{aligned}
$$

It costs $5 and $10, or $7-$9; US$3, \$4 and \\(no). Code: \`\(x\)\` and \`$y$\`.

\`\`\`latex
\[ \(z\) $$ \]
\`\`\`

| norm | value |
|---|---|
| \(|x|_1\) | 1 |

> \[ q
> = r \]

1. A refused one, \(\nosuch{x}\)

The last has no end: \(c^2 + `.replaceAll("\\`", "`");

const kCode = `\`\`\`python
@cache
def f(x):  # a comment, "not a string"
    """Three
    lines."""
    return f"{x} # no comment" if x > 0x1f else None
\`\`\`

\`\`\`cpp
#include <vector>
/* two
lines */ int main() { return 'a' == 1.5e3 ? 0 : 1'000; }  // end
\`\`\`

\`\`\`diff
+ added
- removed
\`\`\`

\`\`\`nosuch
if return "x"
\`\`\`

\`\`\`html
<p class="a">it's</p>
\`\`\`

\`\`\`js
const open = \`not \${closed`;

const kColumns = `| left | centre | right | a | b | c |
|:---|:-:|---:|---|---|---|
| some words here | middle | 1,234 | unbreakableword | unbreakableword | unbreakableword |`;

// Each would call alert() or load something where it was taken as HTML.
const kHostile = [
  "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)><script>alert(1)</script></svg>",
  "[a](javascript:alert(1))", "[b](data:text/html,<script>alert(1)</script>)", "![c](https://example.com/pixel.png)",
  "<a href=\"javascript:alert(1)\">d</a>", "<iframe src=\"javascript:alert(1)\"></iframe>", "<math><mi xlink:href=\"javascript:alert(1)\">e</mi></math>",
  "<style>body { display: none }</style>", "<p style=\"position:fixed;inset:0\" class=\"message\" id=\"input\">f</p>",
  "<form action=\"https://example.com\"><input name=\"password\"><button>g</button></form>",
  "<details open ontoggle=alert(1)>h</details>", "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">", "```<img src=x onerror=alert(1)>\n<b>i</b>\n```",
  "<table><td background=\"https://example.com/t.png\">j</td></table>", "<base href=\"https://example.com/\">",
  "\\(\\href{javascript:alert(1)}{k}\\)", "$$\\includegraphics{https://example.com/f.png}$$", "\\(\\htmlStyle{display:none}{l}\\)",
  "\\(\\text{<img src=x onerror=alert(1)>}\\)", "\\[</math><img src=x onerror=alert(1)>\\]", "[m](javascript:alert(1)//\\(x\\))", "</script></style><!--",
];

// Spelled as no JSON.stringify spells it.
const kJson = `{"title":"The <b>Lighthouse</b>, \\u00fcber all\\n\\"quoted\\"","2":1.50,"1":12345678901234567890,"open":true,"keeper":null,"none":{},` +
  `"lamps":[{"colour":"white","seconds":[10,2.5e-1]},{"colour":"red","seconds":[5]}],"notes":["${"a long note ".repeat(12)}","${"w".repeat(90)}"],"last":-7}`;

// What is sent as deltas for a message.
function scriptOf(text, messages) {
  const words = (s) => s.match(/\S+\s*|\s+/g) ?? [];
  const content = (s) => words(s).map((content) => ({ content }));
  const last = messages.at(-1);
  if (last?.role === "tool") return { deltas: content(`The tool says ${last.content}.`) };
  if (/slowly/.test(text)) {  // and what is left of it where it is to go on
    const said = last?.role === "assistant" ? last.content : "", all = "one two three four five six seven eight nine ten eleven twelve ".repeat(3).trim();
    return all.startsWith(said) ? { deltas: content(all.slice(said.length)), pause: said ? 1 : 150 } : { deltas: content("That is no beginning.") };
  }
  if (/silently/.test(text)) return { deltas: content(" late"), before: 20000 };
  if (/dawdle/.test(text)) return { deltas: content("so long ".repeat(last?.role === "assistant" ? 2 : 500)), pause: 20, after: 2500 };
  if (/formulas/.test(text)) return { deltas: kMaths.match(/[^]{1,3}/g).map((content) => ({ content })), pause: 3 };
  if (/colours/.test(text)) return { deltas: content(kCode), pause: 1 };
  if (/columns/.test(text)) return { deltas: content(kColumns) };
  if (/hostile/.test(text)) return { deltas: content(kHostile.join("\n\n")) };
  if (/long/.test(text)) return { deltas: content("one more word ".repeat(2000)), pause: 10 };
  if (/merge|table|markdown/.test(text)) return { deltas: content(kMarkdown), pause: 2 };
  if (/weather/.test(text)) {
    const call = (part) => ({ tool_calls: [{ index: 0, ...part }] });
    return { finish: "tool_calls", deltas: [{ reasoning_content: "I need the tool." }, call({ id: "call_1", type: "function", function: { name: "get_weather", arguments: "" } }),
      call({ function: { arguments: "{\"city\": " } }), call({ function: { arguments: "\"Bern\"}" } })] };
  }
  if (/think/.test(text)) {
    return { deltas: [...words("The question is short. I **compare** the two and choose.").map((reasoning_content) => ({ reasoning_content })), ...content("It is the first.")] };
  }
  if (/json/.test(text)) {
    const pieces = (/limit/.test(text) ? kJson.slice(0, 300) : kJson).match(/.{1,6}/gs);
    return { deltas: pieces.map((content) => ({ content })), pause: 5, finish: /limit/.test(text) ? "length" : "stop", forced: 12 };
  }
  if (/cut/.test(text)) return { deltas: content("This breaks off"), cut: true };
  return { deltas: content(`You said: ${text}`), pause: 2 };
}

const work = (rows, flops, weights, kv) => ({
  rows, logit_rows: 1, rows_again: 0, rows_in_vain: 0, flops, special: 0,
  bytes: { "weights stored": weights, "weights packed": weights, "KV read": kv, "KV written": Math.round(kv / 50), "activations read": 100, "activations written": 100, "state read": 0, "state written": 0 },
  flops_by_class: { linear: Math.round(flops * 0.9), attention: Math.round(flops * 0.1) },
});
const usageOf = (tokens, prompt, bill, forced) => ({
  prompt_tokens: prompt, completion_tokens: tokens, total_tokens: tokens + prompt, prompt_tokens_details: { cached_tokens: Math.floor(prompt / 2) },
  ...(bill && { tally: { prompt_tokens: prompt, decode_tokens: tokens, decode_steps: tokens, prompt_seconds: 0.2, first_token_seconds: 0.25, generate_seconds: tokens * 0.04,
    prefill: work(prompt, prompt * 7e9, 4e9, 1e6), decode: work(tokens, tokens * 7e9, tokens * 4e9, tokens * 2e6), parameters_touched: 3608310144, ...(forced && { forced_tokens: forced }) } }),
});

async function answer(body, request, response) {
  const text = [...body.messages].reverse().find((m) => m.role === "user")?.content ?? "";
  if (/refuse/.test(text) && !/cut/.test(text)) {
    response.writeHead(400, { "Content-Type": "application/json" });
    return response.end(JSON.stringify({ error: { message: "max_tokens: <b>too</b> many", type: "invalid_request_error" } }));
  }
  const { deltas, pause = 0, finish = "stop", cut = false, forced = 0, before = 0, after = 0 } = scriptOf(text, body.messages);
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const id = `chatcmpl-${asked.length}`;
  open.add(id);
  const send = (choices, more = {}) => response.write(`data: ${JSON.stringify({ id, object: "chat.completion.chunk", created: 1, model: body.model, choices, ...more })}\n\n`);
  const choice = (delta, finish_reason = null) => [{ index: 0, delta, finish_reason }];
  send(choice({ role: "assistant" }));
  const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  let sent = 0;
  if (before) await wait(before);
  for (const delta of deltas) {
    if (response.destroyed || !open.has(id)) break;
    send(choice(delta));
    ++sent;
    if (pause) await wait(pause);
  }
  if (after && !open.has(id)) await wait(after);  // the step that runs when it is cancelled
  open.delete(id);
  if (cut) return setTimeout(() => response.destroy(), 200);
  send(choice({}, finish));
  send([], { usage: usageOf(sent, 40, request.headers["x-tally"] === "1", forced) });
  response.end("data: [DONE]\n\n");
}

function sendLive(response) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  let at = 0;
  const timer = setInterval(() => {
    response.write(`${liveEvents[at]}\n\n`);
    at = at + 1 < liveEvents.length ? at + 1 : Math.min(1, liveEvents.length - 1);
  }, 200);
  response.on("close", () => clearInterval(timer));
}

const server = createServer(async (request, response) => {
  const json = (value) => (response.setHeader("Content-Type", "application/json"), response.end(JSON.stringify(value)));
  const path = request.url.replace(/^\/llm(?=\/|$)/, "") || "/";
  if (path === "/") {
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": read("policy.txt"), "X-Content-Type-Options": "nosniff" });
    return response.end(read("chat.html"));
  }
  if (path === "/lock") {
    key = "";
    for await (const part of request) key += part;
    return response.end();
  }
  if (path === "/serve") {
    let text = "";
    for await (const part of request) text += part;
    served = JSON.parse(text);
    return response.end();
  }
  if (key && request.headers.authorization !== `Bearer ${key}`) {
    response.statusCode = 401;
    return json({ error: { message: "a key is wanted" } });
  }
  if (path === "/v1/models") return json({ object: "list", data: served.map((id) => ({ id, object: "model" })) });
  if (path === "/live") return sendLive(response);
  if (path === "/asked") return json(asked);
  if (path === "/asked_text") return response.end(askedText);
  if (path === "/cancel" && request.method === "POST") {
    let text = "";
    for await (const part of request) text += part;
    return json({ cancelled: open.delete(JSON.parse(text).id) });
  }
  if (path === "/v1/chat/completions" && request.method === "POST") {
    let text = "";
    for await (const part of request) text += part;
    asked.push(JSON.parse((askedText = text)));
    return answer(asked.at(-1), request, response);
  }
  response.statusCode = 404;
  json({ error: { message: `nothing is at ${request.url}` } });
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
