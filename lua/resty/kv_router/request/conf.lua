-- Copyright (C) the nginx-kv-router authors
--
-- Checks the tables of settings that people write.


local among = require "resty.kv_router.request.suggest".among
local concat = table.concat
local ipairs = ipairs
local pairs = pairs
local setmetatable = setmetatable
local tostring = tostring
local type = type


local _M = {}


-- Bound of every number, so that no formula of them overflows.
local HUGE = 1e9


-- "a", "b" or "c"
local function listed(words)
    local n = #words

    return '"' .. concat(words, '", "', 1, n - 1) .. '" or "' .. words[n] .. '"'
end


local function is_one(given, words)
    for _, word in ipairs(words) do
        if given == word then
            return true
        end
    end

    return false
end


-- The value of one setting, or nil and what is wrong with it.
local function value(name, given, spec)
    if spec.type and type(given) ~= spec.type then
        return nil, 'the value of "' .. name .. '" must be a ' .. spec.type
                    .. ", not " .. type(given)
    end

    if spec.words and not is_one(given, spec.words) then
        return nil, '"' .. name .. '" must be ' .. listed(spec.words)
                    .. ', not "' .. given .. '"'
    end

    if spec.type ~= "number" then
        return given
    end

    local min, max = spec.min or 0, spec.max or HUGE

    -- so written, it refuses NaN
    if not (given >= min and given <= max) then
        return nil, 'the value of "' .. name .. '" must be from ' .. min
                    .. " to " .. max .. ", not " .. tostring(given)
    end

    if spec.integer and given % 1 ~= 0 then
        return nil, 'the value of "' .. name .. '" must be a whole number'
    end

    return given
end


local function unknown(name, specs)
    local names = {}

    for known, spec in pairs(specs) do
        if not spec.gone then
            names[#names + 1] = known
        end
    end

    return 'unknown setting "' .. tostring(name) .. '"'
           .. among(tostring(name), names)
end


-- Returns a table with every setting of specs: those given, and from base (a
-- table of complete settings) or spec.default the others.  nil and a sentence
-- when a setting is unknown, of the wrong type or out of range.
--
-- specs: name -> { type = "number" | "boolean" | "string" | ... (any), default,
-- for numbers min (0), max (1e9), integer (false), and for strings words, a list
-- of those that can be given }; or { gone = what takes its place }
function _M.check(given, specs, base)
    if given ~= nil and type(given) ~= "table" then
        return nil, "a table is expected, not " .. type(given)
    end

    local conf = {}

    for name, spec in pairs(specs) do
        if base then
            conf[name] = base[name]
        else
            conf[name] = spec.default
        end
    end

    for name, v in pairs(given or {}) do
        local spec = specs[name]

        if not spec then
            return nil, unknown(name, specs)
        end

        if spec.gone then
            return nil, 'the setting "' .. name .. '" was removed: ' .. spec.gone
        end

        local checked, err = value(name, v, spec)
        if err then
            return nil, err
        end

        conf[name] = checked
    end

    return conf
end


-- The function new() of a policy that keeps nothing but its settings: self.conf,
-- those of specs.
function _M.maker(specs, mt)
    return function(given)
        local conf, err = _M.check(given, specs)
        if not conf then
            return nil, err
        end

        return setmetatable({ conf = conf }, mt)
    end
end


return _M
