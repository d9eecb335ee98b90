-- Copyright (C) the nginx-kv-router authors
--
-- Runs functions of policies that are not ours, so that none of them costs a
-- request, whatever it does: one that doesn't end is stopped, one that would
-- wait is not waited for.
--
-- It is stopped by an error, which the interpreter raises after 50 to 100 ms
-- of CPU time.  Compiled code runs on until it is back in the interpreter:
-- resty.kv_router.scan keeps the loops that may not end out of the compiler.


local ffi = require "ffi"
local lib = require "resty.kv_router.ffi"

-- nginx has others in their place, for requests
local lua_coroutine = { create = rawget(coroutine, "_create"),
                        status = rawget(coroutine, "_status") }

local cast = ffi.cast
local create = lua_coroutine.create or coroutine.create
local error = error
local guard = lib.guard
local guarded = lib.guarded
local match = string.match
local pcall = pcall
local running = coroutine.running
local thread = ngx.thread or {}
local tonumber = tonumber
local tostring = tostring
local traceback = debug.traceback
local xpcall = xpcall

local kill = thread.kill
local spawn = thread.spawn
local status = lua_coroutine.status or coroutine.status
local wait = thread.wait


local YIELDED = "it yielded, which a policy may not"
local ABORTED = "its thread was aborted"


-- anchor: a coroutine that never runs, but is kept, so that its address stays
-- that of a lua_State of this VM.
local _M = { anchor = create(function() end) }


-- A coroutine's lua_State.
local function state_of(co)
    return cast("void *", cast("uintptr_t", tonumber(
                               match(tostring(co), "0x%x+"))))
end


local vm = state_of(_M.anchor)

-- of the last one: the milliseconds that it took, when these were too many,
-- and whether it could not be stopped for a while
local took
local outran = false


local function ended()
    local ms, late = guarded()

    took = ms or took
    outran = outran or late or false

    return ms
end


local function failed(err)
    ended()

    return traceback(tostring(err), 1)
end


local function called(func, policy, ctx, more, caller)
    guard(vm, caller)

    local a, b, c, d = func(policy, ctx, more)
    local ms = ended()

    if ms then
        error("it has run for more than " .. ms .. " ms", 0)
    end

    return a, b, c, d
end


-- Calls func(policy, ctx, more); caller: the lua_State of a coroutine that waits
-- for it, or nil.  Returns true and the first four values that it returns, or
-- false and an error with a traceback; behind these five the milliseconds that
-- it took, when these were too many, else nil, and whether it could not be
-- stopped for a while.
function _M.call(func, policy, ctx, more, caller)
    took = nil
    outran = false

    local ok, a, b, c, d = xpcall(called, failed, func, policy, ctx, more,
                                  caller)

    -- errors that have no handler: no memory
    ended()

    return ok, a, b, c, d, took, outran
end


local call = _M.call


local function run(job)
    job.thread = running()
    job.ok, job.a, job.b, job.c, job.d = call(job.func, job.policy, job.ctx,
                                              nil, job.caller)
    job.ended = true
end


local function start(job)
    spawn(run, job)

    -- it yielded
    ended()
end


-- The same in a thread of its own, where there are any: an error, too, when it
-- yields, and what it waits for is forgotten.  (Errors of coroutine.wrap() are
-- no pcall()'s in nginx: they abort the thread.)
function _M.apart(func, policy, ctx)
    if not spawn then
        return call(func, policy, ctx)
    end

    local job = { func = func, policy = policy, ctx = ctx,
                  caller = state_of(running()) }
    local ok, err = pcall(start, job)

    if job.ended then
        wait(job.thread)
        return job.ok, job.a, job.b, job.c, job.d, took, outran
    end

    -- not in this phase
    if not job.thread then
        return call(func, policy, ctx)
    end

    if ok then
        err = traceback(job.thread, status(job.thread) == "suspended"
                                    and YIELDED or ABORTED)
    end

    pcall(kill, job.thread)

    return false, tostring(err), nil, nil, nil, took, outran
end


return _M
