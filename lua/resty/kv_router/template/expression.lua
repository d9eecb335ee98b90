-- Copyright (C) the nginx-kv-router authors
--
-- The expressions of a parser: tokens as a tree, by Jinja's grammar, with its
-- precedences and its quirks (a name behind a test is the test's argument, but
-- for else, or, and).  parser.lua has the statements.
--
-- A node is a table: t, its type, and line.
--
--     Const value        a str, int or bool
--     Float value
--     None
--     Name name
--     Attr of, name      of.name
--     Item of, key       of[key]
--     Slice of, from, to, step            the three may be nil
--     Call of, args, named, star          named: { name, expression } each;
--                        star: the value of *args, or nil
--     Filter of, name, args, named
--     Test of, name, args
--     Not, Neg of
--     And, Or, Add left, right
--     Binary op, left, right
--     Compare left, ops  ops: { operator, expression } each
--     Concat, List, Tuple items
--     Dict items         { key, value } each
--     Cond test, yes, no                  no may be nil
--     Body               the text of the block that the filter stands on


local lexer = require "resty.kv_router.template.lexer"

local fail = lexer.fail
local format = string.format
local refuse = lexer.refuse
local sub = string.sub
local tostring = tostring
local type = type


-- expressions and blocks within each other
local DEPTH = 100


local _P = {}
_P.__index = _P


-- ---- tokens -----------------------------------------------------------------

function _P:peek()
    return self.tokens[self.i]
end


function _P:next()
    local token = self.tokens[self.i]

    self.i = self.i + 1
    self.line = token.line

    return token
end


function _P:is(t, v)
    local token = self.tokens[self.i]

    return token.t == t and token.v == v
end


-- Takes an operator, or a name, if it is the next token.
function _P:skip(op)
    if self:is("op", op) then
        self:next()
        return true
    end
end


function _P:skip_name(name)
    if self:is("name", name) then
        self:next()
        return true
    end
end


function _P:unexpected()
    local token = self:peek()

    fail(format("an unexpected %s", tostring(token.v or token.t)), token.line)
end


function _P:expect(op)
    if not self:skip(op) then
        self:unexpected()
    end
end


function _P:name()
    if self:peek().t ~= "name" then
        self:unexpected()
    end

    return self:next().v
end


function _P:ends(t)
    if self:peek().t ~= t then
        self:unexpected()
    end

    self:next()
end


function _P:node(t)
    return { t = t, line = self:peek().line }
end


function _P:deeper(by)
    self.depth = self.depth + by

    if self.depth > DEPTH then
        refuse(format("nesting over %d levels", DEPTH), self.line)
    end
end


-- ---- expressions ------------------------------------------------------------

local function binary(self, op, left, right)
    return { t = "Binary", line = self.line, op = op, left = left,
             right = right }
end


function _P:expression()
    local made = self:disjunction()

    while self:skip_name("if") do
        local node = self:node("Cond")

        node.yes = made
        node.test = self:disjunction()

        if self:skip_name("else") then
            self:deeper(1)
            node.no = self:expression()
            self:deeper(-1)
        end

        made = node
    end

    return made
end


function _P:disjunction()
    local left = self:conjunction()

    while self:skip_name("or") do
        left = { t = "Or", line = self.line, left = left,
                 right = self:conjunction() }
    end

    return left
end


function _P:conjunction()
    local left = self:negation()

    while self:skip_name("and") do
        left = { t = "And", line = self.line, left = left,
                 right = self:negation() }
    end

    return left
end


function _P:negation()
    if not self:skip_name("not") then
        return self:comparison()
    end

    self:deeper(1)

    local node = { t = "Not", line = self.line, of = self:negation() }

    self:deeper(-1)

    return node
end


local COMPARE = { ["=="] = "eq", ["!="] = "ne", ["<"] = "lt", ["<="] = "le",
                  [">"] = "gt", [">="] = "ge" }

function _P:comparison()
    local left, ops = self:sum(), {}

    while true do
        local token = self:peek()
        local op

        if token.t == "op" and COMPARE[token.v] then
            self:next()
            op = COMPARE[token.v]

        elseif self:skip_name("in") then
            op = "in"

        elseif self:is("name", "not") and self.tokens[self.i + 1].t == "name"
               and self.tokens[self.i + 1].v == "in"
        then
            self.i = self.i + 2
            op = "notin"

        else
            break
        end

        ops[#ops + 1] = { op, self:sum() }
    end

    if #ops == 0 then
        return left
    end

    return { t = "Compare", line = self.line, left = left, ops = ops }
end


function _P:sum()
    local left = self:concatenation()

    while true do
        if self:skip("+") then
            left = { t = "Add", line = self.line, left = left,
                     right = self:concatenation() }
        elseif self:skip("-") then
            left = binary(self, "sub", left, self:concatenation())
        else
            return left
        end
    end
end


function _P:concatenation()
    local first = self:product()

    if not self:is("op", "~") then
        return first
    end

    local node = self:node("Concat")

    node.items = { first }

    while self:skip("~") do
        node.items[#node.items + 1] = self:product()
    end

    return node
end


local PRODUCT = { ["*"] = "mul", ["%"] = "mod" }
local REFUSED = { ["/"] = true, ["//"] = true, ["**"] = true }

function _P:product()
    local left = self:unary(true)

    while true do
        local token = self:peek()
        local op = token.t == "op" and PRODUCT[token.v]

        if token.t == "op" and REFUSED[token.v] then
            refuse("the operator " .. token.v, token.line)
        elseif op == "mod" and type(left.value) == "string" then
            refuse("% of a str", token.line)
        elseif not op then
            return left
        end

        self:next()
        left = binary(self, op, left, self:unary(true))
    end
end


function _P:unary(with_filters)
    local node

    self:deeper(1)

    if self:skip("-") then
        node = { t = "Neg", line = self.line, of = self:unary(false) }
    elseif self:is("op", "+") then
        refuse("the sign +", self.line)
    else
        node = self:primary()
    end

    node = self:postfix(node)

    if with_filters then
        node = self:filters(node)
    end

    self:deeper(-1)

    return node
end


-- What each gives up to a bracket, with "," in between: an array.
function _P:items(close, each)
    local items = {}

    while not self:is("op", close) do
        if #items > 0 then
            self:expect(",")
        end

        if self:is("op", close) then
            break
        end

        items[#items + 1] = each(self)
    end

    self:expect(close)

    return items
end


local function pair(self)
    local key = self:expression()

    self:expect(":")

    return { key, self:expression() }
end


local BOOLEANS = { ["true"] = true, True = true, ["false"] = false,
                   False = false }

function _P:primary()
    local node = self:node("Const")
    local token = self:next()

    if token.t == "name" then
        if BOOLEANS[token.v] ~= nil then
            node.value = BOOLEANS[token.v]
        elseif token.v == "none" or token.v == "None" then
            node.t = "None"
        else
            node.t, node.name = "Name", token.v
        end

        return node
    end

    if token.t == "string" then
        node.value = token.v

        while self:peek().t == "string" do
            node.value = node.value .. self:next().v
        end

        return node
    end

    if token.t == "int" or token.t == "float" then
        node.t = token.t == "int" and "Const" or "Float"
        node.value = token.v
        return node
    end

    if token.t == "op" then
        if token.v == "(" then
            node = self:tuple(true)
            self:expect(")")
            return node
        elseif token.v == "[" then
            node.t, node.items = "List", self:items("]", self.expression)
            return node
        elseif token.v == "{" then
            node.t, node.items = "Dict", self:items("}", pair)
            return node
        end
    end

    self.i = self.i - 1

    return self:unexpected()
end


-- An expression, or a tuple without its brackets: paren, they are around it;
-- plain, without "x if y"; up_to, a name that ends it.
function _P:tuple(paren, plain, up_to)
    local node = self:node("Tuple")
    local commas = false

    node.items = {}

    while true do
        if #node.items > 0 then
            if not self:skip(",") then
                break
            end

            commas = true
        end

        local token = self:peek()

        if token.t == "variable_end" or token.t == "block_end"
           or self:is("op", ")") or (up_to and self:is("name", up_to))
        then
            break
        end

        node.items[#node.items + 1] = plain and self:disjunction()
                                      or self:expression()
    end

    if not commas then
        if #node.items == 1 then
            return node.items[1]
        elseif not paren then
            self:unexpected()
        end
    end

    return node
end


-- The arguments of a call, into node.
function _P:arguments(node)
    node.args, node.named = {}, {}

    self:expect("(")

    local first = true

    while not self:is("op", ")") do
        if not first then
            self:expect(",")

            if self:is("op", ")") then
                break
            end
        end

        first = false

        local token, after = self:peek(), self.tokens[self.i + 1]

        if self:skip("*") then
            if node.star then
                self:unexpected()
            end

            node.star = self:expression()

        elseif self:is("op", "**") then
            refuse("**kwargs of a call", self.line)

        elseif token.t == "name" and after.t == "op" and after.v == "=" then
            self.i = self.i + 2
            node.named[#node.named + 1] = { token.v, self:expression() }

        else
            if node.star or #node.named > 0 then
                self:unexpected()
            end

            node.args[#node.args + 1] = self:expression()
        end
    end

    self:expect(")")

    return node
end


function _P:call(of)
    local node = self:node("Call")

    node.of = of

    return self:arguments(node)
end


function _P:subscript(of)
    local node = self:node("Item")
    local slice = false

    node.of = of

    if not self:is("op", ":") then
        node.key = self:expression()
    end

    if self:skip(":") then
        slice = true

        if not self:is("op", "]") and not self:is("op", ":") then
            node.to = self:expression()
        end

        if self:skip(":") and not self:is("op", "]") then
            node.step = self:expression()
        end
    end

    if self:is("op", ",") then
        refuse("an item of two keys", node.line)
    end

    self:expect("]")

    if slice then
        node.t, node.from, node.key = "Slice", node.key, nil
    end

    return node
end


function _P:postfix(made)
    while true do
        if self:skip(".") then
            local token = self:next()

            if token.t == "name" then
                if sub(token.v, 1, 2) == "__" then
                    refuse("the attribute " .. token.v, token.line)
                end

                made = { t = "Attr", line = token.line, of = made,
                         name = token.v }

            elseif token.t == "int" then
                made = { t = "Item", line = token.line, of = made,
                         key = { t = "Const", line = token.line,
                                 value = token.v } }

            else
                self.i = self.i - 1
                self:unexpected()
            end

        elseif self:skip("[") then
            made = self:subscript(made)

        elseif self:is("op", "(") then
            made = self:call(made)

        else
            return made
        end
    end
end


-- The name of a filter or a test, which may have points.
function _P:dotted()
    local name = self:name()

    while self:skip(".") do
        name = name .. "." .. self:name()
    end

    return name
end


function _P:filter(of)
    local node = self:node("Filter")

    node.of, node.name = of, self:dotted()
    node.args, node.named = {}, {}

    if self:is("op", "(") then
        self:arguments(node)

        if node.star then
            refuse("*args of a filter", node.line)
        end
    end

    return node
end


local NO_ARGUMENT = { ["else"] = true, ["or"] = true, ["and"] = true }

function _P:test(of)
    local node = self:node("Test")
    local negated = self:skip_name("not")

    node.of, node.name, node.args = of, self:dotted(), {}

    local token = self:peek()

    if self:is("op", "(") then
        self:arguments(node)

        if #node.named > 0 or node.star then
            refuse("named arguments of a test", node.line)
        end

    elseif token.t == "name" and not NO_ARGUMENT[token.v]
           or token.t == "string" or token.t == "int" or token.t == "float"
           or self:is("op", "[") or self:is("op", "{")
    then
        if self:is("name", "is") then
            fail("a test of a test", token.line)
        end

        node.args[1] = self:postfix(self:primary())
    end

    if negated then
        return { t = "Not", line = node.line, of = node }
    end

    return node
end


function _P:filters(made)
    while true do
        if self:skip("|") then
            made = self:filter(made)
        elseif self:skip_name("is") then
            made = self:test(made)
        elseif self:is("op", "(") then
            made = self:call(made)
        else
            return made
        end
    end
end


return _P
