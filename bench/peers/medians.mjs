// Reads lines "ENGINE {json}" of run_peers.sh on standard input and prints medians over the rounds.
import {createInterface} from "node:readline";

const rates = new Map();  // engine -> {prefill: [], decode: []}
const roofs = [];
for await (const line of createInterface({input: process.stdin})) {
  const space = line.indexOf(" ");
  const engine = line.slice(0, space), result = JSON.parse(line.slice(space + 1));
  if (!rates.has(engine)) rates.set(engine, {prefill: [], decode: []});
  for (const phase of ["prefill", "decode"]) rates.get(engine)[phase].push(result[phase].tokens_per_second);
  if (result.roofs != null) roofs.push(result.roofs.read_bytes_per_second / 1e9);
}

const sorted = (values) => values.toSorted((a, b) => a - b);
const median = (values) => sorted(values)[Math.floor(values.length / 2)];
const range = (values) => `${sorted(values)[0].toFixed(1)} to ${sorted(values).at(-1).toFixed(1)}`;
const cell = (text, width) => String(text).padEnd(width);

console.log(cell("engine", 12) + cell("prefill tokens/s", 34) + "decode tokens/s");
for (const [engine, {prefill, decode}] of rates) {
  console.log(cell(engine, 12) + cell(`${median(prefill).toFixed(2)} (${range(prefill)})`, 34) +
    `${median(decode).toFixed(2)} (${range(decode)})`);
}
const tally = rates.get("tally"), peer = rates.get("llama.cpp");
if (tally != null && peer != null) {
  const ratio = (phase) => (median(tally[phase]) / median(peer[phase])).toFixed(2);
  console.log(cell("ratio", 12) + cell(ratio("prefill"), 34) + ratio("decode"));
}
if (roofs.length > 0) console.log(`read bandwidth in the same minutes: ${median(roofs).toFixed(1)} GB/s (${range(roofs)})`);
