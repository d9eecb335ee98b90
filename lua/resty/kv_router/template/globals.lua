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
local methods = require "resty.kv_router.template.methods"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local ceil = math.ceil
local dset = value.dset
local is_dict = value.is_dict
local key_of = operators.key_of
local max = math.max
local number = operators.number
local raise = value.raise
local select = select
local sequence = operators.sequence
local setmetatable = setmetatable
local str = printer.str
local type = type
local type_name = value.type_name
local unsupported = value.unsupported


local _M = {}

-- of the template that is rendered: when it is, and the engine's time zone
_M.now = nil
_M.zone = nil

local RANGE_MAX = 100000         -- MAX_RANGE of the sandbox


local function make(call)
    return setmetatable({ call = call }, value.FUNCTION)
end


local function no_names(named, name)
    if named then
        raise(name .. "() takes no keyword arguments")
    end
end


local named_globals = {}

_M.named = named_globals


named_globals.range = make(function(named, ...)
    local n = select("#", ...)
    local from, to, step = ...

    no_names(named, "range")

    if n == 1 then
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


-- The dict of dict() and namespace(): of a mapping or of pairs, and of named
-- arguments.
local function dict_of(named, name, n, from)
    local made = value.dict()

    if n > 1 then
        raise(name .. " expected at most 1 argument, got " .. n)
    elseif n == 1 and is_dict(from) then
        made = methods.copy(from)

    elseif n == 1 then
        local pairs_of, m = sequence(from)

        for i = 1, m do
            local pair, size = sequence(pairs_of[i])

            if size ~= 2 then
                raise("dictionary update sequence element of a wrong length")
            end

            burn(1)

            local key = key_of(pair[1])

            if key == nil or key ~= pair[1] then
                unsupported("a key of " .. type_name(pair[1]))
            end

            dset(made, key, pair[2])
        end
    end

    for i = 1, named and #named or 0, 2 do
        dset(made, named[i], named[i + 1])
    end

    return made
end


named_globals.dict = make(function(named, ...)
    return dict_of(named, "dict", select("#", ...), ...)
end)


named_globals.namespace = make(function(named, ...)
    local made = dict_of(named, "namespace", select("#", ...), ...)

    for i = 1, made.n do
        if type(made.k[i]) ~= "string" then
            unsupported("a namespace's attribute that is no str")
        end

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
_M.REFUSED = { lipsum = true, cycler = true, joiner = true, self = true, super = true }


return _M
