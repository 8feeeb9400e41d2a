// SPDX-License-Identifier: Apache-2.0
// Clients that decode at once, and a long prompt that arrives among them.
// usage: node load.mjs BASE_URL CLIENTS TOKENS [LONG_PROMPT]
// Prints one line of JSON: tokens a second of all clients together between the last first token and the first end, the median and the
// greatest time between two tokens of a client; with LONG_PROMPT the same from when a prompt of so many tokens was sent until it was
// answered.
const [base, clients, tokens, long = 0] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const now = () => performance.now() / 1000;

async function stream(body, onToken) {
  const response = await fetch(`${base}/completions`, {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({...body, stream: true})
  });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of response.body) {
    const lines = (rest + decoder.decode(bytes, {stream: true})).split("\n\n");
    rest = lines.pop();
    for (const line of lines) if (line !== "data: [DONE]") onToken(JSON.parse(line.slice(6)));
  }
}

const prompt = (seed, n) => Array.from({length: n}, (_, i) => (seed * 7919 + i * 104729) % 50000);
const times = Array.from({length: clients}, () => []);
let sent = 0, answered = 0;
const all = times.map((mine, i) => stream(
  {prompt: prompt(i + 1, 16), max_tokens: tokens, temperature: 0, ignore_eos: true, logit_bias: {64: 100}}, () => mine.push(now())));
if (long > 0) {
  await new Promise((done) => setTimeout(done, 4000));
  sent = now();
  await stream({prompt: prompt(99, long), max_tokens: 1, temperature: 0, ignore_eos: true, logit_bias: {64: 100}}, () => (answered ||= now()));
}
await Promise.all(all);
const begin = Math.max(...times.map((mine) => mine[0])), end = Math.min(...times.map((mine) => mine.at(-1)));
const inside = times.flat().filter((t) => t > begin && t <= end).length;
const gaps = (from, to) => {
  const found = times.flatMap((mine) => mine.slice(1).map((t, i) => [t, t - mine[i]])).filter(([t]) => t >= from && t <= to)
    .map(([, gap]) => gap).sort((a, b) => a - b);
  return {median_ms: 1000 * found[Math.floor(found.length / 2)], greatest_ms: 1000 * found.at(-1)};
};
console.log(JSON.stringify({
  clients, tokens_per_second: inside / (end - begin), ...gaps(begin, end),
  ...(long > 0 && {long, long_seconds: answered - sent, while_it_ran: gaps(sent, answered)})
}));
