// SPDX-License-Identifier: Apache-2.0
// Reads lines "ENGINE BESIDE {json}" of run_peers.sh on standard input and prints medians over the rounds, and the ratios of tally to
// llama.cpp. Prefill and decode are one point each: an object, or an array of one.
import {createInterface} from "node:readline";

const rates = new Map();  // beside -> engine -> {prefill: [], decode: []}
const roofs = [];
for await (const line of createInterface({input: process.stdin})) {
  const [engine, beside] = line.split(" ", 2);
  const result = JSON.parse(line.slice(engine.length + beside.length + 2));
  if (!rates.has(beside)) rates.set(beside, new Map());
  const engines = rates.get(beside);
  if (!engines.has(engine)) engines.set(engine, {prefill: [], decode: []});
  for (const phase of ["prefill", "decode"]) {
    const [point] = [result[phase]].flat();
    engines.get(engine)[phase].push(point.tokens_per_second);
  }
  if (result.roofs != null && beside === "alone") roofs.push(result.roofs.read_bytes_per_second / 1e9);
}

const sorted = (values) => values.toSorted((a, b) => a - b);
const median = (values) => sorted(values)[Math.floor(values.length / 2)];
const range = (values) => `${sorted(values)[0].toFixed(1)} to ${sorted(values).at(-1).toFixed(1)}`;
const cell = (text, width) => String(text).padEnd(width);

console.log(cell("engine", 24) + cell("prefill tokens/s", 34) + "decode tokens/s");
for (const [beside, engines] of rates) {
  const name = (engine) => cell(engine + (beside === "alone" ? "" : ` beside ${beside}`), 24);
  for (const [engine, {prefill, decode}] of engines) {
    console.log(name(engine) + cell(`${median(prefill).toFixed(2)} (${range(prefill)})`, 34) +
      `${median(decode).toFixed(2)} (${range(decode)})`);
  }
  const tally = engines.get("tally"), peer = engines.get("llama.cpp");
  if (tally == null || peer == null) continue;
  const ratio = (phase) => (median(tally[phase]) / median(peer[phase])).toFixed(2);
  console.log(name("ratio") + cell(ratio("prefill"), 34) + ratio("decode"));
}
if (roofs.length > 0) console.log(`read bandwidth in the same minutes: ${median(roofs).toFixed(1)} GB/s (${range(roofs)})`);
