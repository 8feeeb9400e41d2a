// SPDX-License-Identifier: Apache-2.0
// Clients that run tools, against a server whose model calls weather({"city": "Rome"}) in one answer and says "It is sunny." in the next.
// usage: node tools.mjs BASE_URL    BASE_URL: http://127.0.0.1:8080/v1
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import {Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool} from "@openai/agents";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {ChatOpenAI} from "@langchain/openai";
import {Ollama} from "ollama";
import {generateText, stepCountIs, tool as aiTool} from "ai";
import {z} from "zod";
import {runCases} from "./cases.mjs";

const [baseURL] = process.argv.slice(2);
const common = {apiKey: "none", maxRetries: 0};
const client = new OpenAI({baseURL, ...common});
const anthropic = new Anthropic({baseURL: baseURL.replace(/\/v1$/, ""), ...common});
const model = "gpt-oss";
const messages = [{role: "user", content: "How is the weather in Rome?"}];
const schema = {type: "object", properties: {city: {type: "string"}}, required: ["city"], additionalProperties: false};
const described = {name: "weather", description: "The weather of a city"};
const asked = [];
const weather = ({city}) => {
  asked.push(city);
  return "sunny";
};
const wasAsked = (times = 1) => assert.deepEqual(asked.splice(0), Array(times).fill("Rome"));

const cases = {
  "openai: runTools, whole and streamed": async () => {
    const tools = [{type: "function", function: {...described, parameters: schema, parse: JSON.parse, function: weather}}];
    for (const stream of [false, true]) {
      const runner = client.chat.completions.runTools({model, messages, tools, stream});
      assert.equal(await runner.finalContent(), "It is sunny.");
      wasAsked();
    }
  },
  "@anthropic-ai/sdk: a call and its result, whole and streamed": async () => {
    const tools = [{...described, input_schema: schema}];
    for (const stream of [false, true]) {
      const ask = (more) => {
        const body = {model, max_tokens: 200, tools, messages: [...messages, ...more]};
        return stream ? anthropic.messages.stream(body).finalMessage() : anthropic.messages.create(body);
      };
      const first = await ask([]);
      assert.equal(first.stop_reason, "tool_use");
      assert.deepEqual(first.content.map((block) => block.type), ["thinking", "tool_use"]);
      const {id, name, input} = first.content[1];
      assert.deepEqual([name, input], ["weather", {city: "Rome"}]);
      const last = await ask([
        {role: "assistant", content: first.content}, {role: "user", content: [{type: "tool_result", tool_use_id: id, content: "sunny"}]}
      ]);
      assert.equal(last.stop_reason, "end_turn");
      assert.equal(last.content.at(-1).text, "It is sunny.");
    }
    const {input_tokens} = await anthropic.messages.countTokens({model, messages, tools});
    assert.ok(input_tokens > (await anthropic.messages.countTokens({model, messages})).input_tokens);
  },
  "@anthropic-ai/sdk: toolRunner": async () => {
    const tools = [{...described, input_schema: schema, type: "custom", run: weather, parse: (input) => input}];
    for (const stream of [false, true]) {
      const last = await anthropic.beta.messages.toolRunner({model, max_tokens: 200, messages, tools, stream}).runUntilDone();
      assert.equal(last.content.at(-1).text, "It is sunny.");
      wasAsked();
    }
  },
  "@openai/agents": async () => {
    setTracingDisabled(true);
    const tools = [tool({...described, parameters: z.object({city: z.string()}), execute: weather})];
    for (const Model of [OpenAIChatCompletionsModel, OpenAIResponsesModel]) {
      const agent = new Agent({name: "a", instructions: "Ask.", tools, model: new Model(client, model), modelSettings: {store: false}});
      assert.equal((await run(agent, "Rome?", {maxTurns: 3})).finalOutput, "It is sunny.");
      const streamed = await run(agent, "Rome?", {maxTurns: 3, stream: true});
      await streamed.completed;
      assert.equal(streamed.finalOutput, "It is sunny.");
      wasAsked(2);
    }
  },
  "@ai-sdk/openai-compatible": async () => {
    const provider = createOpenAICompatible({name: "tally", baseURL, apiKey: "none"});
    const {text, steps} = await generateText({
      model: provider(model), prompt: "Rome?", stopWhen: stepCountIs(3), maxRetries: 0,
      tools: {weather: aiTool({description: described.description, inputSchema: z.object({city: z.string()}), execute: weather})}
    });
    assert.equal(text, "It is sunny.");
    assert.equal(steps.length, 2);
    wasAsked();
  },
  "@langchain/openai": async () => {
    const chat = new ChatOpenAI({model, ...common, configuration: {baseURL}})
      .bindTools([{type: "function", function: {...described, parameters: schema}}]);
    const first = await chat.invoke([["user", "Rome?"]]);
    assert.deepEqual(first.tool_calls.map(({name, args}) => [name, args]), [["weather", {city: "Rome"}]]);
    const result = {role: "tool", content: weather(first.tool_calls[0].args), tool_call_id: first.tool_calls[0].id};
    assert.equal((await chat.invoke([["user", "Rome?"], first, result])).content, "It is sunny.");
    wasAsked();
  },
  "ollama: a call, its result and thinking, whole and streamed": async () => {
    const ollama = new Ollama({host: baseURL.replace(/\/v1$/, "")});
    const tools = [{type: "function", function: {...described, parameters: schema}}];
    for (const stream of [false, true]) {
      const said = {thinking: "", content: "", tool_calls: []};
      const ask = async (conversation) => {
        const answer = await ollama.chat({model, messages: conversation, tools, think: true, stream});
        Object.assign(said, {thinking: "", content: "", tool_calls: []});
        for await (const {message} of stream ? answer : [answer]) {
          said.thinking += message.thinking ?? "";
          said.content += message.content;
          said.tool_calls.push(...message.tool_calls ?? []);
        }
      };
      await ask(messages);
      assert.equal(said.thinking, "A tool will tell.");
      const [{function: {name, arguments: sent}}] = said.tool_calls;
      const called = {role: "assistant", content: said.content, thinking: said.thinking, tool_calls: said.tool_calls};
      await ask([...messages, called, {role: "tool", tool_name: name, content: weather(sent)}]);
      assert.equal(said.content, "It is sunny.");
      wasAsked();
    }
  }
};
await runCases(cases);
