-- Copyright (C) the nginx-kv-router authors
--
-- The functions that every template has: those of Jinja, and raise_exception
-- and strftime_now of transformers.
--
-- A function gets its named arguments, { name, value, name, value, ... } or
-- nil, and the others.


local attributes = require "resty.kv_router.template.attributes"
local dates = require "resty.kv_router.template.dates"
local fuel = require "resty.kv_router.template.fuel"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local ceil = math.ceil
local dset = value.dset
local max = math.max
local number = operators.number
local raise = value.raise
local select = select
local setmetatable = setmetatable
local str = printer.str
local type = type
local unsupported = value.unsupported


local _M = {}

-- of the template that is rendered: when it is, and the engine's time zone
_M.now = nil
_M.zone = nil

local RANGE_MAX = 100000         -- MAX_RANGE of the sandbox


local function make(call)
    return setmetatable({ call = call }, value.FUNCTION)
end


local named_globals = {}

_M.named = named_globals


named_globals.range = make(function(named, ...)
    local n = select("#", ...)
    local from, to, step = ...

    if named then
        raise("range() takes no keyword arguments")
    elseif n == 1 then
        from, to, step = 0, from, 1
    elseif n == 2 then
        step = 1
    elseif n ~= 3 then
        raise("range expected 1 to 3 arguments, got " .. n)
    end

    local a, fa = number(from)
    local b, fb = number(to)
    local c, fc = number(step)

    if not (a and b and c) or fa or fb or fc then
        raise("range() of something that is no integer")
    elseif c == 0 then
        raise("range() arg 3 must not be zero")
    end

    local count = max(0, ceil((b - a) / c))

    if count > RANGE_MAX then
        raise("Range too big. The sandbox blocks ranges larger than MAX_RANGE")
    end

    burn(count)

    local made = { n = count }

    for i = 1, count do
        made[i] = a + (i - 1) * c
    end

    return setmetatable(made, value.RANGE)
end)


-- The dict of dict() and namespace(): of named arguments.
local function dict_of(named, name, more)
    local made = value.dict()

    if more ~= nil then
        unsupported(name .. "() of a value")
    end

    for i = 1, named and #named or 0, 2 do
        dset(made, named[i], named[i + 1])
    end

    return made
end


named_globals.dict = make(function(named, more)
    return dict_of(named, "dict", more)
end)


named_globals.namespace = make(function(named, more)
    local made = dict_of(named, "namespace", more)

    for i = 1, made.n do
        attributes.check_name(made.k[i])
    end

    return setmetatable({ v = made.v }, value.NAMESPACE)
end)


named_globals.raise_exception = make(function(named, message)
    if named and named[1] == "message" then
        message = named[2]
    elseif message == nil then
        raise("raise_exception() without a message")
    end

    return raise(str(message))
end)


named_globals.strftime_now = make(function(named, text)
    if named and named[1] == "format" and not named[3] then
        text = named[2]
    end

    if type(text) ~= "string" then
        raise("strftime_now: a str is wanted")
    end

    return dates.strftime(text, _M.now(), _M.zone)
end)


-- Jinja's that are not here.
_M.REFUSED = { lipsum = true, cycler = true, joiner = true, self = true,
               super = true, varargs = true, kwargs = true }


return _M
