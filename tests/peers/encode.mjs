// SPDX-License-Identifier: Apache-2.0
// usage: node encode.mjs r50k_base|p50k_base|cl100k_base|o200k_base|FOLDER FILE...
// Prints one line for each FILE: the ids that a peer gives for its text, no special tokens parsed and none added, commas between.
// The named encodings are those of npm's tiktoken (OpenAI's code as WebAssembly); FOLDER holds a tokenizer.json, for
// @huggingface/tokenizers.
import { readFileSync } from "node:fs";

const [name, ...files] = process.argv.slice(2);
let encode;
if (/^[a-z0-9]+_base$/.test(name)) {
  const { get_encoding } = await import("tiktoken");
  const encoding = get_encoding(name);
  encode = (text) => encoding.encode_ordinary(text);
} else {
  const { Tokenizer } = await import("@huggingface/tokenizers");
  const tokenizer = new Tokenizer(JSON.parse(readFileSync(`${name}/tokenizer.json`, "utf8")), {});
  encode = (text) => tokenizer.encode(text, { add_special_tokens: false }).ids;
}
// ignoreBOM: a byte order mark is text.
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
for (const file of files) console.log(Array.from(encode(utf8.decode(readFileSync(file)))).join(","));
