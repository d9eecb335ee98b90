-- Copyright (C) the nginx-kv-router authors
--
-- Tests, filters and calls of a template as Lua source; code.lua has the other
-- expressions.


local _C = require "resty.kv_router.template.code"
local filters = require "resty.kv_router.template.filters"
local lexer = require "resty.kv_router.template.lexer"
local methods = require "resty.kv_router.template.methods"
local tests = require "resty.kv_router.template.tests"

local concat = table.concat
local expressions = _C.expressions
local fail = lexer.fail
local field = _C.field
local format = string.format
local ipairs = ipairs
local quote = _C.quote
local refuse = lexer.refuse
local type = type
local unpack = unpack


-- arguments that one call may have
local ITEMS = 60


-- ---- tests ------------------------------------------------------------------

local function check_test(name, n, line)
    if not tests.named[name] then
        refuse("the test " .. name, line)
    elseif n ~= (tests.ARGUMENTS[name] or 0) then
        refuse(format("the test %s with %d argument(s)", name, n), line)
    end
end


function expressions.Test(self, node)
    local nodes = { node.of, unpack(node.args) }
    local name = node.name

    check_test(name, #node.args, node.line)

    local es = self:all(nodes)

    if name == "defined" then
        return format("(%s ~= UNDEFINED)", es[1]), "bool"
    elseif name == "undefined" then
        return format("(%s == UNDEFINED)", es[1]), "bool"
    elseif name == "none" then
        return format("(%s == NONE)", es[1]), "bool"
    elseif name == "string" and not self.markup then
        return format('(type(%s) == "string")', es[1]), "bool"
    end

    return format("%s(%s)", field("T", name), concat(es, ", ")), "bool"
end


-- ---- filters ----------------------------------------------------------------

-- filters that give a str, unless there is Markup
local TEXT = { capitalize = true, indent = true, join = true, lower = true,
               replace = true, title = true, trim = true, upper = true }


local function constant_name(node, what, line)
    if not node or node.t ~= "Const" or type(node.value) ~= "string" then
        refuse(what, line)
    end

    return node.value
end


-- Arguments in the places that a filter's names have: nodes with gaps, and how
-- many there are.
local function placed(node, names)
    local args, n = { unpack(node.args) }, #node.args

    if n > #names then
        refuse(format("%d arguments of the filter %s", n, node.name),
               node.line)
    end

    for _, named in ipairs(node.named) do
        local place

        for i, name in ipairs(names) do
            if name == named[1] then
                place = i
            end
        end

        if not place then
            refuse(format("the argument %s of the filter %s", named[1],
                          node.name), node.line)
        elseif args[place] then
            fail("an argument that is given twice", node.line)
        end

        args[place] = named[2]
        n = place > n and place or n
    end

    return args, n
end


-- f(of, ...) of nodes, with gaps.
function _C:filtered(f, of, args, n)
    local nodes, at = { of }, {}

    for i = 1, n do
        if args[i] then
            nodes[#nodes + 1] = args[i]
            at[i] = #nodes
        end
    end

    local es = self:all(nodes)
    local out = { es[1] }

    for i = 1, n do
        out[i + 1] = at[i] and es[at[i]] or "nil"
    end

    return format("%s(%s)", f, concat(out, ", "))
end


local special = {}


function special.map(self, node)
    local named = node.named[1]

    if named and #node.args + #node.named == 1 and named[1] == "attribute" then
        return self:filtered("R.map_attribute", node.of, { named[2] }, 1)
    end

    local name = constant_name(node.args[1], "map of an unknown filter",
                               node.line)

    if #node.args > 1 or named or not filters.ARGUMENTS[name] then
        refuse("map of the filter " .. name, node.line)
    end

    return self:filtered("R.map", node.of, node.args, 1)
end


local function selecting(wanted, by_attribute)
    return function(self, node)
        local args = node.args
        local first = by_attribute and 2 or 1

        if #node.named > 0 or (by_attribute and not args[1]) then
            refuse("these arguments of the filter " .. node.name, node.line)
        end

        local out = { { t = "Const", value = wanted } }

        out[2] = by_attribute and args[1] or nil

        if args[first] then
            local name = constant_name(args[first], node.name
                                       .. " with an unknown test", node.line)

            check_test(name, #args - first, node.line)
        end

        for i = first, #args do
            out[i - first + 3] = args[i]
        end

        return self:filtered("R.select", node.of, out,
                             #args >= first and #args - first + 3 or 2)
    end
end


special.select = selecting(true)
special.reject = selecting(false)
special.selectattr = selecting(true, true)
special.rejectattr = selecting(false, true)


function expressions.Filter(self, node)
    local name = node.name

    if special[name] then
        return special[name](self, node)
    end

    local names = filters.ARGUMENTS[name]

    if not names then
        refuse("the filter " .. name, node.line)
    end

    local args, n = placed(node, names)
    local made = self:filtered(field("F", name), node.of, args, n)

    if name == "tojson" or (TEXT[name] and not self.markup) then
        return made, "str"
    elseif name == "length" or name == "count" then
        return made, "int"
    end

    return made
end


-- ---- calls ------------------------------------------------------------------

-- caller: the Lua variable of a call block's macro, or "nil".
function _C:call(node, caller)
    local of = node.of
    local method = of.t == "Attr"

    if method and of.of.t == "Name" and of.of.name == "loop" and self:loop() then
        refuse(format("loop.%s()", of.name), node.line)
    elseif #node.args + #node.named > ITEMS then
        refuse(format("a call with over %d arguments", ITEMS), node.line)
    elseif method and methods.missing(of.name) then
        refuse(format("the method %s()", of.name), node.line)
    end

    method = method and caller == "nil"

    -- the callee, the arguments, those that are named, and *args
    local nodes, known = { method and of.of or of, unpack(node.args) }, {}
    local n = #nodes

    for _, named in ipairs(node.named) do
        if known[named[1]] then
            fail("an argument that is given twice", node.line)
        end

        known[named[1]] = true
        nodes[#nodes + 1] = named[2]
    end

    nodes[#nodes + 1] = node.star

    local es, named = self:all(nodes), "nil"
    local args = concat(es, ", ", 2, n)

    if #node.named > 0 then
        local out = {}

        for i, pair in ipairs(node.named) do
            out[i] = quote(pair[1]) .. ", " .. es[n + i]
        end

        named = "{ " .. concat(out, ", ") .. " }"
    end

    if node.star then
        args = args .. (n > 1 and ", " or "") .. "R.star(" .. es[#es] .. ")"
    end

    if args ~= "" then
        args = ", " .. args
    end

    if method then
        return format("R.call_method(%s, %s, %s%s)", es[1], quote(of.name),
                      named, args)
    end

    return format("R.call(%s, %s, %s%s)", es[1], named, caller, args)
end


function expressions.Call(self, node)
    return self:call(node, "nil")
end


return _C
