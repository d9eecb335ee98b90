-- Copyright (C) the nginx-kv-router authors
--
-- What apply_chat_template of transformers does around a template.
--
-- From 5.23 on a message with one of the fields reasoning_content, thinking,
-- reasoning (the first that is given counts) gets the field thinking in front
-- and reasoning_content at its end, with the same value.
--
-- To continue the final message, a mark is put behind its text, and the
-- rendered text ends where the mark is.  If the template has trimmed the
-- message, what is in front of the mark is trimmed, too.


local fuel = require "resty.kv_router.template.fuel"
local operators = require "resty.kv_router.template.operators"
local strings = require "resty.kv_router.template.strings"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local add = operators.add
local burn = fuel.burn
local cut = text_ffi.cut
local dict = value.dict
local dset = value.dset
local dset_all = value.dset_all
local find = string.find
local find_in = text_ffi.find_in
local is_dict = value.is_dict
local is_list = value.is_list
local list = value.list
local raise = value.raise
local rfind_in = text_ffi.rfind_in
local stripped = text_ffi.stripped
local tonumber = tonumber
local type = type
local unsupported = value.unsupported

local NONE = value.NONE

local MARK = "CONTINUE_FINAL_MESSAGE_TAG "
local BARE = "CONTINUE_FINAL_MESSAGE_TAG"
local REASONING = { "reasoning_content", "thinking", "reasoning" }


local _M = {}


local function aliased(message)
    local reasoning

    for i = 1, #REASONING do
        local found = message.v[REASONING[i]]

        if found ~= nil and found ~= NONE then
            reasoning = found
            break
        end
    end

    if reasoning == nil then
        return message
    end

    local made = dict()

    dset(made, "thinking", reasoning)

    dset_all(made, message)
    dset(made, "reasoning_content", reasoning)

    return made
end


-- The messages as the template gets them: aliases, of 5.23's fields.
function _M.messages(messages, aliases)
    local made, n = {}, messages.n

    for i = 1, n do
        local message = messages[i]

        if not is_dict(message) then
            raise("a message that is no dict")
        end

        burn(1)
        made[i] = aliases and aliased(message) or message
    end

    return list(made, n)
end


-- The content parts with a mark behind the last text, and that text.
local function marked_parts(parts)
    local made = {}

    for i = 1, parts.n do
        made[i] = parts[i]
    end

    for i = parts.n, 1, -1 do
        local part = parts[i]

        if type(part) == "string" then
            if find(part, "text", 1, true) then
                raise("a content part that is a str")
            end
        elseif not is_dict(part) then
            unsupported("a content part that is no dict")
        elseif part.v.text ~= nil then
            made[i] = dset_all(dict(), part)
            dset(made[i], "text", add(part.v.text, MARK))

            return list(made, parts.n), part.v.text
        end
    end

    return raise("no text to continue in the final message")
end


-- Marks the final message of messages(), in place: the text that is continued.
-- source: the template's.
function _M.mark(messages, source)
    local message = messages[messages.n]
    local content = message and message.v.content

    if content == nil or content == NONE then
        raise("the final message has no content to continue")
    elseif not find(source, "content", 1, true) then
        raise("a template without content can't continue the final message")
    end

    local made = dset_all(dict(), message)
    local final = content

    if is_list(content) then
        content, final = marked_parts(content)
        dset(made, "content", content)
    else
        dset(made, "content", add(content, MARK))
    end

    messages[messages.n] = made

    return final
end


-- Cuts a rendered text at the mark.
function _M.cut(text, final)
    if type(final) ~= "string" then
        raise("the final message is no str")
    end

    local at = rfind_in(text, BARE)

    if not at or not find_in(text, strings.strip(final, nil, true, true)) then
        raise("the final message is not in the rendered text")
    end

    if rfind_in(text, MARK) == at then
        cut(text, at)
    else
        cut(text, stripped(text, at))
    end

    return tonumber(text.len)
end


return _M
