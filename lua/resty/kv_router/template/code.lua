-- Copyright (C) the nginx-kv-router authors
--
-- Expressions of a template as Lua source.  An expression is an expression of
-- Lua, with statements in front of it where Lua has none for it; what stands to
-- the left is evaluated first.
--
-- Of each expression is known whether it is surely a string ("str"), a boolean
-- ("bool") or an int ("int"): then it needs no call to be written, tested or
-- compared.  Names come into the source as checked identifiers, everything
-- else of the template through quote().


local globals = require "resty.kv_router.template.globals"
local lexer = require "resty.kv_router.template.lexer"

local concat = table.concat
local find = string.find
local format = string.format
local gsub = string.gsub
local insert = table.insert
local ipairs = ipairs
local refuse = lexer.refuse
local select = select
local tostring = tostring
local type = type
local unpack = unpack


-- arguments and elements that one call or one literal may have
local ITEMS = 60


local _C = {}
_C.__index = _C


local function quote(s)
    s = gsub(format("%q", s), "\\\n", "\\n")

    return (gsub(gsub(s, "\r", "\\r"), "%z", "\\0"))
end


_C.quote = quote


-- The field of a table: base.name, also where name is a word of Lua.
function _C.field(base, name)
    return base .. "[" .. quote(name) .. "]"
end


local field = _C.field


-- ---- source -----------------------------------------------------------------

function _C:emit(line, ...)
    self.lines[#self.lines + 1] = select("#", ...) > 0 and format(line, ...)
                                  or line
end


function _C:temporary()
    self.temporaries = self.temporaries + 1

    return "t" .. self.temporaries
end


-- Can an expression be evaluated later, or twice?
local function fixed(e)
    return find(e, '^"[^"]*"$') or find(e, "^%-?[%d.]+$") or find(e, "^t%d+$")
           or e == "true" or e == "false" or e == "NONE" or e == "UNDEFINED"
end


function _C:hold(e)
    if fixed(e) then
        return e
    end

    local name = self:temporary()

    self:emit("local %s = %s", name, e)

    return name
end


-- What a function emits, apart, and what it returns.
function _C:apart(f)
    local saved = self.lines

    self.lines = {}

    local a, b = f()
    local lines = self.lines

    self.lines = saved

    return lines, a, b
end


function _C:splice(lines)
    for _, line in ipairs(lines) do
        self.lines[#self.lines + 1] = line
    end
end


-- Several expressions, evaluated from left to right: their Lua and types.
function _C:all(nodes)
    local es, types = {}, {}

    for i, node in ipairs(nodes) do
        local mark = #self.lines

        es[i], types[i] = self:expression(node)

        -- those before must not wait for what was emitted
        if #self.lines > mark then
            for j = 1, i - 1 do
                if not fixed(es[j]) then
                    local name = self:temporary()

                    mark = mark + 1
                    insert(self.lines, mark, format("local %s = %s", name,
                                                    es[j]))
                    es[j] = name
                end
            end
        end
    end

    return es, types
end


-- ---- conditions -------------------------------------------------------------

-- An expression as a boolean of Lua.
function _C:condition(node)
    if node.t == "Not" then
        return "not " .. self:condition(node.of)

    elseif node.t == "And" or node.t == "Or" then
        local word = node.t == "And" and "and" or "or"
        local left = self:condition(node.left)
        local lines, right = self:apart(function()
            return self:condition(node.right)
        end)

        if #lines == 0 then
            return format("(%s %s %s)", left, word, right)
        end

        local name = self:temporary()

        self:emit("local %s = %s", name, left)
        self:emit("if %s%s then", node.t == "And" and "" or "not ", name)
        self:splice(lines)
        self:emit("%s = %s", name, right)
        self:emit("end")

        return name
    end

    local e, t = self:expression(node)

    if t == "bool" then
        return e
    elseif node.t == "Const" then
        return (node.value ~= "" and node.value ~= 0) and "true" or "false"
    end

    return format("truth(%s)", e)
end


-- One comparison of two expressions, with their types.
function _C:compare(op, a, b, ta, tb)
    local ints = ta == "int" and tb == "int"

    if op == "eq" or op == "ne" then
        local plain = ints or a == "NONE" or b == "NONE"
                      or (not self.markup and (find(a, '^"') or find(b, '^"')))

        if plain then
            return format("(%s %s %s)", a, op == "eq" and "==" or "~=", b)
        end

        return format(op == "eq" and "eq(%s, %s)" or "(not eq(%s, %s))", a, b)
    elseif op == "in" then
        return format("R.contains(%s, %s)", a, b)
    elseif op == "notin" then
        return format("(not R.contains(%s, %s))", a, b)
    elseif op == "gt" or op == "ge" then
        -- a > b is b < a; both are held, so that a is evaluated first
        return self:compare(op == "gt" and "lt" or "le", b, a, tb, ta)
    elseif ints then
        return format(op == "lt" and "(%s < %s)" or "(%s <= %s)", a, b)
    end

    return format("R.%s(%s, %s)", op, a, b)
end


-- ---- expressions ------------------------------------------------------------

local expressions = {}

_C.expressions = expressions


function _C:expression(node)
    return expressions[node.t](self, node)
end


function expressions.Const(_, node)
    local v = node.value

    if type(v) == "string" then
        return quote(v), "str"
    elseif type(v) == "number" then
        return format("%.0f", v), "int"
    end

    return tostring(v), "bool"
end


expressions["None"] = function()
    return "NONE"
end


function expressions.Float(_, node)
    return format("R.float(%.17g)", node.value)
end


function expressions.Body()
    return "body", "str"
end


function expressions.Name(self, node)
    if node.name == "loop" and self:loop() then
        refuse("loop as a value", node.line)
    end

    return self:variable(node.name)
end


-- Attributes of loop: i is the round, n how many there are, s what is walked
-- over.
local LOOP = {
    index = { "$i", "int" }, index0 = { "($i - 1)", "int" },
    revindex = { "($n - $i + 1)", "int" }, revindex0 = { "($n - $i)", "int" },
    first = { "($i == 1)", "bool" }, last = { "($i == $n)", "bool" },
    length = { "$n", "int" }, depth = { "1", "int" }, depth0 = { "0", "int" },
    previtem = { "R.element($s, $i - 1, $n)" },
    nextitem = { "R.element($s, $i + 1, $n)" },
}

function expressions.Attr(self, node)
    local of = node.of
    local loop = of.t == "Name" and of.name == "loop" and self:loop()

    if loop then
        local known = LOOP[node.name]

        if not known then
            refuse("loop." .. node.name, node.line)
        end

        return (gsub(known[1], "%$(%w)", loop)), known[2]
    end

    return format("attribute(%s, %s)", (self:expression(of)), quote(node.name))
end


function expressions.Item(self, node)
    local es = self:all({ node.of, node.key })

    return format("item(%s, %s)", es[1], es[2])
end


local NOTHING = { t = "None" }

function expressions.Slice(self, node)
    local base, of = node.of, node.of.t

    -- Jinja folds slices of constants, and there those of no sequence are
    -- undefined instead of an error
    while base.of do
        base = base.of
    end

    if base.t ~= "Name" and of ~= "List" and of ~= "Tuple"
       and type(node.of.value) ~= "string"
    then
        refuse("a slice of this expression", node.line)
    end

    local es = self:all({ node.of, node.from or NOTHING, node.to or NOTHING,
                          node.step or NOTHING })

    return format("R.slice(%s)", concat(es, ", "))
end


expressions["Not"] = function(self, node)
    return format("(not %s)", self:condition(node.of)), "bool"
end


function expressions.Neg(self, node)
    local of = node.of

    if of.t == "Const" and type(of.value) == "number" and of.value > 0 then
        return format("-%.0f", of.value), "int"
    end

    return format("R.neg(%s)", (self:expression(of)))
end


-- a == b < c: each is evaluated once; the first that fails ends it
function expressions.Compare(self, node)
    local nodes = { node.left }

    for _, op in ipairs(node.ops) do
        nodes[#nodes + 1] = op[2]
    end

    local es, types = self:all(nodes)
    local made = {}

    for i = 1, #es do
        if #es > 2 or node.ops[1][1] == "gt" or node.ops[1][1] == "ge" then
            es[i] = self:hold(es[i])
        end
    end

    for i, op in ipairs(node.ops) do
        made[i] = self:compare(op[1], es[i], es[i + 1], types[i], types[i + 1])
    end

    if #made == 1 then
        return made[1], "bool"
    end

    return "(" .. concat(made, " and ") .. ")", "bool"
end


local function either(self, node, word)
    local left, tl = self:expression(node.left)
    local lines, right, tr = self:apart(function()
        return self:expression(node.right)
    end)

    if #lines == 0 and tl == "bool" and tr == "bool" then
        return format("(%s %s %s)", left, word, right), "bool"
    end

    local name = self:temporary()

    self:emit("local %s = %s", name, left)
    self:emit("if %s%s then", word == "or" and "not " or "",
              tl == "bool" and name or "truth(" .. name .. ")")
    self:splice(lines)
    self:emit("%s = %s", name, right)
    self:emit("end")

    return name, tl == tr and tl or nil
end


expressions["And"] = function(self, node)
    return either(self, node, "and")
end


expressions["Or"] = function(self, node)
    return either(self, node, "or")
end


function expressions.Cond(self, node)
    local name = self:temporary()

    self:emit("local %s", name)
    self:emit("if %s then", self:condition(node.test))

    local yes, ty = self:expression(node.yes)

    self:emit("%s = %s", name, yes)
    self:emit("else")

    local no, tn = "UNDEFINED", nil

    if node.no then
        no, tn = self:expression(node.no)
    end

    self:emit("%s = %s", name, no)
    self:emit("end")

    return name, ty == tn and ty or nil
end


-- The summands of a + b + c, from left to right.
local function summands(node, list)
    if node.t == "Add" then
        summands(node.left, list)
        list[#list + 1] = node.right
    else
        list[#list + 1] = node
    end

    return list
end


-- The sum of strings at once; what else they are, step by step.  Answers with
-- the expressions, a condition under which all are strings, or nil: always, and
-- the sum as calls.
function _C:sum(node)
    local es, types = self:all(summands(node, {}))
    local checks = {}

    if #es > ITEMS then
        refuse("a sum of over 60", node.line)
    end

    for i = 1, #es do
        if types[i] ~= "str" then
            es[i] = self:hold(es[i])
            checks[#checks + 1] = format('type(%s) == "string"', es[i])
        end
    end

    local calls = es[1]

    for i = 2, #es do
        calls = format("R.add(%s, %s)", calls, es[i])
    end

    return es, #checks > 0 and concat(checks, " and ") or nil, calls
end


function expressions.Add(self, node)
    local es, check, calls = self:sum(node)

    if #es == 2 then
        return calls, not check and "str" or nil
    end

    local name = self:temporary()

    if check then
        self:emit("local %s if %s then %s = %s spend(#%s) else %s = %s end",
                  name, check, name, concat(es, " .. "), name, name, calls)
        return name
    end

    self:emit("local %s = %s spend(#%s)", name, concat(es, " .. "), name)

    return name, "str"
end


-- Each as a string.
function _C:texts(nodes)
    local es, types = self:all(nodes)

    if #es > ITEMS then
        refuse("over 60 parts of ~", nodes[1].line)
    end

    for i = 1, #es do
        if types[i] ~= "str" then
            es[i] = format("str(%s)", es[i])
        end
    end

    return es
end


function expressions.Concat(self, node)
    local es = self:texts(node.items)
    local name = self:temporary()

    self:emit("local %s = %s spend(#%s)", name, concat(es, " .. "), name)

    return name, "str"
end


function expressions.Binary(self, node)
    local es, types = self:all({ node.left, node.right })
    local ints = types[1] == "int" and types[2] == "int"
    local op = node.op

    if ints and op == "mod" and node.right.t == "Const" and node.right.value > 0
    then
        return format("(%s %% %s)", es[1], es[2]), "int"
    end

    return format("R.%s(%s, %s)", op, es[1], es[2]),
           ints and (op == "sub" or op == "mul") and "int" or nil
end


local function literal(name)
    return function(self, node)
        if #node.items > ITEMS then
            refuse(format("a %s of over %d", name, ITEMS), node.line)
        end

        local es = self:all(node.items)

        return format("R.%s(%s)", name, concat({ #es, unpack(es) }, ", "))
    end
end


expressions.List = literal("list")
expressions.Tuple = literal("tuple")


function expressions.Dict(self, node)
    local nodes = {}

    if #node.items > ITEMS then
        refuse(format("a dict of over %d", ITEMS), node.line)
    end

    for _, pair in ipairs(node.items) do
        nodes[#nodes + 1] = pair[1]
        nodes[#nodes + 1] = pair[2]
    end

    return format("R.dict(%s)", concat({ #node.items, unpack((self:all(nodes))) },
                                       ", "))
end


-- ---- names ------------------------------------------------------------------

-- The Lua variable of a name that is the request's.
function _C:of_request(name)
    if globals.REFUSED[name] then
        refuse(name, self.line)
    end

    self.names[name] = true

    return field("X", name)
end


-- The Lua variable of a name.
function _C:variable(name)
    return self.scope:variable(name) or self:of_request(name)
end


-- The nearest loop, or nil.
function _C:loop()
    local scope = self.scope

    while scope do
        if scope.loop then
            return scope.loop
        end

        scope = scope.parent
    end
end


return _C
