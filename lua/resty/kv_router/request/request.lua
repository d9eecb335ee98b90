-- Copyright (C) the nginx-kv-router authors
--
-- What a policy can know of the request itself: ctx.request.  Every field is
-- found when it is asked for, and kept: a field that nobody asks for costs
-- nothing.  All but body and json are found in the tape of the body, which was
-- scanned for the prompt.
--
--     method, uri         "POST", "/v1/chat/completions"
--     headers[name]       the value of a request header, any case; nil
--     body                the whole body, a string; "" when there is none
--     fields              name -> JSON text of the top-level fields of the
--                         body; {} when it is no JSON object, or over
--                         max_body
--     json                the body decoded; nil when it is no JSON.  A long
--                         prompt of token ids takes milliseconds to decode:
--                         fields is far cheaper
--     model               the body's "model"; nil
--     session             header x-session-id, or the body's "session_id", or
--                         its "previous_response_id"; nil
--     priority            the body's "priority", a number; 0
--     max_tokens          the body's "max_completion_tokens" or "max_tokens";
--                         nil
--     lora                the lora_name given to router:access(), or else the
--                         adapter that the body names; nil
--     salt                the cache_salt given there, or the body's; nil
--
-- Values are the client's: of the right type, but nothing else is checked.


local decode = require "cjson.safe".decode
local body_of = require "resty.kv_router.request.body"

local get_body_data = ngx.req.get_body_data
local get_body_file = ngx.req.get_body_file
local get_method = ngx.req.get_method
local gsub = string.gsub
local lower = string.lower
local open = io.open
local rawset = rawset
local setmetatable = setmetatable
local type = type
local var = ngx.var


local _M = {}


local headers = setmetatable({}, {
    __index = function(_, name)
        return var["http_" .. gsub(lower(name), "-", "_")]
    end
})


-- A field of the body decoded, when it is of that type.
local function field(request, name, wanted)
    local text = body_of.field(request.r, name)
    local value = text and decode(text)

    if type(value) == wanted then
        return value
    end

    return nil
end


local get = {}


function get.method()
    return get_method()
end


function get.uri()
    return var.uri
end


function get.headers()
    return headers
end


-- A body over client_body_buffer_size is in a file, most likely still in the
-- page cache; reading it blocks for as long as a copy takes.
function get.body()
    local data = get_body_data()

    if data then
        return data
    end

    local name = get_body_file()
    local file = name and open(name, "rb")

    if not file then
        return ""
    end

    data = file:read("*a")
    file:close()

    return data or ""
end


function get.fields(request)
    return body_of.fields(request.r)
end


function get.json(request)
    return (decode(request.body))
end


function get.model(request)
    return field(request, "model", "string")
end


function get.session(request)
    return headers["x-session-id"] or field(request, "session_id", "string")
           or field(request, "previous_response_id", "string")
end


function get.priority(request)
    return field(request, "priority", "number") or 0
end


function get.max_tokens(request)
    return field(request, "max_completion_tokens", "number")
           or field(request, "max_tokens", "number")
end


function get.salt(request)
    return field(request, "cache_salt", "string")
end


local mt = {
    __index = function(request, key)
        local getter = get[key]
        local value = getter and getter(request)

        if value ~= nil then
            rawset(request, key, value)
        end

        return value
    end
}


-- r: the request; lora, salt: strings or nil.  The prompt must have been looked
-- for before a field of the body is asked for.
function _M.new(r, lora, salt)
    -- in parentheses: a function that ends in a tail call is not compiled
    return (setmetatable({ r = r, lora = lora, salt = salt }, mt))
end


return _M
