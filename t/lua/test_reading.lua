-- Reading a body for a model ends: the processor's time for it is bounded, in
-- each dialect, however many small items a body has.
--
-- How long it took is noted, and decides nothing.


local tap = require "lib.tap"
local jinja = require "lib.jinja"
local fuel = require "resty.kv_router.template.fuel"
local tape = require "resty.kv_router.template.tape"
local text_ffi = require "resty.kv_router.tokens.text_ffi"

local is, ok, note = tap.is, tap.ok, tap.note
local format, rep = string.format, string.rep

local READ_US = 20000
local ITEMS = 64000
local OPTIONS = {
    engine = "vllm", flags = {}, probed = {}, special_tokens = {}, versions = {}, options = {},
    templates = { default = assert(jinja.compile(
        "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}")) },
}


-- An array of n items, which are the same.
local function many(item)
    return "[" .. rep(item .. ",", ITEMS - 1) .. item .. "]"
end


local USER = '{"role":"user","content":"a"}'
local TEXT = '{"type":"text","text":"a"}'
local CALL = '{"id":"a","type":"function","function":{"name":"f",'
             .. '"arguments":"{}"}}'
local TOOL = '{"type":"function","function":{"name":"f","parameters":{}}}'

local CHATS = {
    messages = '{"messages":' .. many(USER) .. "}",
    parts = '{"messages":[{"role":"user","content":' .. many(TEXT) .. "}]}",
    ["tool calls"] = '{"messages":[' .. USER .. ',{"role":"assistant",'
                     .. '"content":null,"tool_calls":' .. many(CALL) .. "}]}",
    tools = '{"messages":[' .. USER .. '],"tools":' .. many(TOOL) .. "}",
}

local MESSAGES = {
    messages = '{"max_tokens":1,"messages":' .. many(USER) .. "}",
    parts = '{"max_tokens":1,"messages":[{"role":"user","content":'
            .. many(TEXT) .. "}]}",
    results = '{"max_tokens":1,"messages":[{"role":"user","content":'
              .. many '{"type":"tool_result","tool_use_id":"a","content":"b"}'
              .. "}]}",
}

local RESPONSES = {
    items = '{"input":' .. many '{"type":"message","role":"user",\
            "content":"a"}' .. "}",
    calls = '{"input":' .. many '{"type":"function_call","call_id":"a",\
            "name":"f","arguments":"{}"}' .. "}",
}

local DIALECTS = {
    vllm_chat = CHATS, sglang_chat = CHATS, vllm_messages = MESSAGES,
    sglang_messages = MESSAGES, vllm_responses = RESPONSES,
    sglang_responses = RESPONSES,
}


-- The body's variables, and the microseconds of the processor.
local function read(dialect, raw, us)
    fuel.start(math.huge, us, math.huge)

    local begun = text_ffi.cpu_us()
    local body, err, kind = tape.decode(raw)
    local vars

    if body then
        vars, err, kind = dialect.prepare(body, OPTIONS)
    end

    fuel.stop()

    return vars, err, kind, text_ffi.cpu_us() - begun
end


for name, bodies in pairs(DIALECTS) do
    local dialect = require("resty.kv_router.dialect." .. name)

    for what, raw in pairs(bodies) do
        local _, err, kind, took = read(dialect, raw, READ_US)

        note(format("%s, %d %s: %.0f us, %s", name, ITEMS, what, took,
                    tostring(err)))
        is(kind, "budget",
           format("%s: reading %d %s is ended by its time", name, ITEMS, what))
    end
end

local SHORT = '{"messages":[' .. USER .. "]}"
local vllm_chat = require "resty.kv_router.dialect.vllm_chat"

ok(read(vllm_chat, SHORT, READ_US), "a short one is read")
ok(vllm_chat.prepare(tape.decode(SHORT), OPTIONS) ~= nil,
   "without a bound, too")

tap.done()
