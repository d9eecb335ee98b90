-- Copyright (C) the nginx-kv-router authors
--
-- Jinja's tests, behind "is": functions of the value and of the test's
-- arguments.  An undefined value is iterable and a sequence, as Jinja's class of
-- that name is.


local operators = require "resty.kv_router.template.operators"
local value = require "resty.kv_router.template.value"

local contains = operators.contains
local eq = operators.eq
local getmetatable = getmetatable
local le = operators.le
local lt = operators.lt
local mod = operators.mod
local type = type


local BIG = value.BIG
local DICT = value.DICT
local FLOAT = value.FLOAT
local GENERATOR = value.GENERATOR
local LIST = value.LIST
local MARKUP = value.MARKUP
local NONE = value.NONE
local RANGE = value.RANGE
local TUPLE = value.TUPLE
local UNDEFINED = value.UNDEFINED
local VIEW = value.VIEW


local _M = {}
local _T = {}

_M.named = _T       -- the tests by their names

-- how many arguments each test takes beside its value
_M.ARGUMENTS = {
    eq = 1, equalto = 1, ne = 1, lt = 1, le = 1, gt = 1, ge = 1, ["in"] = 1,
}


local function kind_of(x)
    return type(x) == "table" and getmetatable(x)
end


function _T.defined(x)
    return x ~= UNDEFINED
end


function _T.undefined(x)
    return x == UNDEFINED
end


function _T.none(x)
    return x == NONE
end


function _T.string(x)
    return type(x) == "string" or kind_of(x) == MARKUP
end


function _T.mapping(x)
    return kind_of(x) == DICT
end


function _T.boolean(x)
    return type(x) == "boolean"
end


_T["true"] = function(x)
    return x == true
end


_T["false"] = function(x)
    return x == false
end


function _T.integer(x)
    return type(x) == "number" or kind_of(x) == BIG
end


function _T.float(x)
    return kind_of(x) == FLOAT
end


-- a bool is an int
function _T.number(x)
    local kind = kind_of(x)

    return type(x) == "number" or type(x) == "boolean" or kind == FLOAT
           or kind == BIG
end


local SEQUENCES = { [LIST] = true, [DICT] = true, [TUPLE] = true,
                    [RANGE] = true, [MARKUP] = true }
local ITERABLES = { [GENERATOR] = true, [VIEW] = true }


function _T.sequence(x)
    return type(x) == "string" or x == UNDEFINED
           or SEQUENCES[kind_of(x)] or false
end


function _T.iterable(x)
    return _T.sequence(x) or ITERABLES[kind_of(x)] or false
end


function _T.eq(a, b)
    return eq(a, b)
end


function _T.ne(a, b)
    return not eq(a, b)
end


function _T.gt(a, b)
    return lt(b, a)
end


function _T.ge(a, b)
    return le(b, a)
end


_T.lt = lt
_T.le = le
_T["in"] = contains
_T.equalto = _T.eq


function _T.odd(x)
    return eq(mod(x, 2), 1)
end


function _T.even(x)
    return eq(mod(x, 2), 0)
end


return _M
