// SPDX-License-Identifier: Apache-2.0
// What a grammar costs llama.cpp, through the CPU library that npm's node-llama-cpp brings prebuilt, as one line of JSON. The same as
// `tally bench FILE --grammar GBNF -n TOKENS -r ROUNDS -t THREADS` measures of Tally.
// usage: node grammar.mjs FILE.gguf GRAMMAR.gbnf TOKENS ROUNDS THREADS
//
// In turns, at temperature 1: tokens without the grammar, and answers that follow it, until there are TOKENS.
import {readFile} from "node:fs/promises";
import {basename} from "node:path";
import {getLlama, LlamaGrammarEvaluationState, LlamaLogLevel} from "node-llama-cpp";

const [file, grammarFile, ...numbers] = process.argv.slice(2);
const [tokens, rounds, threads] = numbers.map(Number);
if (grammarFile == null || ![tokens, rounds, threads].every((n) => Number.isInteger(n) && n >= 1)) {
  console.error("usage: node grammar.mjs FILE.gguf GRAMMAR.gbnf TOKENS ROUNDS THREADS");
  process.exit(2);
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: file, useMmap: false});
const context = await model.createContext({contextSize: tokens + 64, batchSize: 64, threads, flashAttention: true});
const sequence = context.getSequence();
const grammar = await llama.createGrammar({grammar: await readFile(grammarFile, "utf8")});
const prompt = model.tokenize("The answer: ");
const seconds = () => Number(process.hrtime.bigint()) * 1e-9;

// The rate of decode, and the characters of the answers.
async function draw(held, seed) {
  let count = 0, characters = 0, time = 0;
  while (count < tokens) {
    await sequence.clearHistory();
    const state = held ? new LlamaGrammarEvaluationState({model, grammar}) : undefined;
    const answer = [];
    let start = null;
    for await (const token of sequence.evaluate(prompt, {temperature: 1, seed: seed++, grammarEvaluationState: state})) {
      start ??= seconds();  // after the prompt
      if (held && model.isEogToken(token)) break;
      answer.push(token);
      if (answer.length === tokens) break;
    }
    time += seconds() - start;
    count += answer.length;
    characters += model.detokenize(answer).length;
  }
  return {rate: count / time, character: time / characters};
}

const free = [], held = [], ratios = [], characters = [];
for (let round = 0; round < rounds; ++round) {
  const rates = {};
  for (const way of round % 2 === 0 ? ["free", "held"] : ["held", "free"]) {
    const drawn = await draw(way === "held", 1 + round * 1000);
    rates[way] = drawn.rate;
    if (way === "held") characters.push(drawn.character);
  }
  free.push(rates.free);
  held.push(rates.held);
  ratios.push(rates.held / rates.free);
}
console.log(JSON.stringify({
  engine: "llama.cpp", file: basename(file), grammar: basename(grammarFile), threads,
  free_rate: median(free), held_rate: median(held), rate_ratio: median(ratios), ms_a_character: median(characters) * 1e3
}));
process.exit(0);  // the library's own threads would keep the process alive
