-- Copyright (C) the nginx-kv-router authors
--
-- What the dialects must know of an engine beside a request: the one place
-- that names these options.
--
-- prepare() of a dialect takes a table with these members, all but engine
-- optional.  The model of a zone fills it from router.json:
--
--     engine      "vllm" or "sglang"
--     model_type, tokenizer_mode
--                 as the model's configuration and the engine's command line
--                 have them: of some models the engine encodes chats by code
--     templates   name → what template.compile() made; "default" is used, and
--                 by vLLM "tool_use" for a request with tools where there is one
--     flags       options of the engine's command line that change tokens, as
--                 named there, with "_" for "-":
--
--         vLLM    chat_template_content_format          "auto"
--                 default_chat_template_kwargs          {}
--                 enable_auto_tool_choice               false
--                 tool_call_parser                      none
--                 exclude_tools_when_tool_choice_none   false
--                 anthropic_disabled_thinking_effort    "auto"
--                 trust_request_chat_template           false
--         SGLang  default_chat_template_kwargs          {}
--                 trust_request_chat_template           false
--                 tool_call_parser, reasoning_parser    none
--                 completion_template                   none
--                 hf_chat_template_name                 "default"
--
--     probed      what only the engine's own code can tell of a template; the
--                 dump writes it as router.json's "probed".  Where a member is
--                 not there, requests that depend on it are unsupported:
--
--         vLLM    merge_inline_system: _should_merge_inline_system()
--                 disabled_thinking_effort: what
--                     _probe_disabled_thinking_effort() answers
--         SGLang  merge_inline_system: not supports_inline_system
--                 multimodal: model_config.is_multimodal
--                 encode_adds_special: _tokenizer_auto_adds_specials
--                 thinking_toggle: _get_reasoning_toggle_param() where the
--                     parser can be turned on and off by it; ""
--                 thinking_start, thinking_end: what wrap_reasoning_history()
--                     writes in front of a text, and behind its newline
--                 thinking_native: supports_native_reasoning_history()
--                 effort_kwarg: that of the template's reasoning_config; ""
--
-- read() makes the resolved options of it, once for each table.


local fields = require "resty.kv_router.dialect.fields"
local value = require "resty.kv_router.template.value"

local caught = value.caught
local check = fields.check
local dict = value.dict
local dset = value.dset
local dset_all = value.dset_all
local floor = math.floor
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local pairs = pairs
local pcall = pcall
local raise = value.raise
local setmetatable = setmetatable
local sort = table.sort
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


-- parsers whose requests SGLang changes in ways of their own
local SGLANG_PARSERS = {
    beam = true, hunyuan = true, inkling = true, iquest_q1 = true,
    ["minimax-m3"] = true, muse = true, mistral = true, kimi_k3 = true,
}

-- what engines encode by Python code instead of a template, by model_type and
-- by --tokenizer-mode
local CODED = {
    gpt_oss = "harmony", deepseek_v32 = "code of its own",
    deepseek_v4 = "code of its own", deepseek_v41 = "code of its own",
    kimi_k3 = "code of its own", inkling = "code of its own",
    minimax_m3_vl = "rules of its own", beam = "rules of its own",
}

local MODES = {
    mistral = "mistral_common", deepseek_v32 = "code of its own",
    deepseek_v4 = "code of its own", deepseek_v41 = "code of its own",
    kimi_k3 = "code of its own", inkling = "code of its own",
    cohere = "code of its own", terratorch = "code of its own",
}

local FORMATS = { string = true, openai = true }


-- A flag's JSON object as a dict of values: scalars only, since cjson forgets
-- the order of members.
local function template_kwargs(given)
    local made = dict()

    if given == nil then
        return made
    end

    if type(given) ~= "table" then
        return nil, "default_chat_template_kwargs is no object"
    end

    local names = {}

    for name in pairs(given) do
        if type(name) ~= "string" then
            return nil, "default_chat_template_kwargs is no object"
        end

        names[#names + 1] = name
    end

    sort(names)

    for _, name in pairs(names) do
        local x = given[name]
        local scalar = type(x) == "string" or type(x) == "boolean"
                       or (type(x) == "number" and floor(x) == x)

        if not scalar then
            return nil, format("default_chat_template_kwargs.%s is neither "
                               .. "text, nor an integer, nor a boolean", name)
        end

        dset(made, name, x)
    end

    return made
end


local function vllm(o, flags)
    local wanted = flags.chat_template_content_format

    o.content_format = FORMATS[wanted] and wanted or nil
    o.template_format = "format_vllm"
    o.calls_tools = flags.tool_call_parser ~= nil
                    and flags.enable_auto_tool_choice == true
    o.excluded = flags.exclude_tools_when_tool_choice_none == true

    local effort = flags.anthropic_disabled_thinking_effort

    if effort ~= nil and effort ~= "auto" then
        o.disabled_thinking_effort = effort
    end
end


local function sglang(o, flags, probed)
    o.template_format = "format_sglang"
    o.template_name = flags.hf_chat_template_name or "default"
    o.reasoning_parser = flags.reasoning_parser

    if SGLANG_PARSERS[flags.reasoning_parser or ""]
       or SGLANG_PARSERS[flags.tool_call_parser or ""]
    then
        o.refused = format("the parsers %s and %s of SGLang",
                           flags.reasoning_parser or "none",
                           flags.tool_call_parser or "none")
    end

    if probed.multimodal and probed.encode_adds_special then
        -- the engine decodes the ids, and encodes the text once more
        o.refused = "a multimodal model of SGLang whose tokenizer adds tokens"
    end

    if flags.completion_template ~= nil then
        o.refused_text = "a completion template of SGLang"
    end
end


-- What of a model makes its chats, or its texts, be encoded otherwise than by a
-- template and a tokenizer.json.
local function coded(o, given, flags)
    local mode = MODES[given.tokenizer_mode or flags.tokenizer_mode or ""]
    local code = CODED[given.model_type or ""] or mode

    if mode then
        o.refused_text = format("a model that the engine encodes by %s", mode)
    end

    if code then
        o.refused = format("a model whose chats the engine encodes by %s",
                           code)
    end
end


local function resolved(given)
    local flags, probed = given.flags or {}, given.probed or {}
    local o = { engine = given.engine, templates = given.templates or {},
                probed = probed }
    local err

    o.disabled_thinking_effort = probed.disabled_thinking_effort
    o.kwargs, err = template_kwargs(flags.default_chat_template_kwargs)
    o.refused = err

    o.trusts = flags.trust_request_chat_template == true

    if given.engine == "vllm" then
        vllm(o, flags)
    elseif given.engine == "sglang" then
        sglang(o, flags, probed)
    else
        o.refused = format("chats of the engine %s", given.engine or "unknown")
    end

    coded(o, given, flags)

    return o
end


local known = setmetatable({}, { __mode = "k" })


-- The resolved options.  Fails where no chat of the model is understood; of
-- texts: where no text is.
function _M.read(given, of_texts)
    local o = known[given]

    if not o then
        o = resolved(given)
        known[given] = o
    end

    local refused = o.refused

    if of_texts then
        refused = o.refused_text
    end

    if refused then
        unsupported(refused)
    end

    return o
end


-- The name of the template for a request with or without tools, and what it
-- was compiled to.
function _M.template(o, tools)
    local name = o.template_name
                 or (tools and o.templates.tool_use and "tool_use")
                 or "default"
    local tpl = o.templates[name]

    if not tpl then
        unsupported "a model without a chat template"
    end

    return name, tpl
end


-- "string" or "openai"
function _M.content_format(o, tpl)
    return o.content_format or tpl[o.template_format]
           or unsupported "a template whose content format is not known"
end


-- ---- variables that a request gives to the template -------------------------

-- arguments of apply_chat_template() and of what it calls, and the variables
-- that it sets itself
local RESERVED = {}

for name in ([[
    conversation messages tools documents chat_template add_generation_prompt
    continue_final_message tokenize padding truncation max_length
    return_tensors return_dict return_assistant_tokens_mask tokenizer_kwargs
    conversations self context loop
]]):gmatch "%S+" do
    RESERVED[name] = true
end


-- The dict of a body's "chat_template_kwargs", a copy; null is none.  taken:
-- the engine takes a template in it; else it refuses one.
function _M.kwargs(body, taken)
    local given = get(body, "chat_template_kwargs")
    local made = dict()

    if given == nil then
        return made
    end

    for i = 1, given.n do
        local name = given.k[i]

        if name == "chat_template" and given.v[name] ~= NONE and not taken then
            raise "a chat_template in chat_template_kwargs"
        elseif RESERVED[name] then
            unsupported(format("%q in chat_template_kwargs", name))
        end

        dset(made, name, given.v[name])
    end

    return made
end


-- vLLM: b over a, without those of b that are null or "auto".
function _M.merged(a, b)
    local made = dset_all(dict(), a)

    for i = 1, b.n do
        local x = b.v[b.k[i]]

        if x ~= NONE and x ~= "auto" then
            dset(made, b.k[i], x)
        end
    end

    return made
end


-- ---- requests ---------------------------------------------------------------

-- What prepare() of a dialect is: prepare(body, given) returns f(body, o), of a
-- body with these fields (of fields.table(), or nil: f checks them) and the
-- resolved options, of texts or of chats; or nil, a sentence and the kind of
-- failure.
function _M.preparing(f, members, of_texts)
    local function prepared(body, given)
        if not is_dict(body) then
            raise "a body that is no object"
        end

        if members then
            check(body, members, "the body")
        end

        return f(body, _M.read(given, of_texts))
    end

    return function(body, given)
        local good, made = pcall(prepared, body, given)

        if good then
            return made
        end

        return nil, caught(made)
    end
end


return _M
