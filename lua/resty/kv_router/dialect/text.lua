-- Copyright (C) the nginx-kv-router authors
--
-- Prompts that are text: /v1/completions, and SGLang's /generate.  The text
-- gets the special tokens that the tokenizer adds, BOS for most: unless a body
-- for vLLM says that it does not.


local fields = require "resty.kv_router.dialect.fields"
local options = require "resty.kv_router.dialect.options"
local sglang_chat = require "resty.kv_router.dialect.sglang_chat"
local value = require "resty.kv_router.template.value"
local vllm_chat = require "resty.kv_router.dialect.vllm_chat"

local check = fields.check
local is_list = value.is_list
local raise = value.raise
local type = type
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


local FIELDS = {
    vllm = fields.with({
        prompt = "any", echo = "any", logprobs = "any", suffix = "null",
        prompt_embeds = "null",
    }, vllm_chat.SAMPLING),
    sglang = fields.with({
        prompt = "any", logprobs = "any", suffix = "null",
        json_schema = "any",
    }, sglang_chat.SAMPLING),
}

local GENERATE = fields.table {
    text = "any", sampling_params = "dict?", stream = "boolean",
    return_logprob = "boolean?", logprob_start_len = "int?",
    top_logprobs_num = "int?", return_text_in_logprobs = "boolean",
    rid = "string?", cache_salt = "string?", lora_path = "string?",
    priority = "int?", bootstrap_host = "string?", bootstrap_port = "int?",
    bootstrap_room = "int?", log_metrics = "boolean",
}

_M.FIELDS = FIELDS

local BODIES = { vllm = fields.table(FIELDS.vllm),
                 sglang = fields.table(FIELDS.sglang) }


-- The first text.
local function text_of(given)
    local text = is_list(given) and given[1] or given

    if type(text) ~= "string" then
        unsupported "a prompt that is no text"
    elseif is_list(given) then
        for i = 2, given.n do
            if type(given[i]) ~= "string" then
                unsupported "a list of prompts that are not all texts"
            end
        end
    end

    if text == "" then
        unsupported "an empty prompt"
    end

    return text
end


local function prepared(body, o)
    if body.v.text ~= nil and o.engine == "sglang" then
        check(body, GENERATE, "the body")

        return { text = text_of(body.v.text), add_special_tokens = true }
    end

    local known = BODIES[o.engine]

    if not known then
        unsupported "texts for an engine whose dialect is not known"
    end

    check(body, known, "the body")

    if body.v.prompt == nil or body.v.prompt == NONE then
        raise "a body without a prompt"
    end

    if o.engine == "vllm" then
        vllm_chat.checked(body)
    else
        sglang_chat.checked(body)
    end

    return { text = text_of(body.v.prompt),
             add_special_tokens = o.engine == "sglang"
                                  or body.v.add_special_tokens ~= false }
end


-- text and add_special_tokens; nil, a sentence and the kind of failure.  Of
-- several texts the first counts.
_M.prepare = options.preparing(prepared, nil, true)


return _M
