// npm's clients of OpenAI's and Anthropic's APIs, straight to an engine and
// through the router: clients.mjs FOLDER DIRECT ROUTER; TAP.
//
// FOLDER has the packages, DIRECT and ROUTER are URLs.  Both must give the
// client the same bytes, and the client must make the same of them.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, direct, router] = process.argv.slice(2);
const load = createRequire(`${folder}/`);
const OpenAI = load("openai").default;
const Anthropic = load("@anthropic-ai/sdk").default;

const user = [{ role: "user", content: "Which ship has wool?" }];
const model = "golden";

// What came, as bytes: one buffer an answer.
function recorder() {
    const came = [];
    const record = async (...args) => {
        const response = await fetch(...args);
        came.push(response.clone().arrayBuffer().then(Buffer.from));
        return response;
    };
    return { came, record };
}

async function all(stream) {
    const events = [];
    for await (const event of stream) {
        events.push(event);
    }
    return events;
}

const openai = (url, engine, fetch) => new OpenAI({
    baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0, fetch,
    defaultHeaders: { "x-engine": engine } });
const anthropic = (url, engine, fetch) => new Anthropic({
    baseURL: url, apiKey: "none", maxRetries: 0, fetch,
    defaultHeaders: { "x-engine": engine } });

const calls = {
    "openai: a completion": (...to) =>
        openai(...to).completions.create({ model, prompt: "wool" }),
    "openai: a completion, streamed": async (...to) => all(
        await openai(...to).completions.create(
            { model, prompt: "wool", stream: true })),
    "openai: a chat": (...to) =>
        openai(...to).chat.completions.create({ model, messages: user }),
    "openai: a chat, streamed": async (...to) => all(
        await openai(...to).chat.completions.create(
            { model, messages: user, stream: true })),
    "openai: a response": (...to) =>
        openai(...to).responses.create({ model, input: "wool" }),
    "openai: a response, streamed": async (...to) => all(
        await openai(...to).responses.create(
            { model, input: "wool", stream: true })),
    "openai: the models": async (...to) =>
        (await openai(...to).models.list()).data,
    "anthropic: a message": (...to) =>
        anthropic(...to).messages.create(
            { model, messages: user, max_tokens: 2 }),
    "anthropic: a message, streamed": (...to) =>
        anthropic(...to).messages.stream(
            { model, messages: user, max_tokens: 2 }).finalMessage(),
    "anthropic: tokens counted": (...to) =>
        anthropic(...to).messages.countTokens({ model, messages: user }),
};

// A client that leaves in the middle of a stream.
async function leaves(url, engine) {
    const left = new AbortController();
    const stream = await openai(url, engine).chat.completions.create(
        { model, messages: user, stream: true, user: "leaves" },
        { signal: left.signal });
    for await (const _ of stream) {
        left.abort();
    }
}

let number = 0, failed = 0;

async function test(title, body) {
    number += 1;
    try {
        await body();
        console.log(`ok ${number} - ${title}`);
    } catch (err) {
        failed += 1;
        console.log(`not ok ${number} - ${title}`);
        console.log(`${err.stack}`.replace(/^/gm, "# "));
    }
}

for (const engine of ["vllm", "sglang"]) {
    for (const [title, call] of Object.entries(calls)) {
        await test(`${title}, of ${engine}`, async () => {
            const seen = [];
            for (const url of [direct, router]) {
                const { came, record } = recorder();
                const made = await call(url, engine, record);
                seen.push({ made: JSON.parse(JSON.stringify(made)),
                            came: await Promise.all(came) });
            }
            assert.equal(seen[0].came.length, 1);
            assert.ok(seen[0].came[0].length > 0);
            assert.ok(seen[0].came[0].equals(seen[1].came[0]));
            assert.deepEqual(seen[1].made, seen[0].made);
        });
    }
    await test(`openai: leaves in the middle, of ${engine}`,
               () => leaves(router, engine));
}

console.log(`1..${number}`);
process.exit(failed ? 1 : 0);
