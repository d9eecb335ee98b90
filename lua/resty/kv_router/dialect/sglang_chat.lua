-- Copyright (C) the nginx-kv-router authors
--
-- SGLang's /v1/chat/completions: from a body to the variables of the chat
-- template, as SGLang 0.5.23 makes them (openai/serving_chat.py,
-- openai/protocol.py, parser/jinja_template_utils.py).
--
-- If the template fails with tools, SGLang renders again with the bare
-- functions: they are bare_tools of the variables.  A caller whose rendering
-- raises must render again with these as tools, where there are any.


local fields = require "resty.kv_router.dialect.fields"
local options = require "resty.kv_router.dialect.options"
local tape = require "resty.kv_router.template.tape"
local tool_forms = require "resty.kv_router.dialect.tools"
local value = require "resty.kv_router.template.value"

local check = fields.check
local concat = table.concat
local dict = value.dict
local dset = value.dset
local dset_all = value.dset_all
local find = string.find
local format = string.format
local get = fields.get
local is_dict = value.is_dict
local is_list = value.is_list
local list = value.list
local lower = string.lower
local object = value.object
local pairs = pairs
local raise = value.raise
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


-- ---- what is known ----------------------------------------------------------

-- Fields of bodies that do not change the prompt.  What is "null" here changes
-- it, or is seldom sent.
local SAMPLING = fields.with({
    regex = "string?", ebnf = "string?",
    lora_path = "string?", session_params = "null", extra_key = "string?",
    custom_params = "null", custom_logit_processor = "null",
    watermark = "null", images_config = "null", mm_processor_kwargs = "null",
}, fields.any [[
    add_generation_prompt add_special_tokens documents
    best_of bootstrap_host bootstrap_port bootstrap_room cache_salt
    disagg_prefill_dp_rank echo frequency_penalty ignore_eos include_reasoning
    kv_transfer_params logit_bias max_tokens metadata min_p min_tokens model n
    no_stop_trim presence_penalty priority prompt_cache_key prompt_logprobs
    repetition_penalty response_format rid routed_dp_rank safety_identifier
    seed service_tier session_id skip_special_tokens stop stop_regex
    stop_token_ids store stream stream_options temperature top_k top_p
    truncate_prompt_tokens truncation_side user verbosity
]])

local CHAT = fields.with({
    messages = "list", tools = "list?", tool_choice = "any",
    reasoning_effort = "string?", reasoning = "null", thinking = "null",
    task = "null", continue_final_message = "boolean",
    chat_template_kwargs = "dict?", chat_template = "null",
    input_ids = "null", functions = "null", function_call = "null",
    modalities = "null", audio = "null", prediction = "null",
    web_search_options = "null",
}, fields.with(SAMPLING, fields.any [[
    logprobs max_completion_tokens parallel_tool_calls separate_reasoning
    stream_reasoning top_logprobs
]]))

_M.SAMPLING = SAMPLING
_M.FIELDS = CHAT

local BODY = fields.table(CHAT)

-- SGLang reads the first two of a user's message, and drops what it does not
-- know
local MESSAGE = fields.table {
    role = "string", content = "any", tool_call_id = "string?",
    name = "string?", reasoning_content = "string?", tool_calls = "list?",
    tools = "null", phase = "null", prefix = "null", reasoning = "any",
    refusal = "any", audio = "null", function_call = "null",
    annotations = "any", cache_control = "any", id = "any",
}

local PART = fields.table {
    type = "string", text = "string", cache_control = "any",
}

local CALL = fields.table {
    id = "string?", index = "int?", type = "string", ["function"] = "dict",
}

local CALLED = fields.table { name = "string?", arguments = "any" }

local ROLES = { user = true, system = true, assistant = true, tool = true,
                ["function"] = true, developer = true,
                latest_reminder = true, root = true }

local EFFORTS = { none = true, minimal = true, low = true, medium = true,
                  high = true, xhigh = true, ultra = true, max = true }

_M.EFFORTS = EFFORTS


-- ---- messages ---------------------------------------------------------------

-- A content part of a text.
function _M.part(text)
    return object("type", "text", "text", text)
end


-- The content as the template gets it: "" for none, a text, or a list of
-- parts.
local function content_of(given, role, as_parts)
    if given == nil then
        return ""
    elseif type(given) == "string" then
        return given
    elseif not is_list(given) then
        unsupported "a content that is neither text nor a list"
    end

    local texts, parts = {}, {}

    for i = 1, given.n do
        local part = given[i]

        if not is_dict(part) or part.v.type ~= "text" or part.v.text == nil
        then
            unsupported(format("a content part of the type %s",
                               is_dict(part) and type(part.v.type) == "string"
                               and part.v.type or "unknown"))
        end

        check(part, PART, "a content part")

        texts[i] = part.v.text
        parts[i] = _M.part(part.v.text)
    end

    if as_parts and role ~= "tool" then
        return list(parts, given.n)
    end

    return concat(texts, " ")
end


-- orjson reads other numbers than Python's own reader there.
local function plain_numbers(x)
    if type(x) ~= "table" then
        return true
    elseif is_list(x) then
        for i = 1, x.n do
            if not plain_numbers(x[i]) then
                return false
            end
        end
    elseif is_dict(x) then
        for i = 1, x.n do
            if not plain_numbers(x.v[x.k[i]]) then
                return false
            end
        end
    elseif x.s then
        return false
    elseif x.x then
        return x.x - x.x == 0
    end

    return true
end


local function arguments_of(text)
    if find(text, "-0", 1, true) then
        unsupported "arguments of a tool call with -0"
    end

    local made, err, kind = tape.decode(text)

    if kind == "unsupported" then
        unsupported("arguments of a tool call: " .. err)
    elseif not is_dict(made) then
        raise "arguments of a tool call that are no JSON object"
    elseif not plain_numbers(made) then
        unsupported "arguments of a tool call with a number beyond 64 bits"
    end

    return made
end


local function calls_of(given, role)
    local made = {}

    for i = 1, given.n do
        local call = given[i]

        if not is_dict(call) or not is_dict(call.v["function"]) then
            unsupported "a tool call without a function"
        end

        check(call, CALL, "a tool call")
        check(call.v["function"], CALLED, "a tool call's function")

        if call.v.type ~= nil and call.v.type ~= "function" then
            unsupported "a tool call of another type than function"
        end

        local of = call.v["function"]
        local arguments = of.v.arguments

        if type(arguments) == "string" then
            if role == "assistant" then
                arguments = arguments_of(arguments)
            end

        elseif arguments ~= nil and arguments ~= NONE
               and not is_dict(arguments)
        then
            unsupported "arguments of a tool call that are no object"
        end

        made[i] = object("id", call.v.id or NONE,
                         "index", call.v.index or NONE, "type", "function",
                         "function", object("name", of.v.name or NONE,
                                            "arguments", arguments or NONE))
    end

    return list(made, given.n)
end


local function message_of(given, as_parts)
    if not is_dict(given) then
        raise "a message that is no object"
    end

    check(given, MESSAGE, "a message")

    local role, content = given.v.role, get(given, "content")

    if role == nil then
        raise "a message without role"
    elseif role ~= "user" then
        role = lower(role)

        if role == "user" or not ROLES[role] then
            raise(format("the role %q", given.v.role))
        end

    elseif content == nil then
        raise "a user's message without content"
    end

    local made = object("role", role)

    -- a list that stays one comes last
    local last = as_parts and is_list(content)

    content = content_of(content, role, as_parts)

    if not last then
        dset(made, "content", content)
    end

    if role == "user" then
        dset(made, "content", content)

        return made
    end

    for _, name in pairs { "tool_call_id", "name", "reasoning_content" } do
        local text = get(given, name)

        if text then
            dset(made, name, text)
        end
    end

    local calls = get(given, "tool_calls")

    if calls then
        dset(made, "tool_calls", calls_of(calls, role))
    end

    dset(made, "content", content)

    return made
end


-- The messages as the template gets them.  If the last one is an assistant's
-- text, it is the user's.
local function messages_of(given, as_parts)
    local made, n = {}, given.n

    for i = 1, n do
        made[i] = message_of(given[i], as_parts)
    end

    local last = made[n]

    if last.v.role == "assistant" and type(last.v.content) == "string" then
        made[n] = object("role", "user", "content", last.v.content)
    end

    return list(made, n)
end


-- ---- tools ------------------------------------------------------------------

-- A tool as the template gets it, of its function's members: in the client's
-- order, those that are missing behind.
function _M.tool_of(of)
    local as = dict()

    for i = 1, of.n do
        local name = of.k[i]

        if name ~= "defer_loading"
           and (name ~= "strict" or of.v.strict ~= NONE)
        then
            dset(as, name, of.v[name])
        end
    end

    dset(as, "description", of.v.description or NONE)
    dset(as, "parameters", of.v.parameters or NONE)

    return object("type", "function", "function", as, "defer_loading", NONE)
end


local function tool_of_chat(of, tool)
    local made = _M.tool_of(of)

    if tool.v.type ~= nil then
        dset(made, "type", tool.v.type)
    end

    tool_forms.check_schema(get(of, "parameters"))

    return made
end


-- Tools of which that name is one, alone; nil: there is none.
local function named(tools, name)
    local made = {}

    for i = 1, tools.n do
        if tools[i].v["function"].v.name == name then
            made[#made + 1] = tools[i]
        end
    end

    return #made > 0 and list(made) or nil
end


-- The tools that a choice leaves: choice is "auto", "none", "required", or a
-- table with a name.
function _M.shown_tools(tools, choice)
    if tools and tools.n == 0 then
        tools = nil
    end

    if choice == "none" or choice == "auto" then
        return choice == "auto" and tools or nil
    elseif not tools then
        raise "a tool_choice without tools"
    elseif choice == "required" then
        return tools
    end

    return named(tools, choice.name)
           or raise "a tool_choice of a tool that is not there"
end


local function choice_of(body)
    local choice = get(body, "tool_choice")

    if choice == nil then
        return get(body, "tools") and "auto" or "none"
    elseif tool_forms.CHOICES[choice] then
        return choice
    end

    return { name = tool_forms.named(choice) }
end


-- ---- requests ---------------------------------------------------------------

-- What a body of OpenAI's must be for SGLang not to refuse it, of fields that
-- do not reach the prompt.
function _M.checked(body, choice)
    local wanted = get(body, "response_format")

    if wanted ~= nil then
        local kind = is_dict(wanted) and wanted.v.type
        local made = kind == "json_schema" and get(wanted, "json_schema")

        if kind ~= "text" and kind ~= "json_object"
           and not (is_dict(made) and type(made.v.name) == "string"
                    and is_dict(made.v.schema))
        then
            unsupported "a response_format of another form"
        end
    end

    local constrained = wanted ~= nil and wanted.v.type ~= "text"
                        or get(body, "regex") or get(body, "ebnf")

    if constrained and choice and choice ~= "auto" and choice ~= "none" then
        unsupported "a tool_choice beside another constraint"
    end
end


-- The variables beside messages and tools.  given: the dict of those of the
-- body, which changes; effort: reasoning_effort, or nil.
function _M.variables(o, given, effort)
    local own = get(given, "reasoning_effort")

    effort = own ~= nil and own or effort

    if given.v.reasoning_effort ~= nil then
        local rest = dict()

        for i = 1, given.n do
            if given.k[i] ~= "reasoning_effort" then
                dset(rest, given.k[i], given.v[given.k[i]])
            end
        end

        given = rest
    end

    for i = 1, o.kwargs.n do
        local name = o.kwargs.k[i]

        if given.v[name] == nil then
            dset(given, name, o.kwargs.v[name])
        end
    end

    if effort == nil then
        effort = get(given, "reasoning_effort")
    end

    local made = dict()

    if effort ~= nil then
        dset(made, "reasoning_effort", effort)
    end

    dset_all(made, given)

    local word = o.probed.effort_kwarg

    if effort ~= nil and word == nil then
        unsupported("a reasoning_effort, of which the engine's way with this "
                    .. "template is not known")
    elseif effort == "low" and word ~= "" and made.v[word] == nil then
        dset(made, word, true)
    end

    return made
end


-- What an effort of a chat's body adds to the variables of the body.
function _M.thinking(given, effort)
    if effort ~= nil then
        for _, name in pairs { "thinking", "enable_thinking" } do
            if given.v[name] == nil then
                dset(given, name, effort ~= "none")
            end
        end
    end

    return given
end


-- The variables of the template: messages as a chat's body has them, tools as
-- the template gets them, or nil.
function _M.rendered(o, messages, tools, variables)
    local name, tpl = options.template(o, tools)
    local bare = {}

    if messages.n == 0 then
        raise "no messages"
    end

    for i = 1, tools and tools.n or 0 do
        bare[i] = tools[i].v["function"]
    end

    return {
        template = name,
        messages = messages_of(messages,
                               options.content_format(o, tpl) == "openai"),
        tools = tools,
        bare_tools = tools and list(bare) or nil,
        kwargs = variables,
        add_generation_prompt = true,
        continue_final_message = false,
        add_special_tokens = false,
    }
end


local function prepared(body, o)
    local effort = get(body, "reasoning_effort")
    local choice = choice_of(body)

    if effort and not EFFORTS[effort] then
        unsupported(format("the reasoning_effort %q", effort))
    elseif body.v.messages == nil then
        raise "a chat without messages"
    elseif body.v.continue_final_message then
        -- the engine encodes the final message apart from the text
        unsupported "continue_final_message"
    end

    _M.checked(body, choice)

    local tools = get(body, "tools")

    tools = tools and tool_forms.of_chat(tools, tool_of_chat)

    local variables = _M.thinking(options.kwargs(body, o.trusts), effort)

    return _M.rendered(o, body.v.messages, _M.shown_tools(tools, choice),
                       _M.variables(o, variables, effort))
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = options.preparing(prepared, BODY)


return _M
