// SPDX-License-Identifier: Apache-2.0
// Real clients of OpenAI's, Anthropic's and ollama's APIs against a server, each doing what its users do.
// usage: node clients.mjs BASE_URL [KEY]    BASE_URL: http://127.0.0.1:8080/v1
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import {Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled} from "@openai/agents";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {ChatOpenAI} from "@langchain/openai";
import {Ollama} from "ollama";
import {generateObject, generateText, streamObject, streamText} from "ai";
import {zodResponseFormat, zodTextFormat} from "openai/helpers/zod";
import {z} from "zod";
import {runCases} from "./cases.mjs";

const [baseURL, apiKey = "none"] = process.argv.slice(2);
if (baseURL == null) {
  console.error("usage: node clients.mjs BASE_URL [KEY]");
  process.exit(2);
}
const client = new OpenAI({baseURL, apiKey, maxRetries: 0});
const anthropic = new Anthropic({baseURL: baseURL.replace(/\/v1$/, ""), apiKey, maxRetries: 0});
const ollama = new Ollama({host: baseURL.replace(/\/v1$/, ""), headers: {Authorization: `Bearer ${apiKey}`}});
const model = (await client.models.list()).data[0].id;
const messages = [{role: "user", content: "Who art thou?"}];
const fixed = {model, messages, max_tokens: 8, temperature: 0, seed: 7};

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}
const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join("");

async function refused(promise, param) {
  const error = await promise.then(() => null, (e) => e);
  assert.ok(error instanceof OpenAI.BadRequestError, `${param}: ${error}`);
  assert.equal(error.param, param);
}

// Whom the demo model plays, as programs ask for it.
const Role = z.object({
  name: z.string().max(20),
  kind: z.enum(["king", "queen", "fool"]),
  lines: z.array(z.object({to: z.string().max(12), loud: z.boolean()}).strict()).max(2),
  age: z.number().int().min(1).max(99).nullable(),
}).strict();

const tests = {
  "openai: chat, whole and streamed, the same text": async () => {
    const whole = await client.chat.completions.create(fixed);
    const chunks = await collect(await client.chat.completions.create({...fixed, stream: true, stream_options: {include_usage: true}}));
    assert.equal(textOf(chunks), whole.choices[0].message.content);
    assert.equal(whole.usage.completion_tokens, 8);
    assert.equal(whole.choices[0].finish_reason, "length");
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.equal(chunks.at(-1).usage.completion_tokens, 8);
    assert.equal(chunks[0].choices[0].delta.role, "assistant");
    assert.ok(chunks.every((chunk) => chunk.object === "chat.completion.chunk" && chunk.id === chunks[0].id));
  },
  "openai: choices, each with a seed of its own": async () => {
    const three = await client.chat.completions.create({...fixed, temperature: 1, n: 3});
    assert.deepEqual(three.choices.map((choice) => choice.index), [0, 1, 2]);
    const last = await client.chat.completions.create({...fixed, temperature: 1, seed: 9});
    assert.equal(three.choices[2].message.content, last.choices[0].message.content);
  },
  "openai: a body that is too large has an answer": async () => {
    const error = await client.completions.create({model, prompt: "x".repeat(30 << 20)}).then(() => null, (e) => e);
    assert.equal(error?.status, 413, String(error));
  },
  "openai: log probabilities": async () => {
    const answer = await client.chat.completions.create({...fixed, max_tokens: 3, logprobs: true, top_logprobs: 4});
    const {content} = answer.choices[0].logprobs;
    assert.equal(content.length, 3);
    for (const token of content) {
      assert.equal(token.top_logprobs.length, 4);
      assert.ok(token.logprob <= 0 && token.top_logprobs[0].logprob === token.logprob);
      assert.equal(Buffer.from(token.bytes).toString(), token.token);
    }
  },
  "openai: stop, bias": async () => {
    const {choices: [{message: {content}}]} = await client.chat.completions.create(fixed);
    const stop = content.slice(4, 7);
    const stopped = await client.chat.completions.create({...fixed, stop});
    assert.equal(stopped.choices[0].message.content, content.slice(0, content.indexOf(stop)));
    assert.equal(stopped.choices[0].finish_reason, "stop");
    const forced = await client.chat.completions.create({...fixed, max_tokens: 4, logit_bias: {65: 100}});
    const others = await client.chat.completions.create({...fixed, max_tokens: 4, logit_bias: {65: -100}});
    assert.notEqual(forced.choices[0].message.content, others.choices[0].message.content);
  },
  "openai: completions": async () => {
    const body = {model, prompt: "ROMEO:", max_tokens: 8, temperature: 0};
    const whole = await client.completions.create(body);
    const chunks = await collect(await client.completions.create({...body, stream: true}));
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? "").join(""), whole.choices[0].text);
    const two = await client.completions.create({...body, prompt: ["ROMEO:", "JULIET:"]});
    assert.equal(two.choices.length, 2);
    assert.equal(two.choices[0].text, whole.choices[0].text);
  },
  "openai: responses, whole and streamed": async () => {
    const body = {model, input: "Who art thou?", max_output_tokens: 8, temperature: 0, store: false};
    const whole = await client.responses.create(body);
    assert.equal(whole.object, "response");
    assert.equal(whole.usage.output_tokens, 8);
    const events = await collect(await client.responses.create({...body, stream: true}));
    assert.equal(events[0].type, "response.created");
    assert.equal(events.filter((e) => e.type === "response.output_text.delta").map((e) => e.delta).join(""), whole.output_text);
    assert.ok(["response.completed", "response.incomplete"].includes(events.at(-1).type));
    events.forEach((event, i) => assert.equal(event.sequence_number, i, "sequence_number"));
    const final = await client.responses.stream(body).finalResponse();
    assert.equal(final.output_text, whole.output_text);
    const {data, response} = await client.responses.create({...body, store: true}).withResponse();
    assert.equal(data.store, false);
    assert.equal(response.headers.get("x-tally-ignored"), "store");
    assert.match(data._request_id, /^req_/);
  },
  "openai: what its helpers were given can be sent back": async () => {
    const first = await client.chat.completions.create(fixed);
    // As parse() adds it, which does not take answers that were cut.
    const message = {...first.choices[0].message, parsed: null, annotations: [], audio: null, function_call: null};
    const messages = [...fixed.messages, message, {role: "user", content: "And then?"}];
    const next = await client.chat.completions.create({...fixed, messages, reasoning_effort: "minimal", verbosity: "low", store: true});
    assert.equal(next.choices.length, 1);
    const items = await client.responses.parse({model, input: "Who art thou?", max_output_tokens: 8});
    const input = [{role: "user", content: "Who art thou?"}, ...items.output, {role: "user", content: "And then?"}];
    assert.equal((await client.responses.create({model, input, max_output_tokens: 8})).object, "response");
  },
  "structured: openai's helpers parse what the schema allows": async () => {
    const more = {...fixed, max_tokens: 300, temperature: 1.5};
    for (const seed of [1, 2, 3]) {
      const chat = await client.chat.completions.parse({...more, seed, response_format: zodResponseFormat(Role, "role")});
      Role.parse(chat.choices[0].message.parsed);
      assert.equal(chat.choices[0].finish_reason, "stop");
    }
    const stream = client.chat.completions.stream({...more, response_format: zodResponseFormat(Role, "role")});
    Role.parse((await stream.finalChatCompletion()).choices[0].message.parsed);
    const response = await client.responses.parse({model, input: "Who art thou?", temperature: 1.5, text: {format: zodTextFormat(Role, "role")}});
    Role.parse(response.output_parsed);
    const any = await client.chat.completions.create({...more, temperature: 0, response_format: {type: "json_object"}, max_tokens: 40});
    assert.ok(any.choices[0].message.content.startsWith("{"), any.choices[0].message.content);
  },
  "structured: fields of vLLM's and llama.cpp's clients": async () => {
    const say = async (more) => (await client.chat.completions.create({...fixed, max_tokens: 60, ...more})).choices[0].message.content;
    assert.ok(["yea", "nay"].includes(await say({guided_choice: ["yea", "nay"]})));
    assert.match(await say({guided_regex: "[A-Z]{3}-\\d{2}"}), /^[A-Z]{3}-\d{2}$/);
    assert.match(await say({grammar: 'root ::= "a"{3} [bc]+ "!"', max_tokens: 8}), /^aaa[bc]*!?$/);
    assert.equal(await say({structured_outputs: {json: {const: [1, "x"]}}}), '[1,"x"]');
  },
  "structured: the AI SDK's objects": async () => {
    const provider = createOpenAICompatible({name: "tally", baseURL, apiKey, supportsStructuredOutputs: true});
    const call = {model: provider(model), schema: Role, prompt: "Who art thou?", temperature: 1.5};
    Role.parse((await generateObject(call)).object);
    const streamed = streamObject(call);
    let parts = 0;
    for await (const _ of streamed.partialObjectStream) ++parts;
    Role.parse(await streamed.object);
    assert.ok(parts > 1);
  },
  "structured: Anthropic's output_config": async () => {
    const schema = {type: "object", properties: {name: {type: "string", maxLength: 12}}, required: ["name"], additionalProperties: false};
    const answer = await anthropic.messages.create({model, max_tokens: 60, messages, output_config: {format: {type: "json_schema", schema}}});
    assert.equal(typeof JSON.parse(answer.content[0].text).name, "string");
  },
  "openai: what is not supported is named": async () => {
    const schema = {type: "json_schema", json_schema: {name: "x", schema: {$dynamicRef: "#x"}}};
    await refused(client.chat.completions.create({...fixed, response_format: schema}), "response_format.json_schema.schema");
    await refused(client.responses.create({model, input: "x", previous_response_id: "resp_1"}), "previous_response_id");
    await refused(client.chat.completions.create({...fixed, temperature: -1}), "temperature");
    const missing = await client.chat.completions.create({...fixed, model: "no such model"}).then(() => null, (e) => e);
    if (missing != null) assert.ok(missing instanceof OpenAI.NotFoundError, String(missing));
  },
  "openai: a client that leaves": async () => {
    const stream = await client.chat.completions.create({...fixed, max_tokens: 200, stream: true});
    for await (const _ of stream) break;
    stream.controller.abort();
    assert.equal((await client.chat.completions.create(fixed)).choices[0].finish_reason, "length");
  },
  "openai: the bill": async () => {
    const answer = await client.chat.completions.create(fixed, {headers: {"X-Tally": "1"}});
    const bill = answer.usage.tally;
    assert.ok(bill.parameters_touched > 0 && bill.decode.flops > 0 && bill.decode.bytes["weights packed"] > 0, JSON.stringify(bill));
    assert.equal((await client.chat.completions.create(fixed)).usage.tally, undefined);
  },
  "@ai-sdk/openai-compatible": async () => {
    const provider = createOpenAICompatible({name: "tally", baseURL, apiKey, includeUsage: true});
    const common = {model: provider(model), prompt: "Who art thou?", maxOutputTokens: 8, temperature: 0, maxRetries: 0};
    const whole = await generateText(common);
    assert.equal(whole.usage.outputTokens, 8);
    const stream = streamText(common);
    let text = "";
    for await (const part of stream.textStream) text += part;
    assert.equal(text, whole.text);
    assert.equal((await stream.usage).outputTokens, 8);
    assert.equal(await stream.finishReason, "length");
  },
  "@langchain/openai": async () => {
    const chat = new ChatOpenAI({
      model, apiKey, configuration: {baseURL}, maxTokens: 8, temperature: 0, maxRetries: 0, streamUsage: true
    });
    const whole = await chat.invoke([["system", "A street in Verona."], ["user", "Who art thou?"]]);
    assert.equal(whole.usage_metadata.output_tokens, 8);
    assert.equal(whole.response_metadata.finish_reason, "length");
    let all = null;
    for await (const chunk of await chat.stream([["system", "A street in Verona."], ["user", "Who art thou?"]])) {
      all = all == null ? chunk : all.concat(chunk);
    }
    assert.equal(all.content, whole.content);
    assert.equal(all.usage_metadata.output_tokens, 8);
    assert.equal((await chat.batch(["Who art thou?", "Speak."])).length, 2);
  },
  "@anthropic-ai/sdk: messages, whole and streamed, the same": async () => {
    const body = {model, messages, max_tokens: 8, temperature: 0, system: "A street in Verona."};
    const whole = await anthropic.messages.create(body);
    assert.equal(whole.type, "message");
    assert.equal(whole.content[0].type, "text");
    assert.equal(whole.stop_reason, "max_tokens");
    assert.equal(whole.usage.output_tokens, 8);
    const events = await collect(await anthropic.messages.create({...body, stream: true}));
    assert.equal(events[0].type, "message_start");
    assert.equal(events.at(-1).type, "message_stop");
    const stream = anthropic.messages.stream(body);
    let text = "";
    stream.on("text", (delta) => { text += delta; });
    const final = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.deepEqual(final.content, whole.content);
    assert.equal(final.stop_reason, whole.stop_reason);
    const {input_tokens, cache_read_input_tokens, output_tokens} = final.usage;
    assert.equal(output_tokens, 8);
    const counted = await anthropic.messages.countTokens({model, messages, system: body.system});
    assert.equal(input_tokens + cache_read_input_tokens, counted.input_tokens);
    const stopped = await anthropic.messages.create({...body, stop_sequences: [text.slice(4, 7)]});
    assert.equal(stopped.stop_reason, "stop_sequence");
    assert.equal(stopped.stop_sequence, text.slice(4, 7));
  },
  "@anthropic-ai/sdk: models, and a client that leaves": async () => {
    for await (const one of anthropic.models.list()) assert.equal(one.id, model);
    assert.equal((await anthropic.models.retrieve(model)).type, "model");
    const stream = await anthropic.messages.create({model, messages, max_tokens: 200, stream: true});
    for await (const _ of stream) break;
    stream.controller.abort();
    assert.equal((await anthropic.messages.create({model, messages, max_tokens: 2})).role, "assistant");
  },
  "@anthropic-ai/sdk: errors, and tools": async () => {
    const body = {model, messages, max_tokens: 8};
    const refusal = async (more, status, part) => {
      const error = await anthropic.messages.create({...body, ...more}).then(() => null, (e) => e);
      assert.ok(error instanceof Anthropic.APIError, `${part}: ${error}`);
      assert.equal(error.status, status);
      assert.equal(error.error.type, "error");
      assert.ok(error.message.includes(part), error.message);
    };
    const tools = [{name: "weather", description: "of a city", input_schema: {type: "object", properties: {city: {type: "string"}}}}];
    await refusal({max_tokens: -1}, 400, "max_tokens");
    await refusal({tools, tool_choice: {type: "any"}}, 400, "tools");
    await refusal({messages: [{role: "user", content: [{type: "image", source: {type: "url", url: "http://x"}}]}]}, 400, "image");
    // The demo's template has no room for them.
    await refusal({tools}, 400, "tools");
    const answered = await anthropic.messages.create({...body, tools, tool_choice: {type: "none"}});
    assert.equal(answered.content[0].type, "text");
  },
  "ollama: lists": async () => {
    const {models} = await ollama.list();
    assert.deepEqual(models.map((one) => one.name), [`${model}:latest`]);
    const shown = await ollama.show({model: models[0].name});
    assert.ok(shown.capabilities.includes("completion") && shown.details.family && shown.model_info["general.parameter_count"] > 0);
    assert.equal((await ollama.ps()).models[0].model, models[0].name);
    assert.equal(typeof (await ollama.version()).version, "string");
  },
  "ollama: chat and generate, whole and streamed, the same text": async () => {
    const body = {model: `${model}:latest`, messages, options: {num_predict: 8, temperature: 0, seed: 7}, keep_alive: "5m"};
    const whole = await ollama.chat(body);
    assert.equal(whole.message.role, "assistant");
    assert.equal(whole.model, body.model);
    assert.equal(whole.eval_count, 8);
    assert.equal(whole.done_reason, "length");
    assert.ok(whole.total_duration > 0 && whole.eval_duration > 0 && whole.prompt_eval_count > 0);
    const openai = await client.chat.completions.create(fixed);
    assert.equal(whole.message.content, openai.choices[0].message.content);
    const parts = await collect(await ollama.chat({...body, stream: true}));
    assert.equal(parts.map((part) => part.message.content).join(""), whole.message.content);
    assert.ok(parts.at(-1).done && parts.slice(0, -1).every((part) => !part.done));
    const prompted = {model, prompt: messages[0].content, options: body.options};
    const generated = await ollama.generate(prompted);
    assert.equal(generated.response, whole.message.content);
    const pieces = await collect(await ollama.generate({...prompted, stream: true}));
    assert.equal(pieces.map((piece) => piece.response).join(""), generated.response);
    assert.equal((await ollama.generate({...prompted, raw: true, prompt: "ROMEO:"})).eval_count, 8);
    assert.equal((await ollama.generate({model})).done_reason, "load");
  },
  "ollama: format": async () => {
    const role = await ollama.chat({model, messages, format: z.toJSONSchema(Role), options: {temperature: 1.5, seed: 1}});
    Role.parse(JSON.parse(role.message.content));
    const any = await ollama.chat({model, messages, format: "json", options: {num_predict: 40, temperature: 0}});
    assert.ok(any.message.content.startsWith("{"), any.message.content);
  },
  "ollama: a client that leaves, and refusals": async () => {
    const stream = await ollama.chat({model, messages, stream: true, options: {num_predict: 200}});
    for await (const _ of stream) break;
    stream.abort();
    assert.equal((await ollama.chat({model, messages, options: {num_predict: 2}})).eval_count, 2);
    const refusals = [
      [() => ollama.pull({model: "llama3"}), 404, "tally pull"],
      [() => ollama.delete({model}), 404, "/api/delete"],
      [() => ollama.embed({model, input: "x"}), 404, "embeddings"],
      [() => ollama.chat({model, messages: [{role: "user", content: "x", images: ["aa"]}]}), 400, "images"],
      [() => ollama.chat({model, messages, options: {mirostat: 2}}), 400, "options.mirostat"],
      [() => ollama.generate({model, prompt: "a", suffix: "b", stream: true}), 400, "suffix"],
      [() => ollama.show({model: "no such model"}), 404, "no such model"],
    ];
    for (const [ask, status, part] of refusals) {
      const error = await ask().then(() => null, (e) => e);
      assert.equal(error?.status_code, status, `${part}: ${error}`);
      assert.ok(error.message.includes(part), error.message);
    }
  },
  "@openai/agents": async () => {
    setTracingDisabled(true);
    for (const Model of [OpenAIChatCompletionsModel, OpenAIResponsesModel]) {
      const agent = new Agent({
        name: "a", instructions: "A street in Verona.", model: new Model(client, model),
        modelSettings: {maxTokens: 64, temperature: 0, store: false},
      });
      const result = await run(agent, "Who art thou?", {maxTurns: 1});
      assert.equal(typeof result.finalOutput, "string");
      const streamed = await run(agent, "Who art thou?", {maxTurns: 1, stream: true});
      let text = "";
      for await (const part of streamed.toTextStream()) text += part;
      await streamed.completed;
      assert.equal(text, result.finalOutput, Model.name);
    }
  },
};

await runCases(tests);
