-- Copyright (C) the nginx-kv-router authors
--
-- Which variable a name means, by Jinja's rules.  A scope (the template, the
-- body of a loop, of a macro, ...) has variables of its own for what is stored
-- in it; at its begin such a variable has a value by what comes first:
--
--     alias       that of the variable of an outer scope
--     undefined   none: it is stored before it is read
--     resolve     that of the request's variable
--     param       a loop's target, a parameter: set by the statement
--
-- A name that is only read means the nearest variable around it, or, without
-- one, the request's.


local ipairs = ipairs
local pairs = pairs
local setmetatable = setmetatable
local type = type


local _M = {}

local _S = {}
_S.__index = _S


-- A scope within another one, or without: the template's.
function _M.new(parent)
    return setmetatable({ parent = parent, begins = {}, stores = {},
                          variables = {} }, _S)
end


-- The scope that has a variable of this name, itself or around it.
function _S:owner(name)
    local scope = self

    while scope and not scope.begins[name] do
        scope = scope.parent
    end

    return scope
end


-- The Lua variable of a name, or nil: the request's.
function _S:variable(name)
    local scope = self:owner(name)

    return scope and scope.variables[name]
end


function _S:param(name)
    self.stores[name] = true
    self.begins[name] = "param"
end


function _S:load(name)
    if not self:owner(name) then
        self.begins[name] = "resolve"
    end
end


function _S:store(name)
    self.stores[name] = true

    if not self.begins[name] then
        self.begins[name] = self.parent and self.parent:owner(name) and "alias"
                            or "undefined"
    end
end


-- ---- what statements read and store -----------------------------------------

-- Nodes of an expression are read in the order of its fields; the order within
-- one expression makes no difference, as nothing is stored in it.
function _S:expression(node)
    if node.t == "Name" then
        self:load(node.name)
        return
    end

    for _, child in pairs(node) do
        if type(child) == "table" then
            self:expression(child)
        end
    end
end


function _S:target(node)
    if node.t == "Attribute" then
        self:load(node.of.name)
    else
        self:store(node.name)
    end
end


-- One branch of an if, on a copy.
function _S:branch(read)
    local copy = _M.new(self.parent)

    for name, begin in pairs(self.begins) do
        copy.begins[name] = begin
    end

    for name in pairs(self.stores) do
        copy.stores[name] = true
    end

    read(copy)

    return copy
end


-- What is stored in a branch only begins with what is around.
function _S:merge(branches)
    local stores = {}

    for _, branch in ipairs(branches) do
        for name in pairs(branch.stores) do
            stores[name] = not self.stores[name] or nil
        end
    end

    for _, branch in ipairs(branches) do
        for name, begin in pairs(branch.begins) do
            self.begins[name] = begin
        end

        for name in pairs(branch.stores) do
            self.stores[name] = true
        end
    end

    for name in pairs(stores) do
        self.begins[name] = self.parent and self.parent:owner(name) and "alias"
                            or "resolve"
    end
end


local readers = {}


function _S:statements(body)
    for _, node in ipairs(body) do
        local read = readers[node.t]

        if read then
            read(self, node)
        end
    end
end


function readers.Output(scope, node)
    for _, item in ipairs(node.items) do
        scope:expression(item)
    end
end


-- An if with elifs has three branches for Jinja: its body, all the elifs, each
-- an if of its own, and else.
readers.If = function(scope, node)
    scope:expression(node.arms[1][1])

    local body = scope:branch(function(copy)
        copy:statements(node.arms[1][2])
    end)
    local elifs = scope:branch(function(copy)
        for i = 2, #node.arms do
            readers.If(copy, { arms = { node.arms[i] } })
        end
    end)
    local other = scope:branch(function(copy)
        copy:statements(node.other or {})
    end)

    scope:merge({ body, elifs, other })
end


function readers.Set(scope, node)
    scope:expression(node.value)
    scope:target(node.target)
end


function readers.SetBlock(scope, node)
    scope:target(node.target)
end


function readers.Macro(scope, node)
    scope:store(node.name)
end


local function reader(field)
    return function(scope, node)
        scope:expression(node[field])
    end
end


readers.For = reader "iter"
readers.CallBlock = reader "call"
readers.FilterBlock = reader "filter"


-- Does an expression or a body read a name?
function _M.reads(node, name)
    if node.t == "Name" and node.name == name then
        return true
    end

    for _, child in pairs(node) do
        if type(child) == "table" and _M.reads(child, name) then
            return true
        end
    end

    return false
end


return _M
