-- Copyright (C) the nginx-kv-router authors
--
-- Tries a policy without nginx: the program behind the command
-- kv-router-check, which runs it in a process of its own and ends it when the
-- time is up.
--
--     luajit check.lua NAME [CONF]
--
-- Loads the policy as resty.kv_router's new() does, and asks it as
-- router:access() does, once for each of the contexts of
-- resty.kv_router.tools.check_contexts.  Each step is named before it begins.
--
-- Nothing is compiled, so that a loop that never ends can be interrupted: such a
-- step is ended after some seconds of processor time, with a traceback.  So is a
-- step by which the process has too much memory.
--
-- The command translates these exit statuses to 0, 1 and 2.  Any other status
-- means that the process did not come to its end, perhaps because the policy
-- has ended it by a function of C.


local FINE = 10
local FAULT = 11
local USAGE = 12

local SECONDS = 2                -- of processor time for one call of a policy
local MEMORY = 512               -- MiB of Lua objects, all in all
local INSTRUCTIONS = 100000      -- of LuaJIT, between two looks at these

jit.off()

local ffi = require "ffi"
local host = require "resty.kv_router.tools.host"

local clock = os.clock
local exit = os.exit
local errors = 0                 -- kinds of faults
local within_line = false
local step                       -- what is being done, with the policy's name
local began                      -- when, in seconds of processor time

local function out(text)
    io.stdout:write(text)
    io.stdout:flush()
    within_line = text:sub(-1) ~= "\n"
end

local function say(text)
    if within_line then
        out("\n")
    end

    io.stderr:write(text, "\n")
end

local function fail(status, text)
    say("kv-router-check: " .. text)
    exit(status)
end

host.install(function(level, ...)
    local line = host.line(...)

    -- resty.kv_router.request.log begins its lines so; a policy's own lines do not
    if level == ngx.ERR and line:find("^kv_router: ") then
        errors = errors + 1
        line = line:sub(12)
    end

    say("  " .. line)
end)

local contexts = require "resty.kv_router.tools.check_contexts"
local costs = require "resty.kv_router.request.explain".costs
local lib = require "resty.kv_router.ffi"
local policy = require "resty.kv_router.policy"


-- ---- watching ---------------------------------------------------------------

local function begin(what)
    step, began = what, clock()
end


-- Ends the process, with the place of the function that has called the caller
-- of this.
local function stop(text)
    debug.sethook()
    fail(FAULT, debug.traceback(step .. ": " .. text, 3))
end


-- Ends the process when a step takes too long, or has made too much.
local function watch()
    if clock() - began >= SECONDS then
        stop("it has run for more than " .. SECONDS
             .. " s: an endless loop?")
    end

    if collectgarbage("count") > MEMORY * 1024 then
        stop("it has more than " .. MEMORY .. " MiB of memory: a table that "
             .. "only grows?")
    end
end


-- In nginx os.exit() ends the nginx process with all its requests.
local function watch_exit()
    rawset(os, "exit", function()
        stop("it has called os.exit(), which ends the nginx process with all "
             .. "its requests: return from the function instead")
    end)
end


-- Tells of the global variables that are made from now on.  In nginx they are
-- shared by all requests.
local function watch_globals()
    setmetatable(_G, {
        __newindex = function(globals, name, value)
            local info = debug.getinfo(2, "Sl")

            errors = errors + 1
            say("  " .. info.short_src .. ":" .. info.currentline
                .. ': the variable "' .. tostring(name) .. '" is global, and so '
                .. 'shared by all requests: write "local" before it')
            rawset(globals, name, value)
        end
    })
end


-- ---- asking -----------------------------------------------------------------

-- Asks the policy, and tells it what came of the request.  Returns how many
-- microseconds the decision took, whether pick() took too long, and a text with
-- the choice.
local function ask(self, ctx)
    if self.policy.explain then
        costs(self, ctx)
    end

    local started = lib.now_us()
    local list, _, reason, failed, _, slow = policy.decide(self, ctx)
    local took = lib.now_us() - started
    local c = ctx.candidates[list[0] + 1]

    if self.done then
        local outcome = ffi.new("ngx_http_kv_router_outcome_t")

        outcome.worker_data = c.worker_data
        outcome.worker_len = c.worker_len
        outcome.holder, outcome.rank = c.holder, c.rank
        outcome.tries, outcome.status = 1, 200
        outcome.first_byte_us, outcome.total_us = 50000, 900000

        policy.finish(self, ctx, outcome)
    end

    return took, slow, failed and "FAULT: the least loaded worker is taken"
                       or string.format('"%s" rank %d%s', c.worker, c.rank,
                                        reason and ": " .. reason or "")
end


-- Without workers any answer will do, and an error, too: but there must be one.
local function ask_without_workers(self, title)
    out(" " .. title .. ": ")
    pcall(self.pick, self, contexts.make(contexts.empty(), self.roles))
    out("ended\n")
end


local function try(self)
    local n, slowest, slow_picks, before = 0, 0, 0, errors

    contexts.each(function(case, drawn)
        n = n + 1

        local title = n .. " " .. case[1]
        local known = errors

        if not drawn then
            out(" " .. title .. ": ")
        end

        begin('policy "' .. self.name .. '", context ' .. title)

        local took, slow, chosen = ask(self, contexts.make(case, self.roles))

        slowest = math.max(slowest, took)
        slow_picks = slow_picks + (slow and 1 or 0)

        if drawn and errors > known then
            out(" " .. title .. ": ")
        end

        if not drawn or errors > known then
            out(string.format("%s%s, %.2f ms%s\n", within_line and "" or "   ",
                              chosen, took / 1000, slow and ", SLOW" or ""))
        end
    end)

    begin('policy "' .. self.name .. '", no workers')
    ask_without_workers(self, "no workers")

    out(string.format("%d contexts, kinds of faults: %d, picks over 10 ms: "
                      .. "%d, the slowest: %.2f ms\n", n + 1, errors - before,
                      slow_picks, slowest / 1000))
end


-- ---- the policy -------------------------------------------------------------

-- CONF: a table in Lua, or the name of a file with an object in JSON.
local function settings(text)
    if text:find("%.json$") then
        local file, err = io.open(text)

        if not file then
            fail(USAGE, "CONF: " .. err)
        end

        local ok, conf = pcall(require("cjson").decode, file:read("*a"))

        file:close()

        if not ok or type(conf) ~= "table" then
            fail(USAGE, "CONF: " .. text .. " is no JSON object: "
                        .. tostring(conf))
        end

        return conf
    end

    local chunk, err = loadstring("return " .. text, "=CONF")

    if not chunk then
        fail(USAGE, "CONF is no Lua table: " .. err)
    end

    local ok, conf = pcall(setfenv(chunk, { math = math }))

    if not ok or type(conf) ~= "table" then
        fail(USAGE, "CONF is no Lua table: "
                    .. (ok and "it is a " .. type(conf) or tostring(conf)))
    end

    return conf
end


local function load(name, conf)
    local ok, self, err = xpcall(policy.load, debug.traceback, name, conf)

    if not ok then
        err = self
    end

    if not ok or not self then
        fail(FAULT, err)
    end

    return self
end


local function try_one(name, text)
    local conf = text and settings(text)

    out('policy "' .. name .. '"\n load: ')
    begin('policy "' .. name .. '", load')
    watch_globals()

    local self = load(name, conf)

    out("ok\n")
    try(self)
end


local function main(name, conf)
    begin("start")
    watch_exit()
    debug.sethook(watch, "", INSTRUCTIONS)
    try_one(name, conf)
    exit(errors > 0 and FAULT or FINE)
end


main(...)
