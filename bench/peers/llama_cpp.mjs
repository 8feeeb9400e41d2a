// SPDX-License-Identifier: Apache-2.0
// One timing of llama.cpp, through the CPU library that npm's node-llama-cpp brings prebuilt, as one line of JSON.
// usage: node llama_cpp.mjs FILE.gguf PROMPT GENERATE REPETITIONS THREADS [DEPTH=0] [mmap]
//
// As `tally bench` does it: weights in memory of the process's own (mmap: mapped, llama.cpp's default); DEPTH tokens in the context before anything is timed;
// after them a prompt of PROMPT tokens in batches of 512, and, in another sequence, GENERATE single-token evaluations, each with its
// logits and their greatest; a first repetition that is thrown away; medians.
// evaluateWithoutGeneratingNewTokens() would ask for no logits, and llama.cpp then leaves out the head and most of the last layer.
import {basename} from "node:path";
import {getLlama, LlamaLogLevel, readGgufFileInfo} from "node-llama-cpp";

const mapped = process.argv.at(-1) === "mmap";
const [file, ...numbers] = process.argv.slice(2, mapped ? -1 : undefined);
const [prompt, generate, repetitions, threads, depth = 0] = numbers.map(Number);
const whole = (n, least) => Number.isInteger(n) && n >= least;
if (file == null || ![prompt, generate, repetitions, threads].every((n) => whole(n, 1)) || !whole(depth, 0)) {
  console.error("usage: node llama_cpp.mjs FILE.gguf PROMPT GENERATE REPETITIONS THREADS [DEPTH] [mmap]");
  process.exit(2);
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

const info = await readGgufFileInfo(file);
const vocabulary = info.metadata.tokenizer?.ggml?.tokens?.length;
if (!(vocabulary > 0)) {
  console.error(`llama_cpp.mjs: ${file} has no vocabulary, without which llama.cpp ends: make it with tally synth --vocab-from`);
  process.exit(2);
}

const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: file, useMmap: mapped});
const context = await model.createContext({
  contextSize: depth + Math.max(prompt, generate) + 8, batchSize: Math.min(512, Math.max(depth, prompt)), threads, flashAttention: true
});
const sequence = context.getSequence();
const token = (i) => (12345 + 7919 * i) % vocabulary;  // any tokens do: what is timed does not depend on them

async function seconds(work) {
  const start = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - start) * 1e-9;
}

const wanted = (token) => [token, {generateNext: {token: true, options: {temperature: 0}}}];

// Leaves `depth` tokens in the context: it goes back to them where it can.
async function fill() {
  if (depth === 0) return sequence.clearHistory();
  if (sequence.nextTokenIndex > depth) await sequence.eraseContextTokenRanges([{start: depth, end: sequence.nextTokenIndex}]);
  if (sequence.nextTokenIndex === depth) return;
  await sequence.clearHistory();
  await sequence.controlledEvaluate(Array.from({length: depth}, (_, i) => token(i)));
}

const promptRates = [], generateRates = [];
for (let repetition = 0; repetition <= repetitions; ++repetition) {
  await fill();
  const tokens = Array.from({length: prompt}, (_, i) => i + 1 < prompt ? token(depth + i) : wanted(token(depth + i)));
  const prefill = await seconds(() => sequence.controlledEvaluate(tokens));
  await fill();
  const decode = await seconds(async () => {
    for (let i = 0; i < generate; ++i) await sequence.controlledEvaluate([wanted(token(depth + i))]);
  });
  if (repetition === 0) continue;
  promptRates.push(prompt / prefill);
  generateRates.push(generate / decode);
}
console.log(JSON.stringify({
  engine: "llama.cpp", file: basename(file), prompt, generate, threads, depth,
  prefill: {tokens_per_second: median(promptRates)}, decode: {tokens_per_second: median(generateRates)}
}));
process.exit(0);  // the library's own threads would keep the process alive
