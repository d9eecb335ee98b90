-- Chats that are made to cost: each rendering ends, by a text or by a bound.
--
-- Fuel is what bounds them here; how much processor time the same take with
-- the clock on is noted, and decides nothing.


local tap = require "lib.tap"
local jinja = require "lib.jinja"
local template = require "resty.kv_router.template"
local tape = require "resty.kv_router.template.tape"

local ok, note = tap.ok, tap.note
local format, rep = string.format, string.rep

local FUEL = 1000000
local CPU_US = 5000
local SETTINGS = {
    tokens = { bos_token = "<s>", eos_token = "</s>" }, zone = "UTC",
    now = function() return 1785067200 end, fuel = FUEL,
}


-- ---- templates --------------------------------------------------------------

-- Each message looks at all messages before it.
local QUADRATIC = [[
{%- for message in messages -%}
    {%- set before = namespace(n=0) -%}
    {%- for other in messages[:loop.index0] -%}
        {%- if other.role != message.role -%}
            {%- set before.n = before.n + 1 -%}
        {%- endif -%}
    {%- endfor -%}
{{ message.role }}{{ before.n }}{{ message.content }}
{%- endfor -%}]]

-- The text grows by each message, and is searched and cut again.
local GROWING = [[
{%- set ns = namespace(text='') -%}
{%- for message in messages -%}
    {%- set ns.text = (ns.text ~ message.content)|trim -%}
    {%- if 'zzz' in ns.text or ns.text.split('</think>')|length > 5 -%}
        {%- set ns.text = ns.text.replace('a', 'ab')|upper -%}
    {%- endif -%}
{%- endfor -%}
{{ ns.text }}{{ tools|tojson(indent=4) }}{{ tools }}]]

local sources = { quadratic = QUADRATIC, growing = GROWING }

for _, name in ipairs { "tools", "schema" } do
    sources[name] = assert(jinja.read("t/vectors/templates/" .. name
                                      .. ".jinja"))
end

for _, name in ipairs { "Qwen-Qwen3-0.6B", "meta-llama-Llama-3.2-3B-Instruct",
                        "GLM-4.6", "google-gemma-4-31B-it-interleaved",
                        "openai-gpt-oss-120b" }
do
    sources[name] = jinja.read("../shared/vectors/chat_templates/" .. name
                               .. ".jinja")
end


-- ---- chats ------------------------------------------------------------------

local function messages(content)
    return format('[{"role": "user", "content": "%s"}]', content)
end

local turns, calls, schema = {}, {}, '{"type": "string"}'

for i = 1, 50000 do
    turns[i] = '{"role": "user", "content": "a"},'
               .. '{"role": "assistant", "content": "b"}'
end

for i = 1, 2000 do
    calls[i] = format('{"role": "assistant", "content": "", "tool_calls": '
                      .. '[{"id": "c%d", "type": "function", "function": '
                      .. '{"name": "f", "arguments": {"a": %d}}}]},'
                      .. '{"role": "tool", "tool_call_id": "c%d", '
                      .. '"content": "x"}', i, i, i)
end

for _ = 1, 25 do
    schema = '{"type": "object", "properties": {"a": ' .. schema .. '}}'
end

local function tool(description, parameters)
    return format('[{"type": "function", "function": {"name": "f", '
                  .. '"description": "%s", "parameters": %s}}]', description,
                  parameters)
end

local hello = messages("hello")
local inputs = {
    { "100,000 messages of a letter",
      "[" .. table.concat(turns, ",") .. "]" },
    { "2,000 calls and results", '[{"role": "user", "content": "q"},'
      .. table.concat(calls, ",") .. "]", tool("d", '{"type": "object"}') },
    { "a string of 16 MB", messages(rep("a", 16777216)) },
    { "16 MB of white space", messages(rep(" ", 16777216)) },
    { "2 M escapes in a description", hello,
      tool(rep("\\n", 2000000), '{"type": "object", "properties": {}}') },
    { "100,000 </think>", '[{"role": "user", "content": "q"},'
      .. '{"role": "assistant", "content": "' .. rep("a</think>", 100000)
      .. '"},{"role": "user", "content": "q"}]' },
    { "a schema of 25 levels", hello, tool("d", schema) },
}


-- ---- each with each ---------------------------------------------------------

local names = {}

for name in pairs(sources) do
    names[#names + 1] = name
end

table.sort(names)

local text = template.text()

for _, input in ipairs(inputs) do
    local size = #input[2] + #(input[3] or "")
    local vars = {
        messages = jinja.value(input[2]),
        tools = input[3] and jinja.value(input[3]),
        add_generation_prompt = true,
    }

    for _, name in ipairs(names) do
        local tpl = assert(jinja.compile(sources[name], SETTINGS))
        local good, err, kind = tpl:render(vars, text, size)

        ok((good or kind == "raise" or (err:find("^out of fuel")
                                        or err:find("bound")))
           and template.spent() <= FUEL + size and text.len <= 4 * size + 1048576,
           format("%s: %s", name, input[1]))

        if not good and kind ~= "raise" then
            note("%s", err)
        end

        tpl.cpu_us = CPU_US

        local before = os.clock()

        tpl:render(vars, text, size)
        note("%.1f ms with the clock on", (os.clock() - before) * 1000)
    end
end


-- ---- JSON -------------------------------------------------------------------

for _, deep in ipairs { 100, 100000 } do
    local _, err, kind = tape.decode(rep("[", deep) .. rep("]", deep))

    ok(kind == "unsupported" and err:find("nested too deep", 1, true),
       format("JSON of %d levels is refused", deep))
end

ok(tape.decode(rep("[", 60) .. rep("]", 60)), "60 levels are read")


tap.done()
