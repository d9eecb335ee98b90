-- Copyright (C) the nginx-kv-router authors
--
-- The values of chat templates, as Python has them.
--
--     Python      here
--     str         a string of UTF-8
--     int         a number, -2^53 < n < 2^53; beyond: BIG, its digits
--     bool        a boolean
--     None        value.NONE
--     undefined   value.UNDEFINED
--     float       a table with the metatable FLOAT: x
--     dict        a table with the metatable DICT: n keys in k[1 .. n], in
--                 order; v[key] is a key's value
--     list        a table with the metatable LIST: n elements in [1 .. n]
--     tuple       likewise, with the metatable TUPLE
--
-- and the objects that templates make: ranges, generators, views of a dict,
-- namespaces, macros, bound methods, functions, Markup.  nil is no value.
--
-- Two ways to fail must not be mixed up:
--
--     raise        the engine's template would fail, too: the engine answers
--                  4xx by itself
--     unsupported  what the engine would do is not known here: another rung
--                  must be asked
--
--     budget       it would take too long to find out
--
-- raise(), unsupported() and out_of_time() throw an error of such a kind;
-- caught() takes it apart behind pcall().


local error = error
local getmetatable = getmetatable
local setmetatable = setmetatable
local tostring = tostring
local type = type


local _M = {}


local DICT, LIST, FLOAT = {}, {}, {}

_M.DICT = DICT
_M.LIST = LIST
_M.TUPLE = {}
_M.FLOAT = FLOAT
_M.BIG = {}                 -- an integer: its digits in s
_M.RANGE = {}               -- like a list
_M.GENERATOR = {}           -- like a list, read once: used
_M.VIEW = {}                -- like a list: kind is keys, values or items
_M.NAMESPACE = {}           -- v[name] is an attribute's value
_M.MACRO = {}
_M.MARKUP = {}              -- a string: s
_M.METHOD = {}              -- a method: name, and of which value: object
_M.FUNCTION = {}            -- a function of the run time: call

_M.NONE = setmetatable({}, { __tostring = function() return "None" end })
_M.UNDEFINED = setmetatable({}, { __tostring = function()
    return "Undefined"
end })

-- the largest magnitude of an int that is a number
_M.MAX = 9007199254740991


-- ---- errors -----------------------------------------------------------------

local FAILURE = {
    __tostring = function(failure)
        return failure.kind .. ": " .. failure.message
    end,
}


function _M.raise(message)
    error(setmetatable({ kind = "raise", message = message }, FAILURE), 0)
end


function _M.unsupported(message)
    error(setmetatable({ kind = "unsupported", message = message }, FAILURE), 0)
end


function _M.out_of_time(message)
    error(setmetatable({ kind = "budget", message = message }, FAILURE), 0)
end


-- What pcall() caught: a sentence, and the kind.  What is no failure of the
-- above is an error of this program: unsupported.
function _M.caught(err)
    if getmetatable(err) == FAILURE then
        return err.message, err.kind
    end

    return "internal error: " .. tostring(err), "unsupported"
end


-- ---- constructors -----------------------------------------------------------

function _M.dict()
    return setmetatable({ k = {}, v = {}, n = 0 }, DICT)
end


-- Sets a key: a new key comes last, a known one keeps its place.
function _M.dset(d, key, val)
    if d.v[key] == nil then
        d.n = d.n + 1
        d.k[d.n] = key
    end

    d.v[key] = val
end


-- Sets all keys of another dict, in order.  Answers with the dict.
function _M.dset_all(d, from)
    for i = 1, from.n do
        _M.dset(d, from.k[i], from.v[from.k[i]])
    end

    return d
end


-- A dict of these names and values, in order; a value that is nil is none.
function _M.object(a, x, b, y, c, z, d, w)
    local made = _M.dict()
    local dset = _M.dset

    if x ~= nil then
        dset(made, a, x)
    end

    if y ~= nil then
        dset(made, b, y)
    end

    if z ~= nil then
        dset(made, c, z)
    end

    if w ~= nil then
        dset(made, d, w)
    end

    return made
end


-- A list of the n elements t[1 .. n], or of all of them; t becomes the list.
function _M.list(t, n)
    t.n = n or #t

    return setmetatable(t, LIST)
end


function _M.float(x)
    return setmetatable({ x = x }, FLOAT)
end


-- ---- what a value is --------------------------------------------------------

function _M.is_dict(x)
    return type(x) == "table" and getmetatable(x) == DICT
end


function _M.is_list(x)
    return type(x) == "table" and getmetatable(x) == LIST
end


-- The name of a value's Python type, for messages.
local NAMES = {
    [DICT] = "dict", [LIST] = "list", [_M.TUPLE] = "tuple", [FLOAT] = "float",
    [_M.BIG] = "int", [_M.RANGE] = "range", [_M.GENERATOR] = "generator",
    [_M.NAMESPACE] = "Namespace", [_M.MACRO] = "Macro",
    [_M.MARKUP] = "Markup", [_M.METHOD] = "method",
    [_M.FUNCTION] = "function", [_M.VIEW] = "view of a dict",
}
local PLAIN = { string = "str", number = "int", boolean = "bool" }

function _M.type_name(x)
    if x == _M.NONE then
        return "None"
    elseif x == _M.UNDEFINED then
        return "Undefined"
    end

    return PLAIN[type(x)] or NAMES[getmetatable(x)] or "object"
end


return _M
