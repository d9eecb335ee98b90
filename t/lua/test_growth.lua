-- What a client can send costs time and memory by its length, not by the square
-- of it: each field of each form for each dialect, many items of each kind,
-- and what policies read.


local tap = require "lib.tap"
local jinja = require "lib.jinja"     -- before what stands in for the module
local tape = require "resty.kv_router.template.tape"
local template = require "resty.kv_router.template"
local fake = require "lib.fake"
local growth = require "lib.growth"
local http = require "resty.kv_router.tokens.http"
local json = require "resty.kv_router.tokens.json"
local policy = require "resty.kv_router.policy"
local sock = require "lib.sock"

local format = string.format
local is, ok = tap.is, tap.ok
local rep = string.rep
local wrong = growth.wrong


-- ---- the measure itself -----------------------------------------------------

ok(wrong(function(n) return n end, function(n)
    local s = ""

    for _ = 1, n / 64 do
        s = s .. "12345678"
    end
end), "a text that grows by concatenation is found")

ok(wrong(function(n) return "x" .. rep(" ", n / 16) .. "y" end, function(s)
    return s:match "^(.-)%s*$"
end), "a lazy repetition before the end is found")

is(wrong(function(n) return rep("x", n) end, function(s)
    for _ = 1, 100 do
        s:find("y", 1, true)
    end
end), nil, "a search is linear")


-- ---- texts and values -------------------------------------------------------

-- JSON strings of n bytes, without their quotes.
local TEXTS = {
    { "blanks", function(n) return "x" .. rep(" ", n) .. "y" end },
    { "blanks at the end", function(n) return "x" .. rep(" ", n) end },
    { "lines", function(n) return rep("\\n", n / 2) .. "x" end },
    { "brackets", function(n) return rep("[", n) end },
    { "commas", function(n) return rep(",", n) end },
    { "quotes", function(n) return rep('\\"', n / 2) end },
    { "escapes", function(n) return rep("\\u00a0", n / 6) .. "x" end },
    { "wide blanks", function(n) return rep("\227\128\128", n / 3) .. "x" end },
    { "tags", function(n) return rep("{{ <|x|> ", n / 9) end },
    { "digits", function(n) return rep("9", n) end },
}

-- JSON values of n bytes.
local VALUES = {
    { "brackets", function(n) return rep("[", n / 2) .. rep("]", n / 2) end },
    { "objects in each other", function(n)
        return rep('{"a":', n / 6) .. "1" .. rep("}", n / 6)
    end },
    { "empty lists", function(n) return "[" .. rep("[],", n / 3) .. "[]]" end },
    { "numbers", function(n) return "[" .. rep("1,", n / 2) .. "1]" end },
    { "texts", function(n) return "[" .. rep('"x",', n / 4) .. '"y"]' end },
    { "other texts", function(n)
        local list = {}

        for i = 1, n / 10 do
            list[i] = format('"%07d"', i)
        end

        return "[" .. table.concat(list, ",") .. "]"
    end },
    { "members", function(n)
        local list = {}

        for i = 1, n / 12 do
            list[i] = format('"m%07d":1', i)
        end

        return "{" .. table.concat(list, ",") .. "}"
    end },
    { "equal members", function(n)
        return "{" .. rep('"a":1,', n / 6) .. '"a":1}'
    end },
    { "blanks in a list", function(n) return "[" .. rep(" ", n) .. "1]" end },
    { "digits", function(n) return rep("9", n) end },
}

local PLAIN = #VALUES

for _, kind in ipairs(TEXTS) do
    VALUES[#VALUES + 1] = { "a text of " .. kind[1], function(n)
        return '"' .. kind[2](n) .. '"'
    end }
end

-- made once
for _, kind in ipairs(VALUES) do
    local make, made = kind[2], {}

    kind[2] = function(n)
        made[n] = made[n] or make(n)

        return made[n]
    end
end


-- ---- bodies of each form, in each dialect -----------------------------------

local PARTS = io.open("t/vectors/dialect/templates/parts.jinja"):read "*a"
local STRING = io.open("t/vectors/dialect/templates/string.jinja"):read "*a"

local function options(engine, source)
    return {
        engine = engine,
        flags = engine == "sglang"
                and { tool_call_parser = "qwen25", reasoning_parser = "qwen3" }
                or { tool_call_parser = "hermes",
                     enable_auto_tool_choice = true },
        probed = engine == "sglang"
                 and { merge_inline_system = true, encode_adds_special = true,
                       thinking_native = false, effort_kwarg = "",
                       thinking_toggle = "enable_thinking",
                       thinking_start = "<think>", thinking_end = "</think>" }
                 or { merge_inline_system = true,
                      disabled_thinking_effort = "none" },
        templates = { default = assert(jinja.compile(source, {
            tokens = { bos_token = "<s>", eos_token = "</s>",
                       pad_token = "" } })) },
    }
end

-- What is read of a body beside its fields: %s is what grows.
local SHAPES = {
    chat = {
        ["the content of a system message"] =
            '{"messages":[{"role":"system","content":%s},'
            .. '{"role":"user","content":"x"}]}',
        ["the content of a message"] =
            '{"messages":[{"role":"user","content":%s}]}',
        ["the content of an assistant"] =
            '{"messages":[{"role":"user","content":"x"},'
            .. '{"role":"assistant","content":%s},'
            .. '{"role":"user","content":"x"}]}',
        ["the text of a part"] =
            '{"messages":[{"role":"user","content":[{"type":"text","text":%s}]}]}',
        ["the type of a part"] =
            '{"messages":[{"role":"user","content":[{"type":%s}]}]}',
        ["a role"] = '{"messages":[{"role":%s,"content":"x"}]}',
        ["a name"] = '{"messages":[{"role":"user","name":%s,"content":"x"}]}',
        ["what was thought"] =
            '{"messages":[{"role":"user","content":"x"},{"role":"assistant",'
            .. '"content":"x","reasoning_content":%s},'
            .. '{"role":"user","content":"x"}]}',
        ["arguments of a call"] =
            '{"messages":[{"role":"user","content":"x"},{"role":"assistant",'
            .. '"tool_calls":[{"id":"i","type":"function","function":'
            .. '{"name":"f","arguments":%s}}]},{"role":"user","content":"x"}]}',
        ["the id of a call"] =
            '{"messages":[{"role":"user","content":"x"},{"role":"assistant",'
            .. '"tool_calls":[{"id":%s,"type":"function","function":'
            .. '{"name":"f","arguments":"{}"}}]},'
            .. '{"role":"user","content":"x"}]}',
        ["the result of a call"] =
            '{"messages":[{"role":"user","content":"x"},'
            .. '{"role":"tool","tool_call_id":"i","content":%s}]}',
        ["the parameters of a tool"] =
            '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":'
            .. '"function","function":{"name":"f","parameters":%s}}]}',
        ["the pattern of a schema"] =
            '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":'
            .. '"function","function":{"name":"f","parameters":{"type":'
            .. '"object","properties":{"a":{"type":"string","pattern":%s}}}}}]}',
        ["the required members of a schema"] =
            '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":'
            .. '"function","function":{"name":"f","parameters":{"type":'
            .. '"object","required":%s}}}]}',
        ["the description of a tool"] =
            '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":'
            .. '"function","function":{"name":"f","description":%s}}]}',
        ["a variable of the template"] =
            '{"messages":[{"role":"user","content":"x"}],'
            .. '"chat_template_kwargs":{"style":%s}}',
    },
    messages = {
        ["a system message among others"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":'
            .. '"x"},{"role":"system","content":%s}]}',
        ["a part of a system message among others"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":'
            .. '"x"},{"role":"system","content":[{"type":"text","text":%s}]}]}',
        ["a part of the system text"] =
            '{"model":"m","max_tokens":5,"system":[{"type":"text","text":%s}],'
            .. '"messages":[{"role":"user","content":"x"}]}',
        ["the content of a message"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":%s}]}',
        ["the text of a block"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":[{"type":"text","text":%s}]}]}',
        ["the type of a block"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":[{"type":%s}]}]}',
        ["what was thought"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":'
            .. '"x"},{"role":"assistant","content":[{"type":"thinking",'
            .. '"signature":"s","thinking":%s}]},'
            .. '{"role":"user","content":"x"}]}',
        ["the input of a call"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":'
            .. '"x"},{"role":"assistant","content":[{"type":"tool_use","id":'
            .. '"i","name":"f","input":%s}]},{"role":"user","content":"x"}]}',
        ["the result of a call"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":'
            .. '[{"type":"tool_result","tool_use_id":"i","content":%s}]}]}',
        ["the schema of a tool"] =
            '{"model":"m","max_tokens":5,"messages":[{"role":"user","content":'
            .. '"x"}],"tools":[{"name":"f","input_schema":%s}]}',
    },
    responses = {
        ["the content of a message"] =
            '{"model":"m","input":[{"role":"user","content":%s}]}',
        ["the text of a part"] =
            '{"model":"m","input":[{"role":"user","content":'
            .. '[{"type":"input_text","text":%s}]}]}',
        ["the content of a developer"] =
            '{"model":"m","input":[{"role":"developer","content":%s}]}',
        ["the type of an item"] = '{"model":"m","input":[{"type":%s}]}',
        ["a role"] = '{"model":"m","input":[{"role":%s,"content":"x"}]}',
        ["arguments of a call"] =
            '{"model":"m","input":[{"type":"function_call","call_id":"c",'
            .. '"name":"f","arguments":%s}]}',
        ["the output of a call"] =
            '{"model":"m","input":[{"type":"function_call_output","call_id":'
            .. '"c","output":%s}]}',
        ["what was thought"] =
            '{"model":"m","input":[{"type":"reasoning","summary":'
            .. '[{"type":"summary_text","text":%s}]}]}',
        ["the parameters of a tool"] =
            '{"model":"m","input":"x","tools":[{"type":"function","name":"f",'
            .. '"parameters":%s}]}',
    },
    text = {},
}

-- What comes many times: the list of it, and one.
local MANY = {
    chat = {
        messages = { '{"messages":[%s]}', '{"role":"user","content":"x"}' },
        ["the assistant's messages"] = { '{"messages":[%s]}',
            '{"role":"assistant","content":"x"}' },
        ["system messages"] = { '{"messages":[%s]}',
            '{"role":"system","content":"x"}' },
        ["results of calls"] = { '{"messages":[%s]}',
            '{"role":"tool","tool_call_id":"i","content":"x"}' },
        calls = { '{"messages":[{"role":"user","content":"x"},'
                  .. '{"role":"assistant","tool_calls":[%s]},'
                  .. '{"role":"user","content":"x"}]}',
            '{"id":"i","type":"function","function":{"name":"f",'
            .. '"arguments":"{}"}}' },
        parts = { '{"messages":[{"role":"user","content":[%s]}]}',
            '{"type":"text","text":"x"}' },
        tools = { '{"messages":[{"role":"user","content":"x"}],"tools":[%s]}',
            '{"type":"function","function":{"name":"f"}}' },
        ["tools and a choice"] = {
            '{"messages":[{"role":"user","content":"x"}],"tool_choice":'
            .. '{"type":"function","function":{"name":"f"}},"tools":[%s]}',
            '{"type":"function","function":{"name":"f"}}' },
    },
    messages = {
        messages = { '{"model":"m","max_tokens":5,"messages":[%s]}',
            '{"role":"user","content":"x"}' },
        ["the assistant's messages"] = {
            '{"model":"m","max_tokens":5,"messages":[%s]}',
            '{"role":"assistant","content":"x"}' },
        ["system messages"] = { '{"model":"m","max_tokens":5,"messages":[%s]}',
            '{"role":"system","content":" x "}' },
        ["system texts"] = { '{"model":"m","max_tokens":5,"system":[%s],'
            .. '"messages":[{"role":"user","content":"x"}]}',
            '{"type":"text","text":"x"}' },
        blocks = { '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":[%s]}]}', '{"type":"text","text":"x"}' },
        calls = { '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":"x"},{"role":"assistant","content":[%s]}]}',
            '{"type":"tool_use","id":"i","name":"f","input":{}}' },
        thoughts = { '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":"x"},{"role":"assistant","content":[%s]}]}',
            '{"type":"thinking","thinking":"x","signature":"s"}' },
        results = { '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":[%s]}]}',
            '{"type":"tool_result","tool_use_id":"i","content":"x"}' },
        tools = { '{"model":"m","max_tokens":5,"messages":[{"role":"user",'
            .. '"content":"x"}],"tools":[%s]}',
            '{"name":"f","input_schema":{"type":"object"}}' },
    },
    responses = {
        messages = { '{"model":"m","input":[%s]}',
            '{"role":"user","content":"x"}' },
        ["the assistant's messages"] = { '{"model":"m","input":[%s]}',
            '{"type":"message","role":"assistant","content":"x"}' },
        ["the assistant's parts"] = { '{"model":"m","input":[%s]}',
            '{"type":"message","role":"assistant","content":'
            .. '[{"type":"output_text","text":"x"}]}' },
        ["messages of the system"] = { '{"model":"m","input":[%s]}',
            '{"role":"system","content":"x"}' },
        calls = { '{"model":"m","input":[%s]}',
            '{"type":"function_call","call_id":"c","name":"f",'
            .. '"arguments":"{}"}' },
        outputs = { '{"model":"m","input":[%s]}',
            '{"type":"function_call_output","call_id":"c","output":"x"}' },
        thoughts = { '{"model":"m","input":[%s]}',
            '{"type":"reasoning","summary":'
            .. '[{"type":"summary_text","text":"x"}]}' },
        parts = { '{"model":"m","input":[{"role":"user","content":[%s]}]}',
            '{"type":"input_text","text":"x"}' },
        tools = { '{"model":"m","input":"x","tools":[%s]}',
            '{"type":"function","name":"f","parameters":{}}' },
    },
    text = {},
}

local WHOLE = {
    chat = '{"model":"m","messages":[{"role":"user","content":"x"}]%s}',
    messages = '{"model":"m","max_tokens":5,'
               .. '"messages":[{"role":"user","content":"x"}]%s}',
    responses = '{"model":"m","input":"x"%s}',
    text = '{"model":"m","prompt":"x"%s}',
}

local text = template.text(64 * 2^20)
local served                     -- bodies of which a text was made

-- As resty.kv_router.tokens.model does it.
local function read(dialect, given, raw)
    local body = tape.decode(raw)
    local vars = body ~= nil and dialect.prepare(body, given)

    if vars and not vars.text then
        vars = given.templates.default:render(vars, text, #raw)
    end

    served = served + (vars and 1 or 0)
end


local function put(shape, what)
    return (shape:gsub("%%s", function() return what end))
end


for _, engine in ipairs { "vllm", "sglang" } do
    for _, form in ipairs { "text", "chat", "messages", "responses" } do
        local dialect = require("resty.kv_router.dialect."
                                .. (form == "text" and "text"
                                    or engine .. "_" .. form))
        local fields = dialect.FIELDS
        local bad = {}

        fields = form == "text" and fields[engine] or fields
        served = 0

        local function try(given, what, make)
            local why = wrong(make, function(raw)
                read(dialect, given, raw)
            end)

            bad[#bad + 1] = why and what .. ": " .. why or nil
        end

        for _, source in ipairs { PARTS, STRING } do
            local given = options(engine, source)

            local function try_values(what, shape, last)
                for i = 1, last do
                    try(given, what .. ", " .. VALUES[i][1], function(n)
                        return put(shape, VALUES[i][2](n))
                    end)
                end
            end

            for what, shape in pairs(SHAPES[form]) do
                try_values(what, shape, #VALUES)
            end

            -- the template does not see them: one kind of texts is enough
            for name in pairs(source == PARTS and fields or {}) do
                try_values('the field "' .. name .. '"',
                           put(WHOLE[form], ',"' .. name .. '":%s'), PLAIN + 1)
            end

            for what, shape in pairs(MANY[form]) do
                try(given, "many " .. what, function(n)
                    return put(shape[1], rep(shape[2] .. ",",
                                             n / (#shape[2] + 1)) .. shape[2])
                end)
            end
        end

        ok(served > 50, format("%s %s: some of the bodies are understood",
                               engine, form))
        is(table.concat(bad, "\n"), "",
           format("%s %s: none takes more than its length", engine, form))
    end
end


-- ---- what templates do with a text ------------------------------------------

local bad = {}

TEXTS[#TEXTS + 1] = { "digits and a letter", function(n)
    return rep("9", n) .. "x"
end }

for _, done in ipairs {
    "x | int", "x | trim", "x | title", "x | upper",
    "x | length", "x | tojson", "x | replace(' ', '')", "x | safe + x",
    "x.strip()", "x.rstrip('xy')", "x.split()", "x.split('x')",
    "x.split('\\n') | join", "'zz' in x",
    "x.startswith('z')", "x[::-1]", "x | list | length", "x ~ x",
} do
    local tpl = assert(jinja.compile("{{ " .. done .. " }}"))

    for _, kind in ipairs(TEXTS) do
        local why = wrong(function(n)
            return jinja.value('{"x":"' .. kind[2](n) .. '"}')
        end, function(vars)
            tpl:render({ kwargs = vars, messages = jinja.value "[]" }, text,
                       2^20)
        end)

        bad[#bad + 1] = why and done .. ", " .. kind[1] .. ": " .. why or nil
    end
end

is(table.concat(bad, "\n"), "", "templates take no more than a text's length")


-- ---- fields and headers, by each policy -------------------------------------

-- A table that has the same for each name.
local function all(value)
    return setmetatable({}, { __index = function() return value end })
end

local MESSAGES = {
    { "messages", function(n)
        return "[" .. rep('{"role":"system","content":"x"},', n / 32)
               .. '{"role":"user","content":"x"}]'
    end },
    { "a message of blanks", function(n)
        -- 64 KB are hashed
        return '[{"role":"user","content":"' .. rep(" ", n - 64) .. 'x"}]'
    end },
    { "members of a message", function(n)
        return '[{' .. rep('"a":1,', n / 6) .. '"role":"user"}]'
    end },
}

for _, kind in ipairs(VALUES) do
    MESSAGES[#MESSAGES + 1] = kind
end

for _, name in ipairs(policy.NAMES) do
    local loaded = assert(policy.load(name))
    local list = {}

    bad = {}

    for i = 1, 8 do
        list[i] = { role_id = name == "disaggregated" and i % 2 + 1 or nil }
    end

    for _, kind in ipairs(MESSAGES) do
        for _, where in ipairs { "headers", "fields", "messages", "prompt" } do
            local why = wrong(kind[2], function(value)
                local request = { headers = {}, fields = {} }

                if request[where] then
                    request[where] = all(value)
                else
                    request.fields[where] = value
                end

                policy.decide(loaded, fake.ctx(list, nil,
                                               { request = request }))
            end)

            bad[#bad + 1] = why and where .. ", " .. kind[1] .. ": " .. why
                            or nil
        end
    end

    is(table.concat(bad, "\n"), "",
       name .. " takes no more than the length of what it reads")
end


-- ---- bodies that are changed, and what engines answer -----------------------

bad = {}

for _, kind in ipairs(MESSAGES) do
    local why = wrong(kind[2], function(value)
        local fields = json.fields('{"a":' .. value .. "}")
        local from, stop = json.element(value)

        while from do
            from, stop = json.element(value, stop)
        end

        return fields and json.object(fields, { b = "1" })
    end)

    bad[#bad + 1] = why and kind[1] .. ": " .. why or nil
end

is(table.concat(bad, "\n"), "", "fields are found and put together")

local function answer(input)
    local engine = sock.new(input)

    engine.at_once = 65536
    http.read(engine, { limit = 2^24, timeout = 1000 })
end

is(wrong(function(n)
    return "HTTP/1.1 200 OK\r\nContent-Length: " .. rep(" ", n - 100)
           .. "x\r\n\r\n"
end, answer, { 2048, 16384 }), nil, "a header of blanks")

is(wrong(function(n)
    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
           .. rep("1\r\nx\r\n", n / 6) .. "0\r\n\r\n"
end, answer), nil, "an answer in chunks of one byte")


tap.done()
