-- Copyright (C) the nginx-kv-router authors
--
-- Calls: of the methods of strings, dicts and lists, of macros and functions.
--
-- Named arguments are an array { name, value, name, value, ... }, or nil.  A
-- method takes none.


local attributes = require "resty.kv_router.template.attributes"
local case = require "resty.kv_router.template.case"
local fuel = require "resty.kv_router.template.fuel"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local strings = require "resty.kv_router.template.strings"
local value = require "resty.kv_router.template.value"

local attribute = attributes.attribute
local burn = fuel.burn
local bytes = fuel.bytes
local find = string.find
local getmetatable = getmetatable
local gsub = string.gsub
local huge = math.huge
local key_of = operators.key_of
local lower = string.lower
local number = operators.number
local raise = value.raise
local select = select
local setmetatable = setmetatable
local str = printer.str
local sub = string.sub
local type = type
local type_name = value.type_name
local unpack = unpack
local unsupported = value.unsupported
local upper = string.upper


local DICT = value.DICT
local FUNCTION = value.FUNCTION
local LIST = value.LIST
local MACRO = value.MACRO
local MARKUP = value.MARKUP
local METHOD = value.METHOD
local NONE = value.NONE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW

-- macros within each other; Python ends near 180
local CALLS = 150

-- the most arguments that *args may give
local SPREAD = 200


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


-- ---- strings ----------------------------------------------------------------

local of_string = {}


-- A string, which a method needs.
local function text(x, method)
    if type(x) ~= "string" then
        local fail = getmetatable(x) == MARKUP and unsupported or raise

        fail(method .. "(): a str is wanted, not "
              .. (x == nil and "nothing" or type_name(x)))
    end

    return x
end


local function stripper(name, left, right)
    of_string[name] = function(s, characters)
        if characters == NONE then
            characters = nil
        end

        return strings.strip(s, characters and text(characters, name), left,
                             right)
    end
end


stripper("strip", true, true)
stripper("lstrip", true, false)
stripper("rstrip", false, true)


local function affix(name, test)
    of_string[name] = function(s, part)
        bytes(#s)

        if type(part) == "table" and getmetatable(part) == TUPLE then
            for i = 1, part.n do
                if test(s, text(part[i], name)) then
                    return true
                end
            end

            return false
        end

        return test(s, text(part, name))
    end
end


affix("startswith", function(s, part) return sub(s, 1, #part) == part end)
affix("endswith", function(s, part)
    return part == "" or sub(s, -#part) == part
end)


function of_string.split(s, separator, most)
    if separator == NONE then
        separator = nil
    end

    local max, as_float = number(most == nil and -1 or most)

    if not max or as_float then
        raise("split(): an int is wanted, not " .. type_name(most))
    end

    return strings.split(s, separator and text(separator, "split"),
                         max < 0 and huge or max)
end


function of_string.replace(s, part, by)
    return strings.replace(s, text(part, "replace"), text(by, "replace"))
end


of_string.splitlines = strings.lines
of_string.upper = case.upper
of_string.lower = case.lower
of_string.capitalize = case.capitalize


function of_string.title(s)
    burn(#s / 32)

    return (gsub(case.ascii(s, "title"), "%a+", function(word)
        return upper(sub(word, 1, 1)) .. lower(sub(word, 2))
    end))
end


local function all_of(name, other)
    of_string[name] = function(s)
        burn(#s / 32)

        return case.ascii(s, name) ~= "" and not find(s, other)
    end
end


all_of("isdigit", "%D")
all_of("isalpha", "%A")
all_of("isalnum", "%W")


-- Of its fields only "{}", the next argument.
function of_string.format(s, ...)
    local parts, out = strings.split(s, "{}", huge), {}
    local n = parts.n

    for i = 1, n do
        if find(parts[i], "[{}]") then
            unsupported("this format string")
        elseif i > 1 and i - 1 > select("#", ...) then
            raise("Replacement index out of range")
        end

        out[2 * i - 2] = i > 1 and str((select(i - 1, ...))) or nil
        out[2 * i - 1] = parts[i]
    end

    return strings.join(out, 2 * n - 1)
end


-- ---- methods ----------------------------------------------------------------

-- Methods that change a value: the sandbox refuses them.
local CHANGES = {
    append = true, clear = true, pop = true, reverse = true, insert = true,
    sort = true, extend = true, remove = true, popitem = true,
    setdefault = true, update = true,
}

-- the most arguments of each method
local MOST = {
    items = 0, keys = 0, values = 0, get = 2, strip = 1, lstrip = 1,
    rstrip = 1, startswith = 1, endswith = 1, split = 2, splitlines = 0,
    replace = 2, upper = 0, lower = 0, capitalize = 0, title = 0, isdigit = 0,
    isalpha = 0, isalnum = 0, format = SPREAD,
}

_M.MOST = MOST


-- Is it the name of a method of str or list that is not here?
function _M.missing(name)
    return (attributes.METHODS.str[name] or attributes.METHODS.list[name])
           and not MOST[name] and not CHANGES[name]
end


local function call_method(object, name, named, ...)
    local kind = type(object) == "table" and getmetatable(object)
    local method

    if kind and CHANGES[name] then
        raise("the sandbox refuses " .. name .. "()")
    elseif kind == DICT then
        method = of_dict[name]
    elseif not kind then
        method = of_string[name]
    end

    if not method or named or select("#", ...) > MOST[name] then
        unsupported("the method " .. name .. "() with these arguments")
    end

    return method(object, ...)
end


-- ---- macros -----------------------------------------------------------------

-- A macro: params, the names of its parameters; wants_caller: its body reads
-- caller; call(caller, ...) gives its text.
function _M.macro(name, params, wants_caller, call)
    local places = {}

    for i = 1, #params do
        places[params[i]] = i
    end

    return setmetatable({ name = name, n = #params, places = places,
                          caller = wants_caller, call = call }, MACRO)
end


-- Behind the macro's text: one of them less is running.
function _M.left(made)
    _M.depth = _M.depth - 1

    return made
end


function _M.enter()
    local depth = _M.depth + 1

    burn(1)
    _M.depth = depth

    if depth > CALLS then
        unsupported("macros within each other over " .. CALLS .. " levels")
    end
end


local function call_macro(macro, named, caller, ...)
    local n = select("#", ...)
    local args = { ... }

    if n > macro.n then
        raise("macro " .. macro.name .. " takes not more than " .. macro.n
              .. " argument(s)")
    end

    for i = 1, named and #named or 0, 2 do
        local place = macro.places[named[i]]

        if place and place > n then
            args[place] = named[i + 1]
        elseif named[i] == "caller" and macro.caller then
            unsupported("a caller by name")
        else
            raise("macro " .. macro.name .. " takes no keyword argument "
                  .. named[i])
        end
    end

    if caller and not macro.caller then
        raise("macro " .. macro.name .. " takes no keyword argument caller")
    end

    return macro.call(caller, unpack(args, 1, macro.n))
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


-- The values of *args.
function _M.star(x)
    local elements, n = operators.sequence(x)

    burn(n)

    if n > SPREAD then
        unsupported("over " .. SPREAD .. " arguments")
    end

    return unpack(elements, 1, n)
end


return _M
