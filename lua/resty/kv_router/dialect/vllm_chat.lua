-- Copyright (C) the nginx-kv-router authors
--
-- vLLM's /v1/chat/completions: from a body to the variables of the chat
-- template, as vLLM 0.32 makes them (renderers/chat_utils.py, renderers/hf.py,
-- openai/chat_completion/protocol.py).


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
local object = value.object
local raise = value.raise
local sub = string.sub
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


-- ---- what is known ----------------------------------------------------------

-- Fields of bodies that do not change the prompt, or whose effect is built.
-- What is "null" here changes the prompt, or is seldom sent.
local SAMPLING = fields.with({
    structured_outputs = "null", vllm_xargs = "null",
    ec_transfer_params = "null", stream_interval = "null",
    truncate_prompt_tokens = "null", truncation_side = "null",
    add_special_tokens = "boolean", repetition_detection = "null",
    mm_processor_kwargs = "null", media_io_kwargs = "null",
    logprob_token_ids = "null", thinking_token_budget = "null",
}, fields.any [[
    allowed_token_ids bad_words best_of cache_salt early_stopping
    frequency_penalty ignore_eos include_stop_str_in_output kv_transfer_params
    length_penalty logit_bias max_tokens metadata min_p min_tokens model n
    presence_penalty priority prompt_cache_key prompt_logprobs
    repetition_penalty request_id response_format return_token_ids
    return_tokens_as_token_ids safety_identifier seed service_tier session_id
    skip_special_tokens spaces_between_special_tokens stop stop_token_ids
    store stream stream_options temperature top_k top_p use_beam_search user
    verbosity watermarking
]])

local CHAT = fields.with({
    messages = "list", tools = "list?", tool_choice = "any",
    reasoning_effort = "string?", add_generation_prompt = "boolean",
    continue_final_message = "boolean", documents = "list?",
    chat_template = "null", chat_template_kwargs = "dict?",
    function_call = "null", functions = "null", modalities = "null",
    audio = "null", prediction = "null", web_search_options = "null",
}, fields.with(SAMPLING, fields.any [[
    echo include_reasoning logprobs max_completion_tokens parallel_tool_calls
    top_logprobs
]]))

_M.SAMPLING = SAMPLING
_M.FIELDS = CHAT

local BODY = fields.table(CHAT)

-- vLLM makes a new message of those that it reads, and drops the others
local MESSAGE = fields.table {
    role = "string", content = "any", name = "string", tool_calls = "any",
    tool_call_id = "string?", reasoning = "string?",
    reasoning_content = "string?", tools = "null", task = "null",
    refusal = "any", audio = "null", function_call = "null",
    annotations = "any", cache_control = "any", id = "any",
}

-- the member with a part's text
local TEXT = { text = "text", input_text = "text", output_text = "text",
               refusal = "refusal", thinking = "thinking" }

-- Members of parts that vLLM knows of some type of part.  All others reach the
-- template, in the format "openai".
local KNOWN = {}

for name in ([[
    type text refusal image_url file input_audio audio_url video_url
    image_embeds audio_embeds video_embeds prompt_embeds data image_pil uuid
    thinking closed name url detail id format prompt_cache_breakpoint
]]):gmatch "%S+" do
    KNOWN[name] = true
end

local EFFORTS = { none = true, minimal = true, low = true, medium = true,
                  high = true, xhigh = true, max = true }

_M.EFFORTS = EFFORTS

local BILLING = "x-anthropic-billing-header"

_M.BILLING = BILLING

-- Python reads integers of up to so many digits
local DIGITS_MAX = 4300


-- ---- messages ---------------------------------------------------------------

-- A line that names a bill is left out of a system text; nil: nothing is left.
local function unbilled(text)
    if sub(text, 1, #BILLING) ~= BILLING then
        return text
    end

    local at = find(text, "\n", 1, true)

    if not at or at == #text then
        return nil
    end

    return sub(text, at + 1)
end


-- The text of a part, and the part, if it is a dict; nil: it is left out.
-- typed: of a chat, whose types of parts depend on the role.
local function part_text(part, role, typed)
    if type(part) == "string" then
        if typed then
            unsupported "a content part that is no object"
        end

        if role == "system" then
            part = unbilled(part)
        end

        return part
    end

    if not is_dict(part) then
        raise "a content part that is neither an object nor text"
    end

    local kind = part.v.type
    local member = type(kind) == "string" and TEXT[kind]

    if not member or get(part, "uuid") ~= nil
       or (typed and kind ~= "text")
    then
        unsupported(format("a content part of the type %s",
                           type(kind) == "string" and kind or "unknown"))
    end

    for i = 1, part.n do
        local name = part.k[i]

        if KNOWN[name] and name ~= "type" and name ~= member
           and name ~= "closed"
        then
            unsupported(format("a content part of the type %s with %q", kind,
                               name))
        end
    end

    local text = part.v[member]

    if type(text) ~= "string" then
        unsupported(format("a content part of the type %s without text", kind))
    end

    if role == "system" and kind == "text" then
        text = unbilled(text)
    end

    return text, part
end


local function wrapped(text, part)
    local made = object("type", "text", "text", text)

    if part then
        for i = 1, part.n do
            local name = part.k[i]

            if not KNOWN[name] then
                dset(made, name, part.v[name])
            end
        end
    end

    return made
end


-- The content as the template gets it: a text, or a list of parts.
local function content_of(content, role, as_parts, typed)
    local given = content

    if content == nil then
        given = { n = 0 }
    elseif type(content) == "string" then
        given, typed = { content, n = 1 }, false
    elseif not is_list(content) then
        unsupported "a content that is neither text nor a list"
    end

    local made, n = {}, 0

    for i = 1, given.n do
        local text, part = part_text(given[i], role, typed)

        if text and as_parts then
            n = n + 1
            made[n] = role == "tool" and text or wrapped(text, part)
        elseif text and text ~= "" then
            n = n + 1
            made[n] = text
        end
    end

    if as_parts and role ~= "tool" then
        return list(made, n)
    end

    return concat(made, "\n", 1, n)
end


-- The arguments of a call as vLLM reads them: {} for what is no object.
local function arguments_of(text)
    if text == "" then
        return dict()
    end

    local made, err, kind = tape.decode(text)

    if kind == "unsupported" or (err and #text > DIGITS_MAX) then
        unsupported("arguments of a tool call: " .. err)
    end

    return is_dict(made) and made or dict()
end


-- The members in the order that pydantic gives them: the named ones first.
local function ordered(given, ...)
    local made = dict()

    for i = 1, select("#", ...) do
        local name = select(i, ...)

        if given.v[name] ~= nil then
            dset(made, name, given.v[name])
        end
    end

    return dset_all(made, given)
end


-- Calls as the template gets them; nil: there are none.  typed: they are a
-- client's, whose members the request's types order; else arguments can be
-- read already.
local function calls_of(given, typed)
    if not is_list(given) then
        raise "tool_calls that are no list"
    end

    local made = {}

    for i = 1, given.n do
        local call = given[i]
        local of = is_dict(call) and call.v["function"]

        if not is_dict(of) or type(call.v.id) ~= "string"
           or call.v.type ~= "function" or type(of.v.name) ~= "string"
           or (type(of.v.arguments) ~= "string"
               and (typed or not is_dict(of.v.arguments)))
        then
            unsupported "a tool call without id, type, name or arguments"
        end

        call = typed and ordered(call, "id", "function", "type")
               or ordered(call)
        of = typed and ordered(of, "arguments", "name") or ordered(of)

        if type(of.v.arguments) == "string" then
            dset(of, "arguments", arguments_of(of.v.arguments))
        end

        dset(call, "function", of)
        made[i] = call
    end

    return given.n > 0 and list(made, given.n) or nil
end


local function message_of(given, as_parts, typed)
    if not is_dict(given) then
        raise "a message that is no object"
    end

    check(given, MESSAGE, "a message")

    local role = given.v.role

    if role == nil then
        raise "a message without role"
    elseif given.v.content == NONE and role ~= "assistant" then
        raise "a message whose content is null"
    end

    local made = object("role", role, "content",
                        content_of(get(given, "content"), role, as_parts,
                                   typed))

    if role == "assistant" then
        local calls = get(given, "tool_calls")

        calls = calls ~= nil and calls_of(calls, typed)

        if calls then
            dset(made, "tool_calls", calls)
        end

        local reasoning = get(given, "reasoning")

        if reasoning == nil then
            reasoning = get(given, "reasoning_content")
        end

        if reasoning ~= nil then
            dset(made, "reasoning", reasoning)
            dset(made, "reasoning_content", reasoning)
        end

    elseif get(given, "tool_calls") ~= nil then
        unsupported(format("tool_calls in a message of the role %s", role))

    elseif role == "tool" and given.v.tool_call_id ~= nil then
        dset(made, "tool_call_id", given.v.tool_call_id)
    end

    if given.v.name ~= nil then
        dset(made, "name", given.v.name)
    end

    if role == "developer" then
        dset(made, "tools", NONE)
    end

    return made
end


local function text_of(content)
    if type(content) == "string" then
        return content
    end

    local texts = {}

    for i = 1, content.n do
        texts[i] = content[i].v.text
    end

    return concat(texts, "\n")
end


-- For a template that does not know the role "developer": it is system, and
-- all system messages are one, in front, if one of them is behind.
local function without_developer(messages)
    local made, rest, system, moved = {}, {}, {}, false

    for i = 1, messages.n do
        local message = messages[i]

        if message.v.role == "developer" then
            local as = dict()

            for j = 1, message.n do
                if message.k[j] ~= "tools" then
                    dset(as, message.k[j], message.v[message.k[j]])
                end
            end

            dset(as, "role", "system")
            message = as
        end

        made[i] = message

        if message.v.role == "system" then
            moved = moved or i > 1

            local text = text_of(message.v.content)

            if text ~= "" then
                system[#system + 1] = text
            end

        else
            rest[#rest + 1] = message
        end
    end

    if not moved then
        return list(made, messages.n)
    end

    local all = { object("role", "system",
                         "content", concat(system, "\n\n")) }

    for i = 1, #rest do
        all[i + 1] = rest[i]
    end

    return list(all)
end


-- ---- tools ------------------------------------------------------------------

-- A tool as the template gets it, of its function's members.
local function tool_of(of)
    return object("type", "function", "function", object(
        "name", of.v.name, "description", of.v.description or NONE,
        "parameters", of.v.parameters or NONE, "strict", get(of, "strict")))
end


local function tool_of_chat(of, tool)
    if tool.v.type ~= nil and tool.v.type ~= "function" then
        unsupported(format("a tool of the type %s", tool.v.type))
    end

    return tool_of(of)
end


-- Fails unless one of the tools has that name.
local function tool_named(tools, name)
    for i = 1, tools and tools.n or 0 do
        if tools[i].v["function"].v.name == name then
            return
        end
    end

    raise "a tool_choice of a tool that is not there"
end


-- "auto", "none", "required", "named"; nil: null
local function choice_of(body, tools)
    local choice = body.v.tool_choice

    if choice == nil then
        return tools and "auto" or "none"
    elseif choice == "none" then
        return choice
    elseif choice == NONE then
        return nil
    elseif not tools then
        raise "a tool_choice without tools"
    elseif choice == "auto" or choice == "required" then
        return choice
    end

    tool_named(tools, tool_forms.named(choice))

    return "named"
end


-- Those that the engine shows to the template; nil: none.
function _M.shown_tools(o, tools, choice)
    if choice ~= nil and choice ~= "none" and not o.calls_tools then
        raise "a tool_choice that needs a tool parser"
    elseif choice == "none" and o.excluded then
        return nil
    end

    return tools
end


-- ---- requests ---------------------------------------------------------------

-- Ids in "kv_transfer_params" are read instead of a text: such a request has
-- no business here.
local function transferred(body)
    local params = get(body, "kv_transfer_params")

    if params == nil then
        return
    elseif not is_dict(params) then
        unsupported "kv_transfer_params that are no object"
    elseif get(params, "prompt_token_ids") ~= nil then
        unsupported "prompt_token_ids in kv_transfer_params"
    end
end


-- Fails where a field of a body of OpenAI's makes vLLM read another prompt, or
-- not read its cache.
function _M.checked(body)
    transferred(body)

    if body.v.prompt_logprobs and body.v.prompt_logprobs ~= NONE then
        unsupported "prompt_logprobs"
    end
end


local function documents_of(body)
    local given = get(body, "documents")

    if given == nil then
        return nil
    end

    for i = 1, given.n do
        local document = given[i]

        if not is_dict(document) then
            raise "a document that is no object"
        end

        for j = 1, document.n do
            if type(document.v[document.k[j]]) ~= "string" then
                raise "a document with a member that is no text"
            end
        end
    end

    return given
end


-- The variables beside messages and tools.  given: those of the body; effort:
-- reasoning_effort, or nil.  Those of the body that are null are none, but for
-- a response, unless the engine has variables of its own.
function _M.variables(o, given, effort, response)
    local more = dict()

    if effort ~= nil then
        dset(more, "reasoning_effort", effort)

        if given.v.enable_thinking == nil then
            dset(more, "enable_thinking", effort ~= "none")
        end
    end

    local merged = options.merged(given, more)

    if response and o.kwargs.n == 0 then
        return merged
    end

    return options.merged(o.kwargs, merged)
end


-- The variables of the template for messages, tools and the rest: given has
-- messages (a list), tools (as the template gets them, or nil), documents,
-- kwargs, add_generation_prompt, continue_final_message, add_special_tokens;
-- typed: as for calls_of().
function _M.rendered(o, given)
    local name, tpl = options.template(o, given.tools)
    local as_parts = options.content_format(o, tpl) == "openai"
    local messages, n = {}, given.messages.n
    local developer = false

    if n == 0 then
        raise "no messages"
    end

    for i = 1, n do
        messages[i] = message_of(given.messages[i], as_parts, given.typed)
        developer = developer or messages[i].v.role == "developer"
    end

    messages = list(messages, n)

    if developer and not tpl.developer then
        messages = without_developer(messages)
    end

    if given.continue_final_message and given.add_generation_prompt then
        raise "continue_final_message with add_generation_prompt"
    end

    given.messages, given.template = messages, name

    return given
end


local function prepared(body, o)
    local effort = get(body, "reasoning_effort")

    if effort and not EFFORTS[effort] then
        raise(format("the reasoning_effort %q", effort))
    end

    _M.checked(body)

    local given = get(body, "tools")

    if given and given.n == 0 then
        raise "an empty list of tools"
    end

    local tools = given and tool_forms.of_chat(given, tool_of_chat)
    local choice = choice_of(body, tools)
    local generate = body.v.add_generation_prompt

    if body.v.messages == nil then
        raise "a chat without messages"
    end

    return _M.rendered(o, {
        messages = body.v.messages,
        typed = true,
        tools = _M.shown_tools(o, tools, choice),
        documents = documents_of(body),
        kwargs = _M.variables(o, options.kwargs(body, o.trusts), effort),
        add_generation_prompt = generate == nil or generate,
        continue_final_message = body.v.continue_final_message == true,
        add_special_tokens = body.v.add_special_tokens == true,
    })
end


-- The variables of the template; nil, a sentence and the kind of failure.
_M.prepare = options.preparing(prepared, BODY)


-- For the other forms: a tool of its function's members, and whether a tool is
-- there.
_M.tool_of = tool_of
_M.tool_named = tool_named


return _M
