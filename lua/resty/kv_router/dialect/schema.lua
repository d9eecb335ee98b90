-- Copyright (C) the nginx-kv-router authors
--
-- JSON Schemas of tools for SGLang, which writes some names of types otherwise:
-- a schema with other types than those of the draft 2020-12 is unsupported.


local value = require "resty.kv_router.template.value"

local is_dict = value.is_dict
local is_list = value.is_list
local type = type
local unsupported = value.unsupported


local _M = {}


local TYPES = { string = true, number = true, integer = true, object = true,
                array = true, boolean = true, null = true }


-- Fails unless each type in a value is one of the draft's.
local function check(x, of_type)
    if type(x) == "string" and of_type and not TYPES[x] then
        unsupported '"type" of a tool\'s schema'

    elseif is_list(x) then
        for i = 1, x.n do
            check(x[i], of_type)
        end

    elseif is_dict(x) then
        for i = 1, x.n do
            check(x.v[x.k[i]], x.k[i] == "type")
        end
    end
end


-- Fails unless SGLang shows the parameters of a tool as they are; nil: none.
function _M.check(parameters)
    check(parameters, false)
end


return _M
