-- What the tests of templates share: a rendering in one call, with libkvr.so in
-- place of the module.


local ffi = require "ffi"

-- kept: a library that is collected is unloaded
local kvr = ffi.load("kvr", true)

local tape = require "resty.kv_router.template.tape"
local template = require "resty.kv_router.template"
local text_ffi = require "resty.kv_router.text_ffi"

local assert = assert
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


return _M
