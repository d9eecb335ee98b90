-- Copyright (C) the nginx-kv-router authors
--
-- The statements of a template as a tree, by Jinja's grammar; expression.lua
-- has the expressions.
--
-- A node is a table: t, its type, and line.
--
--     Data text
--     Output items       expressions
--     If arms, other     arms: { test, body } each; other may be nil
--     For target, iter, test, body, other
--     Set target, value
--     SetBlock target, body
--     FilterBlock filter, body
--     Macro name, params, body            params: name, default each
--     CallBlock params, call, body
--     Scope body         {% generation %}
--     Break, Continue
--
-- A target is a Name, of set also an Attribute (of, name: of a namespace), of for
-- also a Tuple of names.


local _P = require "resty.kv_router.template.expression"
local lexer = require "resty.kv_router.template.lexer"

local fail = lexer.fail
local ipairs = ipairs
local pairs = pairs
local refuse = lexer.refuse
local select = select
local setmetatable = setmetatable


local _M = {}


-- ---- targets ----------------------------------------------------------------

local NO_TARGET = { ["true"] = true, ["false"] = true, none = true, True = true,
                    False = true, None = true }

function _P:target()
    local node = self:node("Name")

    if self:is("op", "(") then
        refuse("a target in brackets", node.line)
    end

    node.name = self:name()

    if NO_TARGET[node.name] then
        fail("an assignment to " .. node.name, node.line)
    elseif node.name == "loop" then
        refuse("an assignment to loop", node.line)
    end

    return node
end


-- ---- statements -------------------------------------------------------------

local statements = {}


-- The statements up to a tag of these names, or to the end of the template:
-- the body, and the tag's name.
function _P:body(up_to)
    local body = {}

    self:deeper(1)

    while true do
        local token = self:next()

        if token.t == "data" then
            body[#body + 1] = { t = "Data", line = token.line, text = token.v }

        elseif token.t == "variable_begin" then
            body[#body + 1] = { t = "Output", line = token.line,
                                items = { self:tuple() } }
            self:ends("variable_end")

        elseif token.t == "block_begin" then
            local name = self:name()

            if up_to and up_to[name] then
                self:deeper(-1)
                return body, name
            end

            local parse = statements[name]

            if not parse then
                fail("the unknown tag " .. name, token.line)
            end

            body[#body + 1] = parse(self, { line = token.line })

        else
            if up_to then
                fail("an unexpected end of the template", token.line)
            end

            self:deeper(-1)
            return body
        end
    end
end


local function set(...)
    local names = {}

    for i = 1, select("#", ...) do
        names[select(i, ...)] = true
    end

    return names
end


-- The rest of a block's tag, its body, and the tag that ends it.
function _P:block(up_to)
    self:ends("block_end")

    local body = self:body(up_to)

    self:ends("block_end")

    return body
end


local IF = set("elif", "else", "endif")
local ENDIF = set("endif")

statements["if"] = function(self, node)
    node.t, node.arms = "If", {}

    local test = self:tuple(false, true)

    while true do
        self:ends("block_end")

        local body, name = self:body(IF)

        node.arms[#node.arms + 1] = { test, body }

        if name == "elif" then
            test = self:tuple(false, true)
        elseif name == "else" then
            node.other = self:block(ENDIF)
            return node
        else
            self:ends("block_end")
            return node
        end
    end
end


local FOR = set("endfor", "else")
local ENDFOR = set("endfor")

statements["for"] = function(self, node)
    node.t, node.target = "For", self:target()

    if self:is("op", ",") then
        node.target = { t = "Tuple", line = node.line,
                        items = { node.target } }
    end

    while self:skip(",") and not self:is("name", "in") do
        node.target.items[#node.target.items + 1] = self:target()
    end

    if not self:skip_name("in") then
        self:unexpected()
    end

    node.iter = self:tuple(false, true, "recursive")

    if self:skip_name("if") then
        node.test = self:expression()
    end

    if self:is("name", "recursive") then
        refuse("a recursive loop", node.line)
    end

    self:ends("block_end")

    local name

    node.body, name = self:body(FOR)

    if name == "else" then
        node.other = self:block(ENDFOR)
    else
        self:ends("block_end")
    end

    return node
end


statements.set = function(self, node)
    node.target = self:target()

    if self:skip(".") then
        node.target = { t = "Attribute", line = node.line, of = node.target,
                        name = self:name() }
    end

    if self:is("op", ",") or self:is("op", "|") then
        refuse("set with " .. self:peek().v, node.line)
    elseif self:skip("=") then
        node.t, node.value = "Set", self:tuple()
        self:ends("block_end")
        return node
    end

    node.t, node.body = "SetBlock", self:block(set("endset"))

    return node
end


function _P:params()
    local params, defaults = {}, false

    self:expect("(")

    while not self:is("op", ")") do
        if #params > 0 then
            self:expect(",")
        end

        local param = { name = self:name() }

        if NO_TARGET[param.name] or param.name == "loop" then
            refuse("the parameter " .. param.name, self.line)
        end

        if self:skip("=") then
            param.default = self:expression()
            defaults = true
        elseif defaults then
            fail("a parameter without a default behind one with it", self.line)
        end

        params[#params + 1] = param
    end

    self:expect(")")

    return params
end


statements.macro = function(self, node)
    node.t, node.name = "Macro", self:name()

    if NO_TARGET[node.name] or node.name == "loop" then
        refuse("a macro of the name " .. node.name, node.line)
    end

    node.params = self:params()
    node.body = self:block(set("endmacro"))

    return node
end


statements.call = function(self, node)
    node.t, node.params = "CallBlock", {}

    if self:is("op", "(") then
        node.params = self:params()
    end

    node.call = self:expression()

    if node.call.t ~= "Call" then
        self:unexpected()
    end

    node.body = self:block(set("endcall"))

    return node
end


statements.filter = function(self, node)
    node.t = "FilterBlock"
    node.filter = self:filters(self:filter({ t = "Body", line = node.line }))

    local of = node.filter

    while of.t == "Filter" do
        of = of.of
    end

    if of.t ~= "Body" then
        self:unexpected()
    end

    node.body = self:block(set("endfilter"))

    return node
end


statements.generation = function(self, node)
    node.t = "Scope"
    node.body = self:block(set("endgeneration"))

    return node
end


for name, t in pairs { ["break"] = "Break", ["continue"] = "Continue" } do
    statements[name] = function(self, node)
        node.t = t
        self:ends("block_end")

        return node
    end
end


for _, name in ipairs { "include", "import", "from", "extends", "block",
                        "autoescape", "with", "print" }
do
    statements[name] = function(_, node)
        refuse("the tag " .. name, node.line)
    end
end


-- The body of a source: an array of statements.
function _M.parse(source)
    local parser = setmetatable({ tokens = lexer.lex(source), i = 1, line = 1,
                                  depth = 0 }, _P)

    return (parser:body())
end


return _M
