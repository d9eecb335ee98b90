-- Copyright (C) the nginx-kv-router authors
--
-- What the code of a template calls: see code.lua and generator.lua.


local attributes = require "resty.kv_router.template.attributes"
local filters = require "resty.kv_router.template.filters"
local fuel = require "resty.kv_router.template.fuel"
local methods = require "resty.kv_router.template.methods"
local operators = require "resty.kv_router.template.operators"
local printer = require "resty.kv_router.template.printer"
local strings = require "resty.kv_router.template.strings"
local tests = require "resty.kv_router.template.tests"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local append = text_ffi.append
local bytes = fuel.bytes
local format = string.format
local tonumber = tonumber
local type = type
local unsupported = value.unsupported

local UNDEFINED = value.UNDEFINED


local _M = {
    F = filters.named,
    T = tests.named,
    NONE = value.NONE,
    UNDEFINED = UNDEFINED,
    add = operators.add,
    attribute = attributes.attribute,
    burn = fuel.burn,
    call = methods.call,
    call_method = methods.call_method,
    contains = operators.contains,
    dict = operators.dict,
    enter = methods.enter,
    eq = operators.eq,
    float = value.float,
    fuel = fuel,
    item = attributes.item,
    join = strings.join,
    le = operators.le,
    left = methods.left,
    list = operators.list,
    lt = operators.lt,
    macro = methods.macro,
    map = filters.map,
    map_attribute = filters.map_attribute,
    mod = operators.mod,
    mul = operators.mul,
    neg = operators.neg,
    refill = fuel.refill,
    select = filters.select,
    sequence = operators.sequence,
    set = attributes.set,
    slice = attributes.slice,
    spend = fuel.string,
    spread = operators.spread,
    star = methods.star,
    str = printer.str,
    sub = operators.sub,
    truth = operators.truth,
    tuple = operators.tuple,
    type = type,
}


-- Element i of n, or undefined.
function _M.element(elements, i, n)
    if i < 1 or i > n then
        return UNDEFINED
    end

    return elements[i]
end


-- Puts the n pieces out, into a kvr_text_t; 0 of them are left.
function _M.flush(text, pieces, n)
    local before = tonumber(text.len)

    for i = 1, n do
        if not append(text, pieces[i]) then
            unsupported(format("the text is over its bound of %.0f bytes",
                               tonumber(text.bound)))
        end
    end

    bytes(tonumber(text.len) - before)

    return 0
end


return _M
