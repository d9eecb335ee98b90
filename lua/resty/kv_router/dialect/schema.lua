-- Copyright (C) the nginx-kv-router authors
--
-- JSON Schemas of tools, as SGLang checks them: it refuses a schema that
-- draft 2020-12 does not allow, and writes some names of types otherwise.  A
-- schema is understood here if each keyword of the draft has a plain value; a
-- keyword that the draft does not have can have any.


local value = require "resty.kv_router.template.value"

local find = string.find
local format = string.format
local getmetatable = getmetatable
local is_dict = value.is_dict
local is_list = value.is_list
local plain = require "resty.kv_router.dialect.pattern".plain
local type = type
local unsupported = value.unsupported

local FLOAT = value.FLOAT


local _M = {}


local TYPES = { string = true, number = true, integer = true, object = true,
                array = true, boolean = true, null = true }

local schema


local function any()
    return true
end


local function text(x)
    return type(x) == "string"
end


local function boolean(x)
    return type(x) == "boolean"
end


local function number(x)
    return type(x) == "number" or getmetatable(x) == FLOAT
end


local function count(x)
    return type(x) == "number" and x >= 0
end


-- Texts of which none comes twice.
local function names(x)
    if not is_list(x) then
        return false
    end

    local seen = {}

    for i = 1, x.n do
        if type(x[i]) ~= "string" or seen[x[i]] then
            return false
        end

        seen[x[i]] = true
    end

    return true
end


local function types(x)
    if type(x) == "string" then
        return TYPES[x]
    elseif not names(x) or x.n == 0 then
        return false
    end

    for i = 1, x.n do
        if not TYPES[x[i]] then
            return false
        end
    end

    return true
end


local function schemas(x)
    if not is_list(x) or x.n == 0 then
        return false
    end

    for i = 1, x.n do
        schema(x[i])
    end

    return true
end


local function members(x)
    if not is_dict(x) then
        return false
    end

    for i = 1, x.n do
        schema(x.v[x.k[i]])
    end

    return true
end


local function reference(x)
    return type(x) == "string" and not find(x, "[^%w_#/$.-]")
end


local function sub_schema(x)
    schema(x)

    return true
end


local KEYWORDS = {
    type = types, properties = members, required = names, items = sub_schema,
    additionalProperties = sub_schema, description = text, title = text,
    default = any, enum = is_list, const = any, examples = is_list,
    anyOf = schemas, oneOf = schemas, allOf = schemas, ["not"] = sub_schema,
    ["$defs"] = members, definitions = members, ["$ref"] = reference,
    minimum = number, maximum = number, exclusiveMinimum = number,
    exclusiveMaximum = number, minLength = count, maxLength = count,
    minItems = count, maxItems = count, minProperties = count,
    maxProperties = count, uniqueItems = boolean, format = text,
    pattern = plain, deprecated = boolean, readOnly = boolean,
    writeOnly = boolean,
    propertyNames = sub_schema, contains = sub_schema, ["if"] = sub_schema,
    ["then"] = sub_schema, ["else"] = sub_schema, prefixItems = schemas,
    dependentSchemas = members, ["$comment"] = text,
    contentEncoding = text, contentMediaType = text,
    unevaluatedItems = sub_schema, unevaluatedProperties = sub_schema,
    patternProperties = function(x)
        if not members(x) then
            return false
        end

        for i = 1, x.n do
            if not plain(x.k[i]) then
                return false
            end
        end

        return true
    end,
    ["$schema"] = function(x)
        return x == "http://json-schema.org/draft-07/schema#"
               or x == "https://json-schema.org/draft/2020-12/schema"
    end,
}

-- the draft's other keywords
for name in ([[
    $id $anchor $dynamicRef $dynamicAnchor $vocabulary multipleOf maxContains
    minContains dependentRequired contentSchema dependencies $recursiveAnchor
    $recursiveRef
]]):gmatch "%S+" do
    KEYWORDS[name] = function()
        return false
    end
end


function schema(x)
    if type(x) == "boolean" then
        return
    elseif not is_dict(x) then
        unsupported "a schema that is no object"
    end

    for i = 1, x.n do
        local name = x.k[i]
        local test = KEYWORDS[name]

        if test and not test(x.v[name]) then
            unsupported(format("%q of a tool's schema", name))
        end
    end
end


-- Fails unless SGLang takes the parameters of a tool as they are; nil: none.
function _M.check(parameters)
    if parameters ~= nil then
        schema(parameters)
    end
end


return _M
