-- Copyright (C) the nginx-kv-router authors
--
-- The variables that a request gives to the chat template beside messages and
-- tools: "chat_template_kwargs", and what engines add to them.


local fields = require "resty.kv_router.dialect.fields"
local value = require "resty.kv_router.template.value"

local dset = value.dset
local dict = value.dict
local format = string.format
local get = fields.get
local raise = value.raise
local unsupported = value.unsupported

local NONE = value.NONE


local _M = {}


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
function _M.of(body, taken)
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
    local made = dict()

    for i = 1, a.n do
        dset(made, a.k[i], a.v[a.k[i]])
    end

    for i = 1, b.n do
        local x = b.v[b.k[i]]

        if x ~= NONE and x ~= "auto" then
            dset(made, b.k[i], x)
        end
    end

    return made
end


return _M
