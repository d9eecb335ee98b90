-- Copyright (C) the nginx-kv-router authors
--
-- A template's statements as Lua source: a function of the request's variables
-- X and of the output.
--
-- Text goes to a table of pieces, b[1 .. n]; loops put the pieces out when there
-- are many.  A macro and a set block have a table of their own and give a
-- string.  Variables are Lua's, of which a function has at most 200, and a macro
-- sees at most 60; if the template's own scope has many, they are in the table V.
--
-- V is made when the template is compiled: LuaJIT of Debian 12 loses what a
-- table got that its compiler has moved out of a trace.


local _C = require "resty.kv_router.template.code_calls"
local lexer = require "resty.kv_router.template.lexer"
local parser = require "resty.kv_router.template.parser"
local scope = require "resty.kv_router.template.scope"

local concat = table.concat
local fail = lexer.fail
local field = _C.field
local find = string.find
local format = string.format
local ipairs = ipairs
local pairs = pairs
local quote = _C.quote
local refuse = lexer.refuse
local setmetatable = setmetatable
local sort = table.sort
local unpack = unpack


local _M = {}

-- variables of a scope other than the template's, and of that as Lua's
local VARIABLES = 100
local OWN = 36

local statements = {}


-- ---- scopes -----------------------------------------------------------------

-- A new variable of Lua for a name.
function _C:new_variable(name)
    self.temporaries = self.temporaries + 1

    return format("v%d_%s", self.temporaries, name)
end


-- Begins a scope that was read: its variables get their first values.
function _C:open(inner)
    local root = not inner.parent
    local names = {}

    for name in pairs(inner.begins) do
        names[#names + 1] = name
    end

    sort(names)

    if not root and #names > VARIABLES then
        refuse(format("a block with over %d variables", VARIABLES), self.line)
    end

    for _, name in ipairs(names) do
        local begin = inner.begins[name]

        if begin == "param" then
            inner.variables[name] = inner.params[name]

        elseif begin == "resolve" and not inner.stores[name] then
            inner.variables[name] = self:of_request(name)

        else
            local first = "UNDEFINED"

            if begin == "alias" then
                first = inner.parent:variable(name)
            elseif begin == "resolve" then
                first = self:of_request(name)
            end

            local in_table = root and #names > OWN
            local variable = in_table and field("V", name)
                             or self:new_variable(name)

            self:emit("%s%s = %s", in_table and "" or "local ", variable, first)
            inner.variables[name] = variable
        end
    end

    self.scope = inner
end


function _C:close()
    self.scope = self.scope.parent
end


function _C:inner()
    local inner = scope.new(self.scope)

    inner.params = {}

    return inner
end


-- A parameter or a loop's target: its variable of Lua.
function _C:param(inner, name)
    inner:param(name)
    inner.params[name] = inner.params[name] or self:new_variable(name)

    return inner.params[name]
end


-- ---- output -----------------------------------------------------------------

function _C:put(e, t)
    self:emit("n = n + 1 b[n] = %s", t == "str" and e or "str(" .. e .. ")")
end


-- One expression of {{ }}: its parts one by one where that gives the same text.
function _C:output(node)
    if node.t == "Const" and node.value == "" then
        return

    elseif node.t == "Cond" then
        self:emit("if %s then", self:condition(node.test))
        self:output(node.yes)

        if node.no then
            self:emit("else")
            self:output(node.no)
        end

        self:emit("end")

    elseif node.t == "Add" then
        local es, check, calls = self:sum(node)
        local parts = {}

        for i, e in ipairs(es) do
            parts[i] = format("b[n + %d] = %s", i, e)
        end

        local fast = format("%s n = n + %d", concat(parts, " "), #es)

        if check then
            self:emit("if %s then %s else n = n + 1 b[n] = str(%s) end",
                      check, fast, calls)
        else
            self:emit(fast)
        end

    elseif node.t == "Concat" then
        local es = self:texts(node.items)

        for i, e in ipairs(es) do
            self:emit("b[n + %d] = %s", i, e)
        end

        self:emit("n = n + %d", #es)

    else
        self:put(self:expression(node))
    end
end


function statements.Data(self, node)
    self:put(quote(node.text), "str")
end


function statements.Output(self, node)
    for _, item in ipairs(node.items) do
        self:emit("do")
        self:output(item)
        self:emit("end")
    end
end


function _C:statements(body)
    for _, node in ipairs(body) do
        self.line = node.line
        statements[node.t](self, node)
    end
end


-- The text of a body in the variable "body", which the caller declares.
function _C:buffered(body)
    local inner, in_root = self:inner(), self.in_root

    inner:statements(body)
    self.in_root = false

    self:emit("do local b, n = {}, 0")
    self:open(inner)
    self:statements(body)
    self:close()
    self:emit("body = R.join(b, n) end")
    self.in_root = in_root
end


-- ---- conditions and loops ---------------------------------------------------

statements["If"] = function(self, node)
    local ends = 0

    for i, arm in ipairs(node.arms) do
        if i > 1 then
            self:emit("else")
        end

        self:emit("do")
        self:emit("if %s then", self:condition(arm[1]))
        self:statements(arm[2])
        ends = ends + 2
    end

    if node.other then
        self:emit("else")
        self:statements(node.other)
    end

    self:emit(("end "):rep(ends))
end


-- Gives a loop's target the value e.
function _C:bind(inner, target, e)
    local names = {}

    for i, item in ipairs(target.items or { target }) do
        names[i] = self:param(inner, item.name)
    end

    self:emit(target.items and "local %s = R.spread(%s, %d)" or "local %s = %s",
              concat(names, ", "), e, #names)
end


-- Only those elements for which the test of a loop is true.
function _C:sifted(node, loop)
    local inner = self:inner()

    self:emit("local sifted, m = {}, 0 for i = 1, %s do", loop.n)
    self:emit("burn(1)")
    self:bind(inner, node.target, loop.s .. "[i]")
    inner:expression(node.test)
    self:open(inner)
    self:emit("if %s then m = m + 1 sifted[m] = %s[i] end end",
              self:condition(node.test), loop.s)
    self:close()
    self:emit("%s, %s = sifted, m", loop.s, loop.n)
end


statements["For"] = function(self, node)
    local id = self.loops + 1
    local loop = { s = "s" .. id, n = "n" .. id, i = "i" .. id, id = id }

    self.loops = id

    self:emit("do")
    self:emit("local %s, %s = R.sequence(%s)", loop.s, loop.n,
              (self:expression(node.iter)))

    if node.test then
        self:sifted(node, loop)
    end

    self:emit("for %s = 1, %s do", loop.i, loop.n)
    self:emit("local left = M.left - 1 M.left = left "
              .. "if left < 0 then refill() end")

    if self.in_root then
        self:emit("if n > 500 then n = R.flush(O, b, n) end")
    end

    local inner = self:inner()

    self:bind(inner, node.target, format("%s[%s]", loop.s, loop.i))
    inner.loop = loop
    inner:statements(node.body)

    self:emit("do")
    self:open(inner)
    self:statements(node.body)
    self:close()
    self:emit("end")

    if loop.continues then
        self:emit("::c%d::", id)
    end

    self:emit("end")

    if node.other then
        self:emit("if %s == 0 then", loop.n)
        self:block(node.other)
        self:emit("end")
    end

    self:emit("end")
end


-- The loop that a break or continue is of: macros and blocks with a text of
-- their own are in between none.
function _C:jump(node)
    local inner = self.scope

    while inner and not inner.loop do
        if inner.closed then
            refuse(node.t:lower() .. " in a macro or call block", node.line)
        end

        inner = inner.parent
    end

    if not inner then
        fail(node.t:lower() .. " outside of a loop", node.line)
    end

    return inner.loop
end


function statements.Break(self, node)
    self:jump(node)
    self:emit("do break end")
end


function statements.Continue(self, node)
    local loop = self:jump(node)

    loop.continues = true
    self:emit("do goto c%d end", loop.id)
end


-- ---- assignments ------------------------------------------------------------

function _C:assign(target, e)
    if target.t == "Name" then
        self:emit("%s = %s", self.scope:variable(target.name), e)
    else
        self:emit("R.set(%s, %s, %s)", self:variable(target.of.name),
                  quote(target.name), e)
    end
end


function statements.Set(self, node)
    self:emit("do")
    self:assign(node.target, (self:expression(node.value)))
    self:emit("end")
end


function statements.SetBlock(self, node)
    self:emit("do local body")
    self:buffered(node.body)
    self:assign(node.target, "body")
    self:emit("end")
end


function statements.FilterBlock(self, node)
    self:emit("do local body")
    self:buffered(node.body)
    self:put(self:expression(node.filter))
    self:emit("end")
end


-- A block with a scope of its own.
function _C:block(body)
    local inner = self:inner()

    inner:statements(body)
    self:emit("do")
    self:open(inner)
    self:statements(body)
    self:close()
    self:emit("end")
end


function statements.Scope(self, node)
    self:block(node.body)
end


-- ---- macros -----------------------------------------------------------------

-- What a macro gets that its caller reads by a name of Jinja's.
local SPECIAL = { caller = true, varargs = true, kwargs = true, loop = true }


-- The rest of the call R.macro(name, params, wants_caller, function ... end).
function _C:macro(name, params, body)
    local inner, in_root = self:inner(), self.in_root
    local names, variables = {}, {}

    inner.closed = true

    for i, param in ipairs(params) do
        if SPECIAL[param.name] then
            refuse("the parameter " .. param.name, self.line)
        end

        names[i] = quote(param.name)
        variables[i] = self:param(inner, param.name)
    end

    if scope.reads(body, "varargs") or scope.reads(body, "kwargs") then
        refuse("varargs or kwargs of a macro", self.line)
    end

    local wants_caller = scope.reads(body, "caller")

    if wants_caller then
        inner:param("caller")
        inner.params.caller = "caller"
    end

    for _, param in ipairs(params) do
        if param.default then
            inner:expression(param.default)
        end
    end

    inner:statements(body)
    self.in_root = false

    self:emit("R.macro(%s, { %s }, %s, function(%s)", quote(name),
              concat(names, ", "), wants_caller,
              concat({ "caller", unpack(variables) }, ", "))
    self:emit("local b, n = {}, 0 R.enter()")
    self:emit("if caller == nil then caller = UNDEFINED end")
    self:open(inner)

    for i, param in ipairs(params) do
        self:emit("if %s == nil then", variables[i])
        self:emit("%s = %s", variables[i],
                  param.default and (self:expression(param.default))
                  or "UNDEFINED")
        self:emit("end")
    end

    self:statements(body)
    self:close()
    self:emit("return R.left(R.join(b, n))")
    self:emit("end)")
    self.in_root = in_root
end


function statements.Macro(self, node)
    if SPECIAL[node.name] then
        refuse("a macro of the name " .. node.name, node.line)
    end

    self:emit("%s =", self.scope:variable(node.name))
    self:macro(node.name, node.params, node.body)
end


function statements.CallBlock(self, node)
    self:emit("do local caller_of_block =")
    self:macro("caller", node.params, node.body)
    self:put((self:call(node.call, "caller_of_block")))
    self:emit("end")
end


-- ---- the whole --------------------------------------------------------------

local PROLOGUE = [[
local R = ...
local F, T, M, UNDEFINED, NONE = R.F, R.T, R.fuel, R.UNDEFINED, R.NONE
local attribute, item, str, truth, eq = R.attribute, R.item, R.str, R.truth, R.eq
local spend, burn, refill, type = R.spend, R.burn, R.refill, R.type
local V = {}
return V, function(X, O)
local b, n = {}, 0]]


-- A source as Lua: the source of a chunk, the names that it reads of the
-- request's variables, and the tree.  The chunk is called with the run time, and
-- returns V and the function; V is to be emptied after each call.
function _M.generate(source)
    local tree = parser.parse(source)
    local root = scope.new()
    local self = setmetatable({
        lines = { PROLOGUE }, temporaries = 0, loops = 0, line = 1, names = {},
        in_root = true, markup = find(source, "safe", 1, true) ~= nil,
    }, _C)

    root.params = {}
    root:statements(tree)
    self:open(root)
    self:statements(tree)
    self:emit("R.flush(O, b, n)")
    self:emit("end")

    local names = {}

    for name in pairs(self.names) do
        names[#names + 1] = name
    end

    sort(names)

    return concat(self.lines, "\n"), names, tree
end


return _M
