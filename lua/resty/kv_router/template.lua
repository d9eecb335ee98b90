-- Copyright (C) the nginx-kv-router authors
--
-- Chat templates of models: Jinja, compiled to Lua, rendering byte for byte
-- what transformers, and so vLLM and SGLang, render.
--
--     local tpl, err, kind = template.compile(source, {
--         name = "qwen3",                  -- for messages
--         tokens = { bos_token = "<s>" },  -- the special tokens: strings
--         transformers = "5.23.0",         -- the engine's version of it
--         zone = "UTC",                    -- the engine's time zone
--     })
--
--     tpl.format_vllm                      -- "string" or "openai": the
--     tpl.format_sglang                    --   content format by their rules
--     tpl.developer                        -- knows the role "developer"
--     tpl.dates                            -- reads the clock
--     tpl.reads_reasoning                  -- reads a field reasoning_content
--     tpl.variables                        -- a set: names that it reads of
--                                          --   what is not its own
--
--     local good, err, kind = tpl:render({
--         messages = messages,             -- values of template/value.lua
--         tools = tools,                   -- nil: None
--         documents = documents,           -- nil: None
--         add_generation_prompt = true,
--         continue_final_message = false,
--         kwargs = kwargs,                 -- a dict, or nil: other variables
--     }, text, size)                       -- a kvr_text_t; the body's bytes
--
-- Kinds of failure:
--
--     raise        the engine fails, too, and answers 4xx by itself: send it
--                  the request
--     unsupported  not known here: another rung; the sentence names the
--                  construct and its line
--
-- Other settings of compile(): now, a function: seconds since 1970; fuel, the
-- most units that a rendering may spend (1,000,000: see template/fuel.lua);
-- cpu_us, its most processor time (5,000).
--
-- The text is at most 4 times the body and 1 MB long.  After a failure it is
-- undefined.  A rendering never yields.  Only operators' templates may be
-- compiled, never one of a request.


local apply = require "resty.kv_router.template.apply"
local attributes = require "resty.kv_router.template.attributes"
local detect = require "resty.kv_router.template.detect"
local fuel = require "resty.kv_router.template.fuel"
local generator = require "resty.kv_router.template.generator"
local globals = require "resty.kv_router.template.globals"
local methods = require "resty.kv_router.template.methods"
local runtime = require "resty.kv_router.template.runtime"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local caught = value.caught
local find = string.find
local loadstring = loadstring
local match = string.match
local os_time = os.time
local pairs = pairs
local pcall = pcall
local raise = value.raise
local reset = text_ffi.reset
local setfenv = setfenv
local setmetatable = setmetatable
local tonumber = tonumber
local unsupported = value.unsupported

local NONE = value.NONE
local UNDEFINED = value.UNDEFINED


local _M = {}

local FUEL = 1000000
local CPU_US = 5000
local BODY_MAX = 16777216        -- bytes of a body, where it is not told

-- variables that apply_chat_template gives itself
local OWN = { messages = true, tools = true, documents = true,
              add_generation_prompt = true }


local _T = {}
_T.__index = _T


-- Is a version of transformers this one or a later one?  Not given: it is.
local function since(version, major, minor)
    local a, b = match(version or "", "^(%d+)%.(%d+)")

    if not a then
        return true
    end

    a, b = tonumber(a), tonumber(b)

    return a > major or (a == major and b >= minor)
end


-- The names of the request's variables that a template reads, as a set.
local function variables(names)
    local set = {}

    for i = 1, #names do
        set[names[i]] = not globals.named[names[i]] or nil
    end

    return set
end


local function compiled(source, settings)
    if not text_ffi.valid(source) then
        unsupported("the template is not UTF-8")
    end

    local code, names, tree = generator.generate(source)
    local chunk, err = loadstring(code, "=" .. (settings.name or "template"))

    if not chunk then
        unsupported("the template is too large for one function of Lua: "
                    .. err)
    end

    setfenv(chunk, {})

    local own, run = chunk(runtime)
    local format_vllm, format_sglang = detect.formats(tree, source)

    return setmetatable({
        name = settings.name or "template",
        run = run,
        own = own,
        names = names,
        source = source,
        tokens = settings.tokens or {},
        recent = since(settings.transformers, 5, 23),
        zone = settings.zone,
        now = settings.now or os_time,
        fuel = settings.fuel or FUEL,
        cpu_us = settings.cpu_us or CPU_US,
        format_vllm = format_vllm,
        format_sglang = format_sglang,
        developer = find(source, "'developer'", 1, true) ~= nil
                    or find(source, '"developer"', 1, true) ~= nil,
        dates = detect.calls(tree, "strftime_now"),
        reads_reasoning = detect.reads_field(tree, "reasoning_content"),
        variables = variables(names),
    }, _T)
end


-- A template: see above.  nil, a sentence and the kind of failure.
function _M.compile(source, settings)
    local good, tpl = pcall(compiled, source, settings or {})

    if not good then
        return nil, caught(tpl)
    end

    return tpl
end


-- The variables of a rendering by name, and the text that is continued.
function _T:variables_of(vars)
    local all, final = {}, nil

    for name, token in pairs(self.tokens) do
        all[name] = token
    end

    local kwargs = vars.kwargs

    for i = 1, kwargs and kwargs.n or 0 do
        local name = kwargs.k[i]

        if OWN[name] then
            raise("an argument that is given twice: " .. name)
        end

        all[name] = kwargs.v[name]
    end

    local messages = apply.messages(vars.messages, self.recent)

    if vars.continue_final_message then
        final = apply.mark(messages, self.source)
    end

    all.messages = messages
    all.tools = vars.tools or NONE
    all.documents = vars.documents or NONE
    all.add_generation_prompt = vars.add_generation_prompt or false

    return all, final
end


-- Runs the template with variables by name.
local function run(self, all, text)
    local given = {}

    for i = 1, #self.names do
        local name = self.names[i]
        local found = all[name]

        if found == nil then
            found = globals.named[name]
        end

        if found == nil then
            found = UNDEFINED
        end

        given[name] = found
    end

    self.run(given, text)
end


local function rendered(self, vars, text)
    local all, final = self:variables_of(vars)

    run(self, all, text)

    if final ~= nil then
        apply.cut(text, final)
    end
end


local function bounded(render, self, vars, text, size)
    local bound = 4 * (size or BODY_MAX) + 1048576

    reset(text, bound)
    fuel.start(self.fuel, self.cpu_us, bound)
    methods.depth = 0
    attributes.private_names = not self.recent
    globals.now, globals.zone = self.now, self.zone

    local good, err = pcall(render, self, vars, text)

    fuel.stop()

    for name in pairs(self.own) do
        self.own[name] = nil
    end

    if good then
        return true
    end

    return nil, caught(err)
end


-- Renders into a kvr_text_t, whatever was in it; size: the bytes of the body
-- that the variables came from, 16 MB if it is not given.  true, or nil, a
-- sentence and the kind of failure.
function _T:render(vars, text, size)
    return bounded(rendered, self, vars, text, size)
end


-- The same without what is done around templates: vars has all variables by
-- name.
function _T:render_with(vars, text, size)
    return bounded(run, self, vars, text, size)
end


-- How many units of fuel the last rendering has spent.
_M.spent = fuel.spent


-- A text for rendering.
function _M.text()
    return text_ffi.text(0)
end


return _M
