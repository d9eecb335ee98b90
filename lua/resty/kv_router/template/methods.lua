-- Copyright (C) the nginx-kv-router authors
--
-- Calls: of the methods of strings, dicts and lists, of macros and functions.
--
-- Named arguments are an array { name, value, name, value, ... }, or nil.


local attributes = require "resty.kv_router.template.attributes"
local fuel = require "resty.kv_router.template.fuel"
local operators = require "resty.kv_router.template.operators"
local string_methods = require "resty.kv_router.template.string_methods"
local value = require "resty.kv_router.template.value"

local attribute = attributes.attribute
local burn = fuel.burn
local getmetatable = getmetatable
local key_of = operators.key_of
local raise = value.raise
local select = select
local setmetatable = setmetatable
local type = type
local type_name = value.type_name
local unpack = unpack
local unsupported = value.unsupported


local DICT = value.DICT
local FUNCTION = value.FUNCTION
local LIST = value.LIST
local MACRO = value.MACRO
local METHOD = value.METHOD
local NONE = value.NONE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW

-- macros within each other; Python ends near 180
local CALLS = 150


local _M = {
    depth = 0,          -- macros that are running
}


-- ---- dicts ------------------------------------------------------------------

local of_dict = {}


-- The pairs of a dict: a table of tuples, and their number.
function _M.pairs(d)
    local made, k, v = {}, d.k, d.v

    burn(d.n)

    for i = 1, d.n do
        local key = k[i]

        made[i] = setmetatable({ key, v[key], n = 2 }, TUPLE)
    end

    return made, d.n
end


local function view(kind, made, n)
    made.n = n
    made.kind = kind

    return setmetatable(made, VIEW)
end


function of_dict.items(d)
    return view("items", _M.pairs(d))
end


function of_dict.keys(d)
    local made = {}

    burn(d.n)

    for i = 1, d.n do
        made[i] = d.k[i]
    end

    return view("keys", made, d.n)
end


function of_dict.values(d)
    local made = {}

    burn(d.n)

    for i = 1, d.n do
        made[i] = d.v[d.k[i]]
    end

    return view("values", made, d.n)
end


function of_dict.get(d, key, default)
    if key == nil then
        raise("get expected at least 1 argument, got 0")
    end

    local known = type(key) == "string" and key or key_of(key)
    local found

    if known ~= nil then
        found = d.v[known]
    end

    if found ~= nil then
        return found
    elseif default == nil then
        return NONE
    end

    return default
end


function of_dict.copy(d)
    local made = value.dict()

    burn(d.n)

    for i = 1, d.n do
        value.dset(made, d.k[i], d.v[d.k[i]])
    end

    return made
end


_M.copy = of_dict.copy


-- ---- lists and tuples -------------------------------------------------------

local of_list = {}


function of_list.copy(l)
    local made = { n = l.n }

    burn(l.n)

    for i = 1, l.n do
        made[i] = l[i]
    end

    return setmetatable(made, LIST)
end


-- Methods that change a value: the sandbox refuses them.
local CHANGES = {
    append = true, clear = true, pop = true, reverse = true, insert = true,
    sort = true, extend = true, remove = true, popitem = true,
    setdefault = true, update = true,
}

-- the most arguments of each method
local MOST = {
    items = 0, keys = 0, values = 0, get = 2, copy = 0, count = 3, strip = 1,
    lstrip = 1, rstrip = 1, startswith = 3, endswith = 3, removeprefix = 1,
    split = 2, splitlines = 1, replace = 3, upper = 0, lower = 0,
    capitalize = 0, title = 0, casefold = 0, isdigit = 0, isdecimal = 0,
    isnumeric = 0, isalpha = 0, isalnum = 0, isascii = 0, isspace = 0,
    isupper = 0, islower = 0, format = 60,
}

_M.MOST = MOST


-- Is it the name of a method of str or list that is not here?
function _M.missing(name)
    return (attributes.METHODS.str[name] or attributes.METHODS.list[name])
           and not MOST[name] and not CHANGES[name]
end


-- The arguments of a method, those that are named put in their places.
local function placed(name, named, ...)
    local places = string_methods.NAMES[name]
    local args, n = { ... }, select("#", ...)

    for i = 1, #named, 2 do
        local place

        for j = 1, places and #places or 0 do
            if places[j] == named[i] then
                place = j
            end
        end

        if not place or place <= n then
            raise(name .. "() with the argument " .. named[i])
        end

        args[place] = named[i + 1]
    end

    return args
end


local function call_method(object, name, named, ...)
    local kind = type(object) == "table" and getmetatable(object)
    local methods = string_methods

    if kind then
        methods = kind == DICT and of_dict or of_list

        if CHANGES[name] then
            raise("the sandbox refuses " .. name .. "()")
        end
    elseif name == "format" then
        return string_methods.formatted(object, named, ...)
    end

    local method = methods[name]

    if not method or not MOST[name] then
        unsupported("the method " .. name .. "()")
    elseif select("#", ...) > MOST[name] then
        raise(name .. "() takes fewer arguments")
    elseif named then
        local args = placed(name, named, ...)

        return method(object, args[1], args[2])
    end

    return method(object, ...)
end


-- ---- macros -----------------------------------------------------------------

-- A macro: params, the names of its parameters; wants: what beside them its
-- body reads: caller, varargs, kwargs; call(caller, varargs, kwargs, ...) gives
-- its text.
function _M.macro(name, params, wants, call)
    local places = {}

    for i = 1, #params do
        places[params[i]] = i
    end

    return setmetatable({ name = name, n = #params, places = places,
                          caller = wants.caller, varargs = wants.varargs,
                          kwargs = wants.kwargs, call = call }, MACRO)
end


-- Behind the macro's text: one of them less is running.
function _M.left(text)
    _M.depth = _M.depth - 1

    return text
end


function _M.enter()
    local depth = _M.depth + 1

    burn(1)
    _M.depth = depth

    if depth > CALLS then
        unsupported("macros within each other over " .. CALLS .. " levels")
    end
end


local function more_arguments(macro, n, ...)
    if not macro.varargs and n > macro.n then
        raise("macro " .. macro.name .. " takes not more than " .. macro.n
              .. " argument(s)")
    end

    local more = {}

    for i = macro.n + 1, n do
        more[#more + 1] = (select(i, ...))
    end

    more.n = #more

    return setmetatable(more, TUPLE)
end


local function call_macro(macro, named, caller, ...)
    local n = select("#", ...)
    local varargs

    if n > macro.n or macro.varargs then
        varargs = more_arguments(macro, n, ...)
    end

    local args = { ... }
    local kwargs = macro.kwargs and value.dict()

    for i = 1, named and #named or 0, 2 do
        local name = named[i]
        local place = macro.places[name]

        if place and place > n then
            args[place] = named[i + 1]
        elseif name == "caller" and not place then
            if not macro.caller and not kwargs then
                raise("macro " .. macro.name .. " takes no caller")
            elseif caller or not macro.caller then
                unsupported("a caller by name")
            end

            caller = named[i + 1]
        elseif kwargs then
            value.dset(kwargs, name, named[i + 1])
        else
            raise("macro " .. macro.name .. " takes no keyword argument "
                  .. name)
        end
    end

    if caller and macro.places.caller then
        unsupported("a parameter of the name caller")
    elseif caller and not macro.caller then
        if kwargs then
            unsupported("a caller among kwargs")
        end

        raise("macro " .. macro.name .. " takes no keyword argument caller")
    end

    return macro.call(caller, varargs, kwargs, unpack(args, 1, macro.n))
end


-- ---- calls ------------------------------------------------------------------

-- f(...); caller: the macro of a call block, or nil.
function _M.call(f, named, caller, ...)
    if type(f) == "table" then
        local kind = getmetatable(f)

        if kind == MACRO then
            return call_macro(f, named, caller, ...)
        elseif kind == METHOD or kind == FUNCTION then
            if caller then
                unsupported("a call block of " .. type_name(f))
            elseif kind == FUNCTION then
                return f.call(named, ...)
            end

            return call_method(f.object, f.name, named, ...)
        elseif f == UNDEFINED then
            raise("an undefined value is called")
        end
    end

    return raise("'" .. type_name(f) .. "' object is not callable")
end


-- object.name(...)
function _M.call_method(object, name, named, ...)
    local t = type(object)
    local kind = t == "table" and getmetatable(object)

    if t == "string" or kind == DICT or kind == LIST then
        local f = attribute(object, name)

        if type(f) == "table" and getmetatable(f) == METHOD
           and f.object == object
        then
            return call_method(object, name, named, ...)
        end

        return _M.call(f, named, nil, ...)
    end

    return _M.call(attribute(object, name), named, nil, ...)
end


-- f(*star, **stars), behind n arguments; named: as above.
function _M.call_spread(f, named, caller, star, stars, n, ...)
    local args = { ... }

    if star ~= nil then
        local elements, m = operators.sequence(star)

        burn(m)

        if n + m > 200 then
            unsupported("over 200 arguments")
        end

        for i = 1, m do
            args[n + i] = elements[i]
        end

        n = n + m
    end

    if stars ~= nil then
        if not value.is_dict(stars) then
            raise("an argument after ** must be a mapping")
        end

        local all, known = {}, {}

        for i = 1, named and #named or 0, 2 do
            all[i], all[i + 1] = named[i], named[i + 1]
            known[named[i]] = true
        end

        for i = 1, stars.n do
            local name = stars.k[i]

            if type(name) ~= "string" or known[name] then
                raise("keywords must be strings, each once")
            end

            all[#all + 1] = name
            all[#all + 1] = stars.v[name]
        end

        named = all
    end

    return _M.call(f, named, caller, unpack(args, 1, n))
end


return _M
