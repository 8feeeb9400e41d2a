// SPDX-License-Identifier: Apache-2.0
// Clients that come, stall, leave and send nonsense, for some minutes, against a server of its own. Fails where an answer is lost or is not
// what the same request gave alone, where the server's memory grows by more than 16 MiB after the first minute, or where at the end the
// bills do not add up to the ledger. With BUDGET, as in 400MB, experts come from disk (--weights-budget): what a request must give is asked
// of a server that has all in memory, before, and at the end hits, misses and bytes from disk must add up. A model without a chat template,
// as `tally synth` makes them, is asked for completions of token ids; they are compared with their log probabilities.
// usage: node soak.mjs TALLY [MINUTES=20] [MODEL=demo] [CLIENTS=12] [BUDGET]
import {spawn} from "node:child_process";
import {readFileSync} from "node:fs";
import net from "node:net";

const [tally, minutes = 20, model = "demo", clients = 12, budget] = process.argv.slice(2);
if (tally == null) {
  console.error("usage: node soak.mjs TALLY [MINUTES] [MODEL] [CLIENTS] [BUDGET]");
  process.exit(2);
}
let server = null, ended = null, base = "";
async function start(...options) {
  const own = server = spawn(tally, ["serve", model, "--port", "0", "--metrics", "--parallel", "8", "-c", "512", "--log", "none", ...options],
                             {stdio: ["ignore", "pipe", "pipe"]});
  ended = null;
  own.on("exit", (code, signal) => { if (server === own) ended = `code ${code}, signal ${signal}`; });
  base = await new Promise((resolve, reject) => {
    let said = "";
    const listen = (data) => {
      said += data;
      const found = /http:\/\/[0-9.:]+/.exec(said);
      if (found) resolve(found[0]);
    };
    own.stdout.on("data", listen);
    own.stderr.on("data", listen);
    own.on("exit", () => reject(new Error(`the server ended: ${said}`)));
  });
}
await start();
const {data: [{id}]} = await (await fetch(`${base}/v1/models`)).json();

let state = 1;
const random = (n) => {  // xorshift
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % n;
};
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const failures = [];
const fail = (what) => { if (failures.length < 20) failures.push(what); };
const done = {whole: 0, streamed: 0, messages: 0, left: 0, cancelled: 0, stalled: 0, cut: 0, refused: 0, busy: 0};

const words = ["Who", "art", "thou", "my", "lord", "and", "speak", "of", "night", "Rome"];
const text = (seed, n) => Array.from({length: n}, (_, i) => words[(seed * 7 + i * i + i * seed) % words.length]).join(" ");
const ids = (seed, n) => Array.from({length: n}, (_, i) => (seed * 7 + i * i + i * seed) % 250);
const asked = await fetch(`${base}/v1/chat/completions`, {
  method: "POST", body: JSON.stringify({model: id, max_tokens: 1, messages: [{role: "user", content: "a"}]})
});
const chats = asked.status === 200;
await asked.text();
const bodies = Array.from({length: 24}, (_, i) => ({
  model: id, max_tokens: 4 + 3 * i, temperature: i % 3 === 0 ? 0 : 0.9, seed: i, n: 1 + (i % 5 === 4 ? 2 : 0),
  ...chats ? {messages: [{role: "system", content: text(1, 30)}, {role: "user", content: text(i, 1 + 4 * i)}]}
           : {prompt: [...ids(1, 140), ...ids(i, 1 + 4 * i)], logprobs: 1}
}));
const post = (body, signal) => fetch(`${base}/v1/${chats ? "chat/" : ""}completions`, {
  method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body), signal
});
const idsAndLogprobs = (choice) => choice.token_ids.map((token, i) => `${token} ${choice.logprobs.token_logprobs[i]}; `).join("");
const contents = (answer) => answer.choices.map((choice) => chats ? choice.message.content : idsAndLogprobs(choice));
const delta = (choice) => chats ? choice.delta.content ?? "" : choice.token_ids?.length > 0 ? idsAndLogprobs(choice) : "";
const expected = [];
for (const body of bodies) expected.push(contents(await (await post(body)).json()));
if (budget != null) {
  const all = server;
  await new Promise((done) => { all.on("exit", done); all.kill("SIGTERM"); });
  await start("--weights-budget", budget);
}
const port = Number(new URL(base).port);

async function chunksOf(response, onChunk) {
  const decoder = new TextDecoder();
  let rest = "", over = false;
  for await (const bytes of response.body) {
    const lines = (rest + decoder.decode(bytes, {stream: true})).split("\n\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith(":")) continue;  // it keeps the connection alive
      if (line === "data: [DONE]") over = true;
      else if (await onChunk(JSON.parse(line.replace(/^data: /, ""))) === false) return false;
    }
  }
  return over;
}

const same = (i, got) => { if (JSON.stringify(got) !== JSON.stringify(expected[i])) fail(`request ${i}: ${JSON.stringify(got)}, not ${JSON.stringify(expected[i])}`); };
const isBusy = async (response) => {
  if (response.status !== 429 && response.status !== 503) return false;
  ++done.busy;
  await response.text();
  return true;
};

const acts = {
  async whole() {
    const i = random(bodies.length), response = await post(bodies[i]);
    if (await isBusy(response)) return;
    if (response.status !== 200) return fail(`status ${response.status}: ${await response.text()}`);
    same(i, contents(await response.json()));
    ++done.whole;
  },
  async streamed(stall = 0) {
    const i = random(bodies.length), response = await post({...bodies[i], stream: true});
    if (await isBusy(response)) return;
    const got = expected[i].map(() => "");
    const over = await chunksOf(response, async ({choices: [choice]}) => {
      if (choice == null) return;
      got[choice.index] += delta(choice);
      if (stall > 0 && random(4) === 0) await sleep(random(stall));
    });
    if (!over) fail(`request ${i}: the stream was cut`);
    same(i, got);
    ++done[stall > 0 ? "stalled" : "streamed"];
  },
  stalled: () => acts.streamed(200),
  async left() {
    const control = new AbortController(), body = bodies[random(bodies.length)];
    const timer = setTimeout(() => control.abort(), random(40));
    try {
      const response = await post({...body, max_tokens: 400, ignore_eos: true, stream: true}, control.signal);
      await chunksOf(response, () => random(10) !== 0);
    } catch (error) {
      if (error.name !== "AbortError") fail(`left: ${error}`);
    }
    clearTimeout(timer);
    control.abort();
    ++done.left;
  },
  async messages() {  // Anthropic's dialect says the same
    const i = 5 * random(4), {n, messages: [{content: system}, ...messages], ...body} = bodies[i];
    const response = await fetch(`${base}/v1/messages`, {method: "POST", body: JSON.stringify({...body, system, messages})});
    if (await isBusy(response)) return;
    const answer = await response.json();
    if (response.status !== 200) return fail(`messages: ${JSON.stringify(answer)}`);
    same(i, [answer.content.map((block) => block.text).join("")]);
    ++done.messages;
  },
  async cancelled() {  // what has come has its usage
    const response = await post({...bodies[random(bodies.length)], n: 1, max_tokens: 400, ignore_eos: true, stream: true, tally: true});
    if (await isBusy(response)) return;
    let asked = null, usage = null;
    const over = await chunksOf(response, (chunk) => {
      usage = chunk.usage;
      if (chunk.choices.length > 0 && random(4) === 0) {
        asked ??= fetch(`${base}/cancel`, {method: "POST", body: JSON.stringify({id: chunk.id})}).then((answer) => answer.text());
      }
    });
    await asked;
    if (!over || usage?.tally == null) fail(`a cancelled answer has the usage ${JSON.stringify(usage)}`);
    ++done.cancelled;
  },
  async cut() {  // a body or a header that never ends
    const socket = net.connect(port, "127.0.0.1");
    socket.on("error", () => {});
    socket.write("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n");
    if (random(2)) socket.write("\r\n{\"messages\": [");
    await sleep(random(3000));
    random(2) ? socket.destroy() : socket.end();
    ++done.cut;
  },
  async refused() {
    const nonsense = ["{", "[]", "\xff\xfe", JSON.stringify({messages: []}), "[".repeat(5000), JSON.stringify({...bodies[0], n: -1})];
    const response = await fetch(`${base}/v1/chat/completions`, {method: "POST", body: nonsense[random(nonsense.length)]});
    if (response.status !== 400) fail(`nonsense was answered with ${response.status}`);
    if ((await response.json()).error == null) fail("an error without its object");
    ++done.refused;
  }
};

const kinds = ["whole", "whole", "streamed", "streamed", "stalled", ...chats ? ["messages"] : [], "left", "left", "cancelled", "cut", "refused"];
const end = performance.now() + minutes * 60_000;
async function live() {
  while (performance.now() < end && ended == null) {
    const act = kinds[random(kinds.length)];
    try {
      await acts[act]();
    } catch (error) {
      fail(`${act}: ${error.stack}`);
    }
    if (random(5) === 0) await sleep(random(500));
  }
}
const memory = () => Number(/VmRSS:\s*(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, "utf8"))[1]) / 1024;
// Slots and the cache of a larger model fill more slowly.
const settles = budget != null ? minutes / 3 : Math.min(1, minutes / 4);
let afterMinute = null, most = 0;
const watch = setInterval(() => {
  if (ended != null) return;
  const now = memory();
  if (end - performance.now() < (minutes - settles) * 60_000) afterMinute ??= now;
  most = Math.max(most, now);
}, 500);
await Promise.all(Array.from({length: Number(clients)}, live));
clearInterval(watch);

// Requests whose clients have left may still be running.
const metrics = async () => Object.fromEntries((await (await fetch(`${base}/metrics`)).text()).split("\n").filter((line) => line && line[0] !== "#")
  .map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ") + 1))]));
let last = {}, disk = {};
if (ended == null) {
  for (let i = 0; i < 200; ++i, await sleep(50)) {
    last = await metrics();
    if (last.tally_requests_running === 0 && last.tally_requests_waiting === 0) break;
  }
  const sum = (name) => Object.entries(last).filter(([key]) => key.startsWith(name)).reduce((all, [, value]) => all + value, 0);
  for (const what of ["flops", "rows"]) {
    const ledger = sum(`tally_${what}_total`), bills = sum(`tally_billed_${what}_total`);
    if (!(ledger > 0) || ledger !== bills) fail(`${what}: ledger ${ledger}, bills ${bills}`);
  }
  const byLayer = (name) => Object.entries(last).filter(([key]) => key.startsWith(`tally_${name}{`)).map(([, value]) => value);
  const read = byLayer("experts_read_total"), hits = byLayer("expert_hits_total"), misses = byLayer("expert_misses_total");
  const bytes = byLayer("expert_disk_bytes_total");
  if (budget != null && !(sum("tally_expert_misses_total") > 0 && hits.length === read.length)) fail("no experts came from disk");
  hits.forEach((n, i) => {
    if (n + misses[i] !== read[i]) fail(`experts: ${n} hits and ${misses[i]} misses of ${read[i]}`);
    if (bytes[i] * misses[0] !== bytes[0] * misses[i]) fail(`${bytes[i]} bytes from disk for ${misses[i]} experts`);
  });
  if (budget != null) disk = {hits: sum("tally_expert_hits_total"), misses: sum("tally_expert_misses_total"), disk_bytes: sum("tally_expert_disk_bytes_total")};
  if (last.tally_kv_bytes !== 0) fail(`${last.tally_kv_bytes} bytes of the KV cache are held by nobody`);
  if (most > afterMinute + 16) fail(`memory grew from ${afterMinute} to ${most} MiB`);
  server.kill("SIGTERM");
  for (let i = 0; i < 200 && ended == null; ++i) await sleep(50);
  if (ended !== "code 0, signal null") fail(`the server ended with ${ended}`);
} else {
  fail(`the server ended with ${ended}`);
}
server.kill("SIGKILL");
console.log(JSON.stringify({minutes: Number(minutes), ...done, ...disk, settled_mib: afterMinute, most_mib: most, failures}, null, 1));
process.exit(failures.length > 0 ? 1 : 0);
