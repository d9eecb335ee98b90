-- Copyright (C) the nginx-kv-router authors
--
-- A template's source as tokens, as Jinja's lexer has them when transformers
-- sets it up: trim_blocks and lstrip_blocks are on, there are no line
-- statements.
--
-- A token is a table: t, its type, v, its value, and line.  Types:
--
--     data                   text between tags
--     variable_begin, variable_end, block_begin, block_end
--     name, string, int, float
--     op                     an operator or a bracket
--     eof                    the last one
--
-- Failures are those of value.lua: raise, Jinja would refuse the source, too;
-- unsupported, the construct and its line are named.


local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local byte = string.byte
local char = string.char
local concat = table.concat
local find = string.find
local floor = math.floor
local format = string.format
local gsub = string.gsub
local lstrip = text_ffi.lstrip
local match = string.match
local raise = value.raise
local rstrip = text_ffi.rstrip
local sub = string.sub
local tonumber = tonumber
local unsupported = value.unsupported


local _M = {}


-- A construct is not supported here; Jinja may well take it.
function _M.refuse(construct, line)
    unsupported(format("%s in line %d is not supported", construct, line))
end


-- Jinja refuses the source, too.
function _M.fail(what, line)
    raise(format("%s in line %d", what, line))
end


local fail = _M.fail
local refuse = _M.refuse


-- ---- characters -------------------------------------------------------------

-- The UTF-8 of a code point.
function _M.utf8(c)
    if c < 0x80 then
        return char(c)
    elseif c < 0x800 then
        return char(0xC0 + floor(c / 64), 0x80 + c % 64)
    elseif c < 0x10000 then
        return char(0xE0 + floor(c / 4096), 0x80 + floor(c / 64) % 64,
                    0x80 + c % 64)
    end

    return char(0xF0 + floor(c / 262144), 0x80 + floor(c / 4096) % 64,
                0x80 + floor(c / 64) % 64, 0x80 + c % 64)
end


local function trim_right(s)
    return sub(s, 1, rstrip(s))
end


-- The first position at or behind p that is not white space.
local function skip_space(src, p)
    local q = find(src, "[^ \t-\r\28-\31]", p)

    if not q then
        return #src + 1
    end

    if byte(src, q) < 128 then
        return q
    end

    return q + lstrip(src, q - 1)
end


local function blank(s)
    return rstrip(s) == 0
end


local ESCAPES = {
    n = "\n", t = "\t", r = "\r", a = "\a", b = "\b", f = "\f", v = "\v",
    ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["\n"] = "",
}
local DIGITS = { x = 2, u = 4, U = 8 }

local function unescaped(s, line)
    if not find(s, "\\", 1, true) then
        return s
    end

    local out, n, from = {}, 0, 1

    while true do
        local at = find(s, "\\", from, true)

        if not at then
            out[n + 1] = sub(s, from)
            return concat(out)
        end

        local c = sub(s, at + 1, at + 1)
        local piece, after = ESCAPES[c], at + 2

        if DIGITS[c] then
            local hex = match(s, "^%x+", at + 2) or ""

            hex = sub(hex, 1, DIGITS[c])

            local code = #hex == DIGITS[c] and tonumber(hex, 16)

            if not code or code > 0x10FFFF then
                fail("a bad escape of a string", line)
            elseif code >= 0xD800 and code < 0xE000 then
                refuse("half of a surrogate pair", line)
            end

            piece, after = _M.utf8(code), at + 2 + #hex

        elseif find(c, "^[0-7]") then
            local octal = match(s, "^[0-7][0-7]?[0-7]?", at + 1)

            piece, after = _M.utf8(tonumber(octal, 8)), at + 1 + #octal

        elseif not piece then
            if c == "N" or byte(c) >= 128 then
                refuse("the escape \\" .. c, line)
            end

            piece = "\\" .. c
        end

        out[n + 1] = sub(s, from, at - 1)
        out[n + 2] = piece
        n = n + 2
        from = after
    end
end


-- ---- the lexer --------------------------------------------------------------

local _L = {}
_L.__index = _L


function _L:push(t, v)
    self.tokens[#self.tokens + 1] = { t = t, v = v, line = self.line }
end


-- Counts the lines of src[from .. to].
function _L:count(from, to)
    local _, n = gsub(sub(self.src, from, to), "\n", "")

    self.line = self.line + n
end


-- The text in front of a tag, by the tag's sign; strips: the tag is one that
-- lstrip_blocks is for.
function _L:data(text, sign, strips, line_starts)
    if sign == "-" then
        text = trim_right(text)

    elseif sign == "" and strips then
        local at = match(text, "^.*\n()") or 1

        if (at > 1 or line_starts) and at <= #text and blank(sub(text, at)) then
            text = sub(text, 1, at - 1)
        end
    end

    if text ~= "" then
        self:push("data", text)
    end
end


-- Behind the tag whose end, "%}" or "#}" with its sign, begins at p.
function _L:after(p)
    local src = self.src
    local sign = sub(src, p, p)

    if sign == "-" then
        return skip_space(src, p + 3)
    elseif sign == "+" then
        return p + 3
    end

    return sub(src, p + 2, p + 2) == "\n" and p + 3 or p + 2
end


-- A comment; p is behind "{#" and the sign.
function _L:comment(p)
    local src = self.src
    local at = find(src, "#}", p, true)

    if not at then
        fail("a comment without an end", self.line)
    end

    if at > p and find(src, "^[-+]", at - 1) then
        at = at - 1
    end

    return self:after(at)
end


-- {% raw %}: p is behind the tag; minus: its end has a minus.
function _L:raw(p, minus)
    local src = self.src

    if minus then
        p = skip_space(src, p)
    end

    local at, sign, ends = match(src, "(){%%([-+]?)%s*endraw%s*()[-+]?%%}", p)

    if not at then
        fail("raw without endraw", self.line)
    end

    self:data(sub(src, p, at - 1), sign, true, false)

    return self:after(ends)
end


local OPERATORS = { "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%",
                    "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":",
                    "|", ",", ";" }
local OPENS = { [")"] = "(", ["]"] = "[", ["}"] = "{" }

function _L:operator(p)
    local src = self.src

    for i = 1, #OPERATORS do
        local op = OPERATORS[i]

        if sub(src, p, p + #op - 1) == op then
            return op
        end
    end

    if byte(src, p) >= 128 then
        refuse("a name beyond ASCII", self.line)
    end

    return fail("an unexpected " .. sub(src, p, p), self.line)
end


function _L:number(p)
    local src = self.src
    local last = self.tokens[#self.tokens]
    local digits = match(src, "^%d[%d_]*%.%d[%d_]*[eE][+-]?%d+", p)
                   or match(src, "^%d[%d_]*[eE][+-]?%d+", p)
                   or match(src, "^%d[%d_]*%.%d[%d_]*", p)

    if digits and not (last.t == "op" and last.v == ".") then
        self:push("float", tonumber((gsub(digits, "_", ""))))
        return p + #digits
    end

    digits = match(src, "^%d[%d_]*", p)

    if digits == "0" and find(src, "^[xXoObB]", p + 1)
       or find(digits, "^0[0_]*[1-9]") or find(digits, "__", 1, true)
       or sub(digits, -1) == "_"
    then
        refuse("the number " .. match(src, "^[%w_]+", p), self.line)
    end

    local n = tonumber((gsub(digits, "_", "")))

    if n > value.MAX then
        refuse("the number " .. digits, self.line)
    end

    self:push("int", n)

    return p + #digits
end


function _L:string(p)
    local src = self.src
    local quote = sub(src, p, p)
    local at = p + 1

    while true do
        at = find(src, "[\\" .. quote .. "]", at)

        if not at then
            fail("a string without an end", self.line)
        elseif byte(src, at) ~= 92 then
            break
        end

        at = at + 2
    end

    self:push("string", unescaped(sub(src, p + 1, at - 1), self.line))

    return at + 1
end


-- What stands in a tag; p is behind its begin and sign.  Answers with the
-- position behind the tag.
function _L:tag(p, block)
    local src = self.src
    local close = block and "%}" or "}}"
    local open, counted = {}, p

    self:push(block and "block_begin" or "variable_begin")

    while true do
        p = find(src, "[^ \t-\r\28-\31]", p)

        if not p then
            fail("an unexpected end of the template", self.line)
        end

        self:count(counted, p - 1)
        counted = p

        local c = sub(src, p, p)

        if #open == 0
           and (sub(src, p, p + 1) == close
                or ((c == "-" or (c == "+" and block))
                    and sub(src, p + 1, p + 2) == close))
        then
            self:push(block and "block_end" or "variable_end")

            if block then
                return self:after(p), counted
            end

            return c == "-" and skip_space(src, p + 3) or p + 2, counted
        end

        if find(c, "[%a_]") then
            local name = match(src, "^[%w_]+", p)

            self:push("name", name)
            p = p + #name

            if byte(src, p) and byte(src, p) >= 128 then
                refuse("a name beyond ASCII", self.line)
            end

        elseif find(c, "%d") then
            p = self:number(p)

        elseif c == "'" or c == '"' then
            p = self:string(p)

        else
            local op = self:operator(p)

            if op == "(" or op == "[" or op == "{" then
                open[#open + 1] = op

            elseif OPENS[op] then
                if open[#open] ~= OPENS[op] then
                    fail("an unexpected " .. op, self.line)
                end

                open[#open] = nil
            end

            self:push("op", op)
            p = p + #op
        end
    end
end


-- The tokens of a source.
function _M.lex(src)
    src = gsub(gsub(src, "\r\n", "\n"), "\r", "\n")

    if sub(src, -1) == "\n" then
        src = sub(src, 1, -2)
    end

    local lexer = setmetatable({ src = src, tokens = {}, line = 1 }, _L)
    local p, line_starts = 1, true

    while p <= #src do
        local at = find(src, "{[%%{#]", p)

        if not at then
            lexer:data(sub(src, p), "+")
            lexer:count(p, #src)
            break
        end

        local kind = sub(src, at + 1, at + 1)
        local sign = match(src, "^[-+]?", at + 2)
        local inside = at + 2 + #sign
        local after

        lexer:data(sub(src, p, at - 1), sign, kind ~= "{", line_starts)
        lexer:count(p, at - 1)

        local counted = at
        local raw = kind == "%" and match(src, "^%s*raw%s*%-?%%}()", inside)

        if kind == "#" then
            after = lexer:comment(inside)
        elseif raw then
            after = lexer:raw(raw, sub(src, raw - 3, raw - 3) == "-")
        else
            after, counted = lexer:tag(inside, kind == "%")
        end

        lexer:count(counted, after - 1)
        line_starts = sub(src, after - 1, after - 1) == "\n"
        p = after
    end

    lexer:push("eof")

    return lexer.tokens
end


return _M
