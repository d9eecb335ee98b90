-- Which fields of requests the dialects know, what they do with others, and how
-- they fail.


local tap = require "lib.tap"
local jinja = require "lib.jinja"

local has, is, ok = tap.has, tap.is, tap.ok

local TEMPLATE = "{% for message in messages %}{{ message.role }}: "
                 .. "{{ message.content }}\n{% endfor %}"
local OTHER = "tools: {{ tools | length }}" .. TEMPLATE

local FORMS = { "chat", "messages", "responses" }


local function options(engine, more)
    local made = {
        engine = engine, flags = {}, probed = {},
        templates = { default = assert(jinja.compile(TEMPLATE)) },
    }

    for name, x in pairs(more or {}) do
        made[name] = x
    end

    return made
end


local function module_of(engine, form)
    return require("resty.kv_router.dialect."
                   .. (form == "text" and "text" or engine .. "_" .. form))
end


local function prepare(engine, form, json, more)
    return module_of(engine, form).prepare(jinja.value(json),
                                           options(engine, more))
end


-- A body of a form with members behind.
local BODIES = {
    chat = '{"model":"m","messages":[{"role":"user","content":"x"}]%s}',
    messages = '{"model":"m","max_tokens":5,'
               .. '"messages":[{"role":"user","content":"x"}]%s}',
    responses = '{"model":"m","input":"x"%s}',
    text = '{"model":"m","prompt":"x"%s}',
}


-- The request fails: of a kind, with a sentence that has a part.
local function fails(kind, part, name, ...)
    local made, err, got = prepare(...)

    is(made, nil, name)
    is(got, kind, name .. ": the kind")
    has(err, part, name .. ": the sentence")
end


-- ---- every engine and form --------------------------------------------------

for _, engine in ipairs { "vllm", "sglang" } do
    for _, form in ipairs { "chat", "messages", "responses", "text" } do
        local of = engine .. " " .. form .. ": "
        local body = BODIES[form]

        ok(prepare(engine, form, body:format ""), of .. "is understood")
        fails("unsupported", '"colour"', of .. "a field that is not known",
              engine, form, body:format ',"colour":"red"')
        ok(prepare(engine, form, body:format ',"temperature":"hot"'),
           of .. "a field that is not of the prompt is the engine's")
        fails("raise", "no object", of .. "a list", engine, form, "[]")

        if form == "chat" then
            fails("unsupported", '"tools"', of .. "a field of another type",
                  engine, form, body:format ',"tools":"all"')
        end

        if form ~= "text" then
            fails("unsupported", "harmony", of .. "a model with own code",
                  engine, form, body:format "", { model_type = "gpt_oss" })
            fails("unsupported", "mistral_common", of .. "a tokenizer's mode",
                  engine, form, body:format "", { tokenizer_mode = "mistral" })
            fails("unsupported", "without a chat template",
                  of .. "a model without a template", engine, form,
                  body:format "", { templates = {} })
            fails("unsupported", "default_chat_template_kwargs.a",
                  of .. "a flag that can't be read", engine, form,
                  body:format "",
                  { flags = { default_chat_template_kwargs = { a = {} } } })
        end
    end
end


-- ---- fields that say more ---------------------------------------------------

local CHAT = '{"messages":[{"role":"user","content":%s}]}'

for _, engine in ipairs { "vllm", "sglang" } do
    fails("unsupported", "image_url", engine .. ": a picture", engine, "chat",
          CHAT:format '[{"type":"image_url","image_url":{"url":"x"}}]')
    fails("unsupported", '"chat_template"', engine .. ": a template", engine,
          "chat", BODIES.chat:format ',"chat_template":"x"')
    fails("raise", "chat_template", engine .. ": a template in variables",
          engine, "chat",
          BODIES.chat:format ',"chat_template_kwargs":{"chat_template":"x"}')
    fails("unsupported", '"tools" in chat_template_kwargs',
          engine .. ": tools in variables", engine, "chat",
          BODIES.chat:format ',"chat_template_kwargs":{"tools":[]}')
    fails("unsupported", "previous_response_id",
          engine .. ": a response before", engine, "responses",
          BODIES.responses:format ',"previous_response_id":"resp_1"')
    fails("unsupported", "item_reference", engine .. ": an item elsewhere",
          engine, "responses",
          '{"model":"m","input":[{"type":"item_reference","id":"x"}]}')
    fails("unsupported", "a system message among others",
          engine .. ": what was not probed", engine, "messages",
          '{"model":"m","max_tokens":5,"messages":['
          .. '{"role":"user","content":"x"},'
          .. '{"role":"system","content":"y"}]}')
end

local merged = prepare("sglang", "messages",
                       '{"model":"m","max_tokens":5,"messages":['
                       .. '{"role":"user","content":"x"},{"role":"system",'
                       .. '"content":"\\u00a0\\n y \\u3000z\\u2003\\u001f "}]}',
                       { probed = { merge_inline_system = true } })

is(merged and merged.messages[1].v.content, "y \227\128\128z",
   "sglang: a system message among others, without the white space around it")

fails("unsupported", "truncate_prompt_tokens", "vllm: a text that is cut",
      "vllm", "text", BODIES.text:format ',"truncate_prompt_tokens":3')
fails("unsupported", "prompt_token_ids", "vllm: ids beside messages", "vllm",
      "chat",
      BODIES.chat:format ',"kv_transfer_params":{"prompt_token_ids":[1]}')
fails("raise", "tool parser", "vllm: tools without a parser", "vllm", "chat",
      BODIES.chat:format ',"tools":[{"function":{"name":"f"}}]')
fails("unsupported", "continue_final_message", "sglang: a message goes on",
      "sglang", "chat", BODIES.chat:format ',"continue_final_message":true')
fails("unsupported", '"type" of a tool\'s schema',
      "sglang: a type that it writes otherwise", "sglang", "chat",
      BODIES.chat:format(',"tools":[{"function":{"name":"f","parameters":'
                         .. '{"type":"varchar"}}}]'))
fails("unsupported", '"type" of a tool\'s schema',
      "sglang: such a type within another schema", "sglang", "chat",
      BODIES.chat:format(',"tools":[{"function":{"name":"f","parameters":'
                         .. '{"anyOf":[{"type":["string","int4"]}]}}}]'))
ok(prepare("sglang", "chat", BODIES.chat:format(
    ',"tools":[{"function":{"name":"f","parameters":'
    .. '{"type":"string","pattern":"["}}}]')),
   "sglang: a schema that the engine refuses is sent")
ok(prepare("vllm", "chat", BODIES.chat:format ',"cache_salt":""'),
   "vllm: a salt that the engine refuses is sent")
ok(prepare("vllm", "responses", BODIES.responses:format ',"include":["x"]'),
   "vllm: an include that the engine refuses is sent")
fails("unsupported", "the parsers hunyuan", "sglang: a parser of own rules",
      "sglang", "chat", BODIES.chat:format "",
      { flags = { reasoning_parser = "hunyuan" } })
fails("unsupported", "multimodal", "sglang: a text that is encoded again",
      "sglang", "chat", BODIES.chat:format "",
      { probed = { multimodal = true, encode_adds_special = true } })
fails("unsupported", "mistral_common", "vllm: texts of another tokenizer",
      "vllm", "text", BODIES.text:format "", { tokenizer_mode = "mistral" })
fails("unsupported", '"chat_template" in chat_template_kwargs',
      "vllm: a template that is trusted", "vllm", "chat",
      BODIES.chat:format ',"chat_template_kwargs":{"chat_template":"x"}',
      { flags = { trust_request_chat_template = true } })
fails("unsupported", "completion template", "sglang: a completion template",
      "sglang", "text", BODIES.text:format "",
      { flags = { completion_template = "x" } })
fails("unsupported", "trtllm", "trtllm: chats", "vllm", "chat",
      BODIES.chat:format "", { engine = "trtllm" })

local made = prepare("sglang", "text", '{"text":["a","b"]}')

is(made.text, "a", "sglang: /generate: of several texts the first counts")
is(made.add_special_tokens, true, "sglang: /generate: with special tokens")

made = prepare("vllm", "text",
               BODIES.text:format ',"add_special_tokens":false')
is(made.add_special_tokens, false, "vllm: a text without special tokens")

made = prepare("vllm", "chat",
               BODIES.chat:format ',"tools":[{"function":{"name":"f"}}]', {
    flags = { tool_call_parser = "hermes", enable_auto_tool_choice = true },
    templates = { default = jinja.compile(TEMPLATE),
                  tool_use = jinja.compile(OTHER) },
})
is(made.template, "tool_use", "vllm: the template for tools")


-- ---- docs/requests.md -------------------------------------------------------

-- The page's table is that of the fields that are not understood.
local function row(engine, form)
    local name = form == "completions" and "text" or engine .. "_" .. form
    local fields = require("resty.kv_router.dialect." .. name).FIELDS
    local refused = {}

    fields = form == "completions" and fields[engine] or fields

    for field, kind in pairs(fields) do
        if kind == "null" then
            refused[#refused + 1] = "`" .. field .. "`"
        end
    end

    table.sort(refused)

    return string.format("| %s | %s |",
                         (engine == "vllm" and "vLLM " or "SGLang ")
                         .. "`/v1/" .. (form == "chat" and "chat/completions"
                                        or form) .. "`",
                         table.concat(refused, " "))
end


local file = assert(io.open("docs/requests.md", "rb"))
local readme = file:read "*a"

file:close()

for _, engine in ipairs { "vllm", "sglang" } do
    for _, form in ipairs { "completions", unpack(FORMS) } do
        local wanted = row(engine, form)

        if not ok(readme:find("\n" .. wanted .. "\n", 1, true),
                  string.format("docs/requests.md: the fields of %s %s", engine, form))
        then
            tap.note("expected: %s", wanted)
        end
    end
end


tap.done()
