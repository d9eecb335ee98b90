-- What the tests of templates share: a rendering in one call, with libkvr.so in
-- place of the module.


local ffi = require "ffi"

-- kept: a library that is collected is unloaded
local kvr = ffi.load("kvr", true)

local tape = require "resty.kv_router.template.tape"
local template = require "resty.kv_router.template"
local text_ffi = require "resty.kv_router.tokens.text_ffi"

local assert = assert
local io = io
local ipairs = ipairs
local pairs = pairs
local setmetatable = setmetatable
local type = type


local _M = { library = kvr }

local NO_LIMIT = 1e12
local text = template.text()


-- The value of a JSON text.
function _M.value(json)
    local made, err = tape.decode(json)

    assert(made ~= nil, err)

    return made
end


-- A template; settings as for compile(): the clock does not end it here.
function _M.compile(source, settings)
    return template.compile(source, setmetatable({}, {
        __index = function(_, name)
            if settings and settings[name] ~= nil then
                return settings[name]
            elseif name == "cpu_us" then
                return NO_LIMIT
            end
        end,
    }))
end


-- The text of a source with variables, given as JSON; nil, a sentence and the
-- kind of failure.
function _M.text(source, json, settings)
    local tpl, err, kind = _M.compile(source, settings)

    if not tpl then
        return nil, err, kind
    end

    local good

    good, err, kind = tpl:render_with(_M.value(json or "{}").v, text)

    if not good then
        return nil, err, kind
    end

    return text_ffi.string(text)
end


-- The text of a template for a request: messages, tools, documents and kwargs as
-- JSON or values.
function _M.chat(tpl, request, size)
    local vars = {}

    for name, x in pairs(request) do
        if type(x) == "string" then
            x = _M.value(x)
        end

        vars[name] = x
    end

    local good, err, kind = tpl:render(vars, text, size)

    if not good then
        return nil, err, kind
    end

    return text_ffi.string(text)
end


_M.spent = template.spent


-- ---- golden files -----------------------------------------------------------

-- FNV-1a of 64 bits, over one string after the other.
local PRIME = 0x100000001b3ULL

_M.HASH = 0xcbf29ce484222325ULL


function _M.hash(s, h)
    local bytes = ffi.cast("const uint8_t *", s)

    h = h or _M.HASH

    for i = 0, #s - 1 do
        h = bit.bxor(h, bytes[i]) * PRIME
    end

    return h
end


-- The same for one template: texts in the order of the chats, and "error" for
-- those where the template fails.
function _M.add(hash, got)
    return _M.hash(got and "text " .. got or "error", hash)
end


function _M.read(path)
    local file = io.open(path, "rb")

    if not file then
        return nil
    end

    local all = file:read("*a")

    file:close()

    return all
end


-- How the chats of a golden file are rendered.
_M.SETTINGS = {
    tokens = { bos_token = "<s>", eos_token = "</s>", unk_token = "<unk>",
               pad_token = "<pad>" },
    zone = "UTC", now = function() return 1785067200 end,   -- 26 July 2026
    fuel = NO_LIMIT,
}


-- A chat of a line of JSON, rendered: as chat().
function _M.case(tpl, line)
    local case, request = _M.value(line).v, {}

    for _, name in ipairs { "messages", "tools", "documents", "kwargs" } do
        local x = case[name]

        request[name] = type(x) == "table" and x.n and x or nil
    end

    request.add_generation_prompt = case.add_generation_prompt == true
    request.continue_final_message = case.continue_final_message == true

    return _M.chat(tpl, request)
end


return _M
