-- Copyright (C) the nginx-kv-router authors
--
-- Operators on values, as Python and Jinja have them: truth, arithmetic,
-- comparisons, and what a loop walks over.


local fuel = require "resty.kv_router.template.fuel"
local strings = require "resty.kv_router.template.strings"
local value = require "resty.kv_router.template.value"

local burn = fuel.burn
local by_parts = strings.by_parts
local bytes = fuel.bytes
local characters = strings.characters
local find = strings.find
local fmod = math.fmod
local format = string.format
local getmetatable = getmetatable
local gsub = string.gsub
local raise = value.raise
local rep = string.rep
local select = select
local setmetatable = setmetatable
local spend = fuel.string
local type = type
local type_name = value.type_name
local unpack = unpack
local unsupported = value.unsupported


local BIG = value.BIG
local DICT = value.DICT
local FLOAT = value.FLOAT
local FUNCTION = value.FUNCTION
local GENERATOR = value.GENERATOR
local LIST = value.LIST
local MACRO = value.MACRO
local MARKUP = value.MARKUP
local MAX = value.MAX
local METHOD = value.METHOD
local NAMESPACE = value.NAMESPACE
local NONE = value.NONE
local RANGE = value.RANGE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW

-- values within each other
local DEPTH = 100


local _M = {}


-- ---- truth ------------------------------------------------------------------

function _M.truth(x)
    local t = type(x)

    if t == "boolean" then
        return x
    elseif t == "string" then
        return x ~= ""
    elseif t == "number" then
        return x ~= 0
    elseif x == NONE or x == UNDEFINED then
        return false
    end

    local kind = getmetatable(x)

    if kind == FLOAT then
        return x.x ~= 0
    elseif kind == MARKUP then
        return x.s ~= ""
    elseif kind == GENERATOR then
        return true
    end

    return x.n ~= 0
end


-- ---- Markup -----------------------------------------------------------------

local HTML = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
               ['"'] = "&#34;", ["'"] = "&#39;" }

local function escaped_part(s)
    return (gsub(s, "[&<>\"']", HTML))
end


local function escape(s)
    spend(2 * #s)

    return by_parts(s, escaped_part)
end


function _M.markup(s)
    return setmetatable({ s = s }, MARKUP)
end


local markup = _M.markup


-- ---- numbers ----------------------------------------------------------------

-- A number as Lua has it, and whether it is a float; nil: it is none.
local function number(x)
    local t = type(x)

    if t == "number" then
        return x, false
    elseif t == "boolean" then
        return x and 1 or 0, false
    elseif t == "table" then
        local kind = getmetatable(x)

        if kind == FLOAT then
            return x.x, true
        elseif kind == BIG then
            unsupported("arithmetic with an integer beyond 2^53")
        end
    end
end


_M.number = number


-- What an operation on numbers gives.
local function result(x, as_float)
    if as_float then
        return setmetatable({ x = x }, FLOAT)
    end

    if x > MAX or x < -MAX then
        unsupported("an integer beyond 2^53")
    end

    return x + 0                    -- no -0
end


_M.result = result


local function mismatch(op, a, b)
    if a == UNDEFINED or b == UNDEFINED then
        raise("an undefined value in " .. op)
    end

    return raise(format("unsupported operand types for %s: '%s' and '%s'", op,
                        type_name(a), type_name(b)))
end


local function joined(a, b, kind)
    local made, n = {}, a.n

    burn(n + b.n)

    for i = 1, n do
        made[i] = a[i]
    end

    for i = 1, b.n do
        made[n + i] = b[i]
    end

    made.n = n + b.n

    return setmetatable(made, kind)
end


function _M.add(a, b)
    local ta, tb = type(a), type(b)

    if ta == "string" and tb == "string" then
        spend(#a + #b)
        return a .. b
    end

    local ka = ta == "table" and getmetatable(a)
    local kb = tb == "table" and getmetatable(b)

    if ka == MARKUP and (tb == "string" or kb == MARKUP) then
        local other = kb == MARKUP and b.s or escape(b)

        spend(#a.s + #other)
        return markup(a.s .. other)

    elseif kb == MARKUP and ta == "string" then
        local other = escape(a)

        spend(#other + #b.s)
        return markup(other .. b.s)

    elseif (ka == LIST or ka == TUPLE) and ka == kb then
        return joined(a, b, ka)
    end

    local x, as_float = number(a)
    local y, too = number(b)

    if x and y then
        return result(x + y, as_float or too)
    end

    return mismatch("+", a, b)
end


function _M.sub(a, b)
    local x, as_float = number(a)
    local y, too = number(b)

    if x and y then
        return result(x - y, as_float or too)
    end

    return mismatch("-", a, b)
end


local function repeated(s, n)
    if type(s) ~= "string" then
        unsupported("a product of " .. type_name(s))
    elseif n <= 0 then
        return ""
    end

    spend(#s * n)

    return rep(s, n)
end


function _M.mul(a, b)
    local x, as_float = number(a)
    local y, too = number(b)

    if x and y then
        return result(x * y, as_float or too)
    elseif x and not as_float then
        return repeated(b, x)
    elseif y and not too then
        return repeated(a, y)
    end

    return mismatch("*", a, b)
end


function _M.mod(a, b)
    if type(a) == "string" or getmetatable(a) == MARKUP then
        unsupported("% of a str")
    end

    local x, as_float = number(a)
    local y, too = number(b)

    if not x or not y then
        mismatch("%", a, b)
    elseif y == 0 then
        raise("division by zero")
    elseif as_float or too then
        unsupported("% of a float")
    end

    local m = fmod(x, y)

    -- a remainder has the sign of the divisor
    return result(m ~= 0 and (y < 0) ~= (m < 0) and m + y or m, false)
end


function _M.neg(a)
    local x, as_float = number(a)

    if not x then
        mismatch("-", a, a)
    end

    return result(-x, as_float)
end


-- ---- comparisons ------------------------------------------------------------

local eq


-- Of dicts the values by their keys, else the elements.
local function parts_eq(a, b, level, keys)
    if a.n ~= b.n then
        return false
    end

    for i = 1, a.n do
        local x, y = a[i], b[i]

        if keys then
            x, y = a.v[keys[i]], b.v[keys[i]]
        end

        if y == nil or not eq(x, y, level) then
            return false
        end
    end

    return true
end


local function tables_eq(a, b, level)
    local ka = type(a) == "table" and getmetatable(a)
    local kb = type(b) == "table" and getmetatable(b)

    if ka == MARKUP or kb == MARKUP then
        return eq(ka == MARKUP and a.s or a, kb == MARKUP and b.s or b, level)

    elseif ka == BIG and kb == BIG then
        return a.s == b.s

    elseif ka == FLOAT or kb == FLOAT then
        if ka == BIG or kb == BIG then
            unsupported("a comparison with an integer beyond 2^53")
        end

        local x, y = number(a), number(b)

        return x ~= nil and x == y

    elseif ka ~= kb or not ka then
        return false
    end

    level = (level or 0) + 1

    if level > DEPTH then
        unsupported(format("values nested over %d levels", DEPTH))
    end

    if ka == LIST or ka == TUPLE or ka == RANGE or ka == DICT then
        return parts_eq(a, b, level, a.k)
    elseif ka == VIEW or ka == METHOD then
        unsupported("a comparison of two objects")
    end

    return false
end


-- a == b; level: how deep in other values.
function eq(a, b, level)
    local ta, tb = type(a), type(b)

    burn(1)

    if a == b then
        return ta ~= "table" or getmetatable(a) ~= FLOAT or a.x == a.x
    elseif ta == "table" or tb == "table" then
        if a == NONE or b == NONE or a == UNDEFINED or b == UNDEFINED then
            return false
        end

        return tables_eq(a, b, level)
    elseif ta == "boolean" then
        return (a and 1 or 0) == b
    elseif tb == "boolean" then
        return (b and 1 or 0) == a
    end

    return false
end


_M.eq = eq


local function no_order(op, a, b)
    local ka = type(a) == "table" and getmetatable(a)
    local kb = type(b) == "table" and getmetatable(b)

    if ka == MARKUP or kb == MARKUP
       or (ka == kb and (ka == LIST or ka == TUPLE or ka == VIEW))
    then
        unsupported("the order of " .. type_name(a))
    end

    return mismatch(op, a, b)
end


-- a < b or a <= b; before: of numbers and strings.
local function order(op, before)
    return function(a, b)
        if type(a) == "string" and type(b) == "string" then
            bytes(#a)
            return before(a, b)
        end

        local x, y = number(a), number(b)

        if x and y then
            return before(x, y)
        end

        return no_order(op, a, b)
    end
end


_M.lt = order("<", function(a, b) return a < b end)
_M.le = order("<=", function(a, b) return a <= b end)


-- ---- what is walked over ----------------------------------------------------

-- A table and the number of its elements; of a string its characters.
local function sequence(x)
    local t = type(x)

    if t == "table" then
        local kind = getmetatable(x)

        if kind == LIST or kind == TUPLE or kind == RANGE or kind == VIEW then
            return x, x.n
        elseif kind == DICT then
            return x.k, x.n
        elseif kind == GENERATOR then
            local n = x.used and 0 or x.n

            x.used = true
            return x, n
        elseif x == UNDEFINED then
            return x, 0
        elseif kind == MARKUP then
            unsupported("a loop over Markup")
        end

    elseif t == "string" then
        return characters(x)
    end

    return raise("'" .. type_name(x) .. "' object is not iterable")
end


_M.sequence = sequence


-- The n elements of a value, for "a, b = value".
function _M.spread(x, n)
    local elements, m = sequence(x)

    if m ~= n then
        raise(format("%d values to unpack, expected %d", m, n))
    end

    return unpack(elements, 1, n)
end


-- The key by which a dict has a value: None, ints and floats that are equal
-- are one key.  nil: no dict has it.
local function key_of(x)
    local t = type(x)

    if t == "string" or t == "number" then
        return x
    elseif t == "boolean" then
        unsupported("a key of bool")
    elseif x == NONE then
        return x
    end

    local kind = getmetatable(x)

    if kind == MARKUP then
        return x.s
    elseif kind == FLOAT then
        return x.x == x.x and x.x or nil
    elseif kind == LIST or kind == DICT then
        raise("unhashable type: '" .. type_name(x) .. "'")
    elseif kind == TUPLE or kind == BIG then
        unsupported("a key of " .. type_name(x))
    end
end


_M.key_of = key_of


local NO_CONTAINER = { [NAMESPACE] = true, [MACRO] = true, [METHOD] = true,
                       [FUNCTION] = true, [FLOAT] = true, [BIG] = true }

-- a in b
function _M.contains(a, b)
    local t = type(b)
    local kind = t == "table" and getmetatable(b)

    if t == "string" or kind == MARKUP then
        local part = type(a) == "table" and getmetatable(a) == MARKUP and a.s
                     or a

        if type(part) ~= "string" then
            raise("'in <string>' requires string as left operand, not "
                  .. type_name(a))
        end

        return find(kind and b.s or b, part) ~= nil

    elseif kind == DICT then
        local key = key_of(a)

        return key ~= nil and b.v[key] ~= nil

    elseif t ~= "table" or NO_CONTAINER[kind] or b == NONE then
        raise("argument of type '" .. type_name(b) .. "' is not iterable")
    end

    local elements, n = sequence(b)

    for i = 1, n do
        if eq(elements[i], a) then
            return true
        end
    end

    return false
end


-- ---- values that templates write --------------------------------------------

function _M.list(n, ...)
    return setmetatable({ n = n, ... }, LIST)
end


function _M.tuple(n, ...)
    return setmetatable({ n = n, ... }, TUPLE)
end


function _M.dict(n, ...)
    local made = value.dict()

    for i = 1, 2 * n, 2 do
        local key, val = select(i, ...)
        local known = key_of(key)

        if known == nil or (type(key) == "table" and key ~= NONE) then
            unsupported("a key of " .. type_name(key))
        end

        value.dset(made, known, val)
    end

    return made
end



return _M
