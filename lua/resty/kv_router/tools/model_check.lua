-- Copyright (C) the nginx-kv-router authors
--
-- Tries a model directory without nginx: the program behind the command
-- kv-model-check.
--
--     luajit model_check.lua LIBKVR DIR [ENGINE]
--
-- Loads the directory as kv_router_model does, and makes of it what a router
-- makes when it is made.


local FINE = 0
local FAULT = 1
local USAGE = 2

local library, dir, engine = arg[1], arg[2], arg[3]

local function say(...)
    io.stdout:write(string.format(...), "\n")
end

local function fail(status, text)
    io.stdout:flush()
    io.stderr:write("kv-model-check: ", text, "\n")
    os.exit(status)
end

local ok, err = pcall(require("ffi").load, library, true)

if not ok then
    fail(USAGE, "libkvr can't be loaded: " .. tostring(err))
end

require("resty.kv_router.tools.host").install(function() end)

local cjson = require "cjson"
local lib = require "resty.kv_router.tokens.model_ffi"
local model = require "resty.kv_router.tokens.model"

local found

found, err = model.load(dir, engine)

if not found then
    fail(FAULT, dir .. ": " .. err)
end

local m = found.m
local bytes, strings = lib.sizes(m)

say("digest:         %s", lib.digest(m))
say("engine:         %s", lib.engine(m))

local router = found.router
               or cjson.decode(lib.text(m, "router.json") or "{}")

for name, version in pairs(router.versions or {}) do
    say("version:        %s %s", name, version)
end

if type(router.licence) == "string" then
    say("licence:        %s", router.licence)
end

for _, flag in ipairs(router.unknown_flags or {}) do
    say("unknown flag:   --%s: whether it changes token ids is not known", flag)
end

say("memory:         %.1f MB", bytes / 1e6)
say("strings:        %d have the engine's token ids", strings)
say("conversations:  %s", lib.proven(m) and "all have the engine's token ids"
                          or "none were compared")

if found.refused then
    fail(FAULT, dir .. ": the model is refused: " .. found.refused)
end

for name in pairs(found.templates) do
    say("chat template:  %s is understood", name)
end

if not next(found.templates) then
    say("chat template:  none: chats are not understood")
end

say("the model is ready")
os.exit(FINE)
