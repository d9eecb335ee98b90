-- Copyright (C) the nginx-kv-router authors
--
-- What the functions of a policy may do, read from their bytecode.
--
-- They may run for ever.  Compiled code can't be stopped, so that such
-- functions are to be interpreted; all others compile, with their loops over
-- candidates.  A function may not end when it has a loop without a number of
-- rounds (while, repeat, goto), a for loop up to infinity, or calls a function
-- of the policy as the last thing it does, which may be itself again.  What
-- can't be seen: for loops with an iterator that never ends, functions that
-- are made or loaded later.
--
-- They may yield, when they have a way to any function that is neither Lua's
-- own nor ours.


local jit_util = require "jit.util"

local band = bit.band
local find = string.find
local flush = jit.flush
local funcbc = jit_util.funcbc
local funcinfo = jit_util.funcinfo
local funck = jit_util.funck
local getfenv = getfenv
local getmetatable = debug.getmetatable
local getupvalue = debug.getupvalue
local ipairs = ipairs
local jit_off = jit.off
local match = string.match
local next = next
local ngx = ngx
local pairs = pairs
local pcall = pcall
local require = require
local rshift = bit.rshift
local type = type


local _M = {}


local MANY = 1e9                 -- rounds of a for loop: for ever
local MAX_VALUES = 20000         -- looked at in a policy
local MAX_UPVALUES = 60          -- LuaJIT's own limits
local MAX_CONSTANTS = 65536

local OURS = "/resty/kv_router/"

-- Names in a function that is not sure not to yield: ctx.params may have
-- anything.
local WAYS = {}

for _, name in ipairs { "ngx", "coroutine", "require", "package", "_G",
                        "load", "loadstring", "loadfile", "dofile", "debug",
                        "getfenv", "setfenv", "params" }
do
    WAYS[name] = true
end

-- Functions that don't yield.
local SAFE = { [error] = true, [ipairs] = true, [next] = true,
               [pairs] = true, [pcall] = true, [rawequal] = true,
               [rawget] = true, [rawset] = true, [select] = true,
               [setmetatable] = true, [tonumber] = true, [tostring] = true,
               [type] = true, [unpack] = true, [xpcall] = true }

for _, library in ipairs { bit, math, string, table, require "ffi" } do
    for _, f in pairs(library) do
        SAFE[f] = true
    end
end


-- ---- bytecode ---------------------------------------------------------------

-- Opcode -> its name; nil when this LuaJIT doesn't tell them.
local function opcodes()
    local ok, vmdef = pcall(require, "jit.vmdef")

    if not ok then
        return nil
    end

    local names = {}

    for op = 0, #vmdef.bcnames / 6 - 1 do
        names[op] = match(vmdef.bcnames, "^%S+", op * 6 + 1)
    end

    return names
end


local NAMES = opcodes()

local LOOPS = { LOOP = true, ILOOP = true, JLOOP = true }
local FORS = { FORI = true, JFORI = true }
local LAST_CALLS = { CALLT = true, CALLMT = true }


-- Instruction pc of f: its name and operands A and D; nil behind the last.
local function instruction(f, pc)
    local ins = funcbc(f, pc)

    if not ins then
        return nil
    end

    return NAMES[band(ins, 0xff)], band(rshift(ins, 8), 0xff), rshift(ins, 16)
end


-- What is put into a slot before instruction pc: the instruction's name, and
-- its constant or the number of its upvalue.
local function source_of(f, pc, slot)
    for at = pc - 1, 1, -1 do
        local name, a, d = instruction(f, at)

        if a == slot then
            if name == "UGET" then
                return name, d
            end

            if name == "KNUM" then
                return name, funck(f, d)
            end

            if name == "GGET" then
                return name, funck(f, -d - 1)
            end

            if name == "TGETS" then
                return name, funck(f, -band(d, 0xff) - 1)
            end

            return name
        end
    end
end


local function upvalue_of(f, i)
    local _, value = getupvalue(f, i + 1)

    return value
end


-- May f, a function or a prototype, run for ever?  own: what is known of the
-- policy, see below.
local function endless(f, own)
    if not NAMES then
        return true
    end

    local upvalues = type(f) == "function"

    for pc = 1, funcinfo(f).bytecodes - 1 do
        local name, a, d = instruction(f, pc)

        if LOOPS[name] or name == "JMP" and d < 0x8000 then
            return true
        end

        if FORS[name] then
            local what, value = source_of(f, pc, a + 1)

            if what == "UGET" and upvalues then
                value = upvalue_of(f, value)
            end

            if what == "TGETS" and value == "huge"
               or what ~= "TGETS" and type(value) == "number" and value >= MANY
            then
                return true
            end
        end

        if LAST_CALLS[name] then
            local what, value = source_of(f, pc, a)

            if what == "UGET" then
                if not upvalues or own.functions[upvalue_of(f, value)] then
                    return true
                end

            elseif own.names[value] then
                return true
            end
        end
    end

    return false
end


-- ---- what a policy consists of ----------------------------------------------

local function library(source)
    return find(source, "[/@]resty/") or find(source, "[/@]ngx/")
           or find(source, "^=")
end


-- Where the functions are from that the policy's table has.
local function files_of(policy)
    local files = {}
    local meta = getmetatable(policy)

    for _, t in pairs { policy, type(meta) == "table" and meta.__index } do
        if type(t) == "table" then
            for _, value in next, t do
                local info = type(value) == "function" and funcinfo(value)

                if info and info.source then
                    files[info.source] = true
                end
            end
        end
    end

    return files
end


-- Calls what(constant) for those of f that are no numbers.
local function each_constant(f, what)
    for k = -1, -MAX_CONSTANTS, -1 do
        local constant = funck(f, k)

        if constant == nil then
            return
        end

        what(constant)
    end
end


-- Calls what(f) with the prototypes within f, and those within them.
local function each_child(f, what)
    each_constant(f, function(child)
        if type(child) == "proto" then
            what(child)
            each_child(child, what)
        end
    end)
end


-- All that can be reached from it: own.functions, a set of Lua functions that
-- are no library's, and own.names, a set of what tables and globals call them;
-- own.yields: they have a way to something that may.
local function collect(policy)
    local own = { functions = {}, names = {}, yields = false }
    local files = files_of(policy)
    local seen = {}
    local queue = { policy }
    local n = 1
    local at = 1

    local function add(value)
        local kind = type(value)

        if kind ~= "function" and kind ~= "table" or seen[value] then
            return
        end

        if n == MAX_VALUES or value == ngx or value == _G
           or value == package.loaded
        then
            own.yields = true
            return
        end

        seen[value] = true
        n = n + 1
        queue[n] = value
    end

    local function ours(value)
        local source = type(value) == "function" and funcinfo(value).source

        return source and (files[source] or not library(source))
    end

    local function named(name, value)
        if type(name) == "string" and ours(value) then
            own.names[name] = true
        end

        add(value)
    end

    local function constants(f)
        each_constant(f, function(constant)
            if WAYS[constant] then
                own.yields = true
            end
        end)
    end

    local function look_into(f)
        local env = getfenv(f)

        own.functions[f] = true

        for i = 1, MAX_UPVALUES do
            local name, value = getupvalue(f, i)

            if not name then
                break
            end

            add(value)
        end

        each_constant(f, function(constant)
            if type(constant) == "string" and not WAYS[constant] then
                named(constant, env[constant])
            end
        end)

        constants(f)
        each_child(f, constants)
    end

    while at <= n do
        local value = queue[at]

        at = at + 1

        if type(value) == "table" then
            for key, field in next, value do
                named(key, field)
            end

            add(getmetatable(value))

        elseif ours(value) then
            look_into(value)

        elseif not SAFE[value]
               and not find(funcinfo(value).source or "", OURS, 1, true)
        then
            own.yields = true
        end
    end

    return own
end


-- Has those functions of a policy interpreted that may run for ever.  Returns
-- whether it may yield.
function _M.prepare(policy)
    local own = collect(policy)

    local function check(f)
        if endless(f, own) then
            jit_off(f)
        end
    end

    for f in pairs(own.functions) do
        check(f)
        each_child(f, check)
    end

    return own.yields
end


-- Has all of them interpreted.
function _M.interpret(policy)
    for f in pairs(collect(policy).functions) do
        jit_off(f, true)
    end

    -- what others have compiled of them
    flush()
end


return _M
