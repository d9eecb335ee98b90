-- Copyright (C) the nginx-kv-router authors
--
-- The model of a zone, which makes token ids of texts in the nginx process:
-- the rung `local`.
--
--     body      what the client sent
--     dialect   the variables of the chat template, as that engine makes them
--               of the body: resty.kv_router.dialect.<engine>_<form>; of a form
--               without messages the text: resty.kv_router.dialect.text
--     template  the text: resty.kv_router.template
--     C         the token ids, in slices
--
-- Two kinds of failure: raise, the engine will refuse the request, which is
-- sent there to be refused; and all others, by which the next rung is asked.


local decode_json = require "cjson.safe".decode
local engines = require "resty.kv_router.tokens.engines"
local garbage = require "resty.kv_router.tokens.garbage"
local lib = require "resty.kv_router.tokens.model_ffi"
local log = require "resty.kv_router.request.log"

local ERR = ngx.ERR
local INFO = ngx.INFO
local WARN = ngx.WARN
local WHY = require("resty.kv_router.ffi").WHY
local error = error
local format = string.format
local gmatch = string.gmatch
local huge = math.huge
local ipairs = ipairs
local min = math.min
local ngx_log = ngx.log
local ngx_now = ngx.now
local ngx_time = ngx.time
local out_of_time = require("resty.kv_router.template.value").out_of_time
local pairs = pairs
local pcall = pcall
local require = require
local setmetatable = setmetatable
local tonumber = tonumber
local tostring = tostring
local type = type


local _M = {}
local mt = { __index = _M }


local BUDGET = 0.05              -- seconds, and for each byte of the body
local BUDGET_BYTE = 2e-6

-- Microseconds of processor time for reading a body, without a pause: other
-- requests of the process wait.
local READ_US = 20000

local NOT_IN_TIME = "the text was not encoded in time"
local NO_TEMPLATE = "a model without a chat template"    -- also of dialects

-- Bytes of the text that a template makes of a body.
local TEXT_BYTE = 4
local TEXT = 2^20
local TEXT_MAX = 64 * 2^20


-- ---- what a directory says --------------------------------------------------

-- The members of router.json, or what stands for them in a directory of Hugging
-- Face.  Returns nil and a sentence.
local function description(m)
    local text = lib.text(m, "router.json")

    if text then
        local router, err = decode_json(text)

        return router, err and '"router.json": ' .. err
    end

    local config, err = decode_json(lib.text(m, "tokenizer_config.json")
                                    or "{}")

    if not config then
        return nil, '"tokenizer_config.json": ' .. err
    end

    local tokens = {}

    for name, value in pairs(config) do
        if name:sub(-6) == "_token" then
            tokens[name] = type(value) == "table" and value.content or value
        end
    end

    return { special_tokens = tokens, options = {}, versions = {},
             config = config }
end


-- The sources of the chat templates by their names.
local function sources(m, router)
    local found = {}

    for name, file in pairs(router.templates or {}) do
        found[name] = lib.text(m, file)
    end

    if router.templates then
        return found
    end

    local source = lib.text(m, "chat_template.jinja")
    local config = router.config.chat_template

    if not source and type(config) == "table" then
        for _, t in ipairs(config) do
            found[t.name] = t.template
        end

        return found
    end

    found.default = source or config

    return found
end


-- ---- the conversations ------------------------------------------------------

-- Arguments of apply_chat_template() that are no variables of the request.
local OWN = { tools = true, add_generation_prompt = true,
              continue_final_message = true }


-- What a template renders of a conversation of router.json.
local function variables(value, chat)
    local arguments = chat.v.arguments
    local kwargs = value.dict()
    local vars = { messages = chat.v.messages, kwargs = kwargs }

    for i = 1, arguments.n do
        local name = arguments.k[i]

        if OWN[name] then
            vars[name] = arguments.v[name]
        else
            value.dset(kwargs, name, arguments.v[name])
        end
    end

    return vars
end


-- Is the text of a conversation what the engine makes of it?  nil, or a
-- sentence.
local function compare_one(self, chat, text, value, texts)
    local tpl = self.templates[chat.v.template]

    if not tpl then
        return "names no template"
    end

    local ok, err, kind = tpl:render(variables(value, chat), text)

    if chat.v.raises then
        if kind ~= "raise" then
            return "raises in the engine, and not here: " .. chat.v.raises
        end

        return nil
    end

    if not ok then
        -- requests like this one are not understood, others are
        if kind == "unsupported" then
            return nil
        end

        return "raises here, and not in the engine: " .. err
    end

    if texts.string(text) ~= chat.v.text then
        return "has another text here than in the engine"
    end

    local ids, n = lib.encode(self.m, text)

    if not ids then
        return "is not tokenized: " .. n
    end

    if n ~= chat.v.ids.n then
        return format("has %d token ids here and %d in the engine", n,
                      chat.v.ids.n)
    end

    for i = 1, n do
        if ids[i - 1] ~= chat.v.ids[i] then
            return format("has other token ids here than in the engine, the "
                          .. "first of them at %d", i - 1)
        end
    end

    return nil
end


-- Renders the conversations of router.json.  nil, or a sentence.
local function compare(self)
    local list = lib.text(self.m, "conversations")

    if not list or lib.proven(self.m) then
        return nil
    end

    local decode = require("resty.kv_router.template.tape").decode
    local texts = require "resty.kv_router.tokens.text_ffi"
    local value = require "resty.kv_router.template.value"
    local text = texts.text(TEXT_MAX)
    local i = 0

    self.at = self.router.dumped_at

    for line in gmatch(list, "[^\n]+") do
        local chat, err = decode(line)

        i = i + 1
        err = not chat and "can't be read: " .. err
              or compare_one(self, chat, text, value, texts)

        if err then
            return format('conversation %d of "router.json" %s', i, err)
        end
    end

    self.at = nil
    lib.prove(self.m)

    return nil
end


-- ---- making -----------------------------------------------------------------

local function text_of(value)
    return type(value) == "string" and value or nil
end


-- What the templates and the dialects are told of the model: the settings of
-- resty.kv_router.template and of resty.kv_router.dialect.options.
local function options(self)
    local router = self.router
    local tokens = {}

    for name, token in pairs(router.special_tokens or {}) do
        tokens[name] = text_of(token)
    end

    return {
        name = self.name,
        engine = self.engine,
        tokens = tokens,
        transformers = text_of((router.versions or {}).transformers),
        zone = text_of(router.time_zone),
        now = function() return self.at or ngx_time() end,
        flags = router.options or {},
        probed = router.probed or {},
        model_type = text_of(router.model_type),
    }
end


-- Makes all that a request needs.  nil, or a sentence: the model is refused.
local function build(self)
    local router, err = description(self.m)

    if not router then
        return err
    end

    self.router = router
    self.options = options(self)
    self.templates = {}

    local compile = require("resty.kv_router.template").compile

    for name, source in pairs(sources(self.m, router)) do
        local tpl

        tpl, err = compile(source, self.options)

        if not tpl then
            return format('chat template "%s": %s', name, err)
        end

        self.templates[name] = tpl
    end

    self.options.templates = self.templates

    return compare(self)
end


-- What a router has of a model; and was it built: C has not refused it.
local function make(m, name)
    local self = setmetatable({ m = m, name = name, engine = lib.engine(m),
                                dialects = {} }, mt)

    self.refused = lib.refused(m)

    if self.refused then
        return self, false
    end

    local ok, err = pcall(build, self)

    self.refused = not ok and "internal error: " .. tostring(err) or err

    return self, true
end


-- The model of the zone of that name, or nil: there is none.  A model that is
-- refused has the field refused, a sentence, and tokenizes nothing.  To be
-- called when a router is made.
function _M.new(name)
    local m = lib.find(name)

    if not m then
        return nil
    end

    local self, built = make(m, name)

    if built and self.refused then
        ngx_log(WARN, 'kv_router: the model of zone "', name, '" is refused: ',
                self.refused, "; engines are asked for the token ids of its "
                              .. "texts")
    end

    if built then
        lib.state(name, self.refused or "")
    end

    return self
end


-- The same without nginx, of a directory: nil and a sentence if it can't be
-- read.  engine: as in kv_router_model, or nil.
function _M.load(dir, engine)
    local m, err = lib.load(dir, engine)

    if not m then
        return nil, err
    end

    return (make(m, dir))
end


-- ---- tokenizing -------------------------------------------------------------

-- The dialect for a form; nil: there is none.
local function dialect_of(self, form)
    local found = self.dialects[form.name]

    if found == nil then
        local ok, dialect = pcall(require, "resty.kv_router.dialect."
                                           .. (form.plain and "text" or
                                               self.engine .. "_" .. form.name))

        found = ok and dialect or false
        self.dialects[form.name] = found
    end

    return found or nil
end


-- The variables of a body; nil, a sentence and the kind of failure.
local function read(self, dialect, place)
    local decode = require("resty.kv_router.template.tape").body
    local body, err, kind = decode(place.tape, place.pause)

    if not body then
        return nil, err, kind
    end

    return dialect.prepare(body, self.options)
end


-- The same within READ_US.
local function read_in_time(self, dialect, place)
    local fuel = require "resty.kv_router.template.fuel"

    fuel.start(huge, READ_US, huge)

    local good, vars, err, kind = pcall(read, self, dialect, place)

    fuel.stop()

    if not good then
        error(vars, 0)
    end

    return vars, err, kind
end


-- Fills the text, by the dialect and the template.  Returns the flags of the
-- encoder; nil, a sentence and the kind of failure.
local function fill(self, job, place)
    local text = place.text
    local dialect = dialect_of(self, job.form)

    if not dialect then
        return nil, format("no dialect of %s for %s", self.engine,
                           job.form.name),
               "unsupported"
    end

    local vars, err, kind = read_in_time(self, dialect, place)

    if not vars then
        return nil, err, kind
    end

    local flags = vars.add_special_tokens and lib.ADD_SPECIAL or 0

    if vars.text then
        local text_ffi = require "resty.kv_router.tokens.text_ffi"

        if not text_ffi.append(text, vars.text) then
            return nil, "the text is too long", "too_long"
        end

        return flags
    end

    local tpl = self.templates[vars.template or "default"]

    if not tpl then
        return nil, NO_TEMPLATE, "unsupported"
    end

    if place.pause and not pcall(place.pause) then
        return nil, NOT_IN_TIME, "budget"
    end

    local ok

    ok, err, kind = tpl:render(vars, text, place.size)

    -- SGLang, too, tries a template that refuses its tools with bare ones
    if not ok and kind == "raise" and vars.bare_tools then
        vars.tools = vars.bare_tools
        ok, err, kind = tpl:render(vars, text, place.size)
    end

    if not ok then
        return nil, err, kind
    end

    return flags
end


-- Tokenizes in the place that was taken.  Returns ids and their number; nil, a
-- sentence and the kind of failure.
local function run(self, job, place)
    local ok, flags, err, kind = pcall(fill, self, job, place)

    if place.pause then
        garbage.resume()
    end

    if not ok then
        return nil, tostring(flags), "failed"
    end

    if not flags then
        return nil, err, kind or "unsupported"
    end

    local ids, n = lib.encoded(place.number, flags, place.deadline,
                               place.pause ~= nil)

    if ids then
        return ids, n
    end

    if n == lib.AGAIN then
        return nil, NOT_IN_TIME, "budget"
    end

    return nil, lib.error(n), n == lib.TOO_LONG and "too_long" or "failed"
end


-- A place for the text of a body, or nil as lib.take().  A table: number and
-- text, tape and size of the body, deadline, and pause for a long one, which
-- waits for a turn of the event loop.
local function take(job, tape, seconds)
    local size = tonumber(tape.text_len)
    local number, text = lib.take(job.r, job.zone,
                                  min(TEXT_BYTE * size + TEXT, TEXT_MAX))

    if not number then
        return nil, text
    end

    local place = { number = number, text = text, tape = tape, size = size,
                    deadline = ngx_now() + (seconds
                                            or BUDGET + BUDGET_BYTE * size) }

    if job.long then
        place.pause = function()
            garbage.resume()

            if not lib.pause(number, place.deadline) then
                out_of_time(NOT_IN_TIME)
            end

            garbage.suspend()
        end
    end

    return place
end


-- The token ids of a request's text.  job: as for tokens/tokenizer.lua;
-- seconds: that it may take, or nil.  Returns an entry with tokens, n and drop,
-- a function to be called when the tokens are not needed any more; or nil, one
-- of WHY, and whether the engine will refuse the request, too.  Yields.
function _M:tokenize(job, seconds)
    local tape = lib.body(job.r)

    if not tape then
        return nil, WHY.NO_PROMPT
    end

    local function failed(kind, err)
        local busy = kind == "busy" or kind == "budget"

        engines.count(job.zone, busy and "texts.busy" or "texts.failed")

        if err == NO_TEMPLATE then
            log.limited("no template " .. self.name, log.MINUTE, ERR,
                        'zone "' .. self.name .. '": the model has no chat '
                        .. "template, so chats have no token ids of it: put "
                        .. "the engine's chat_template.jinja into its "
                        .. "directory, run kv-model-dump again if a router.json "
                        .. "is there, and reload nginx")

        elseif kind == "failed" then
            log.limited("local " .. self.name, log.MINUTE, WARN,
                        'zone "' .. self.name .. '": model: ' .. tostring(err))
        else
            ngx_log(INFO, 'kv_router: zone "', self.name, '": model: ', kind,
                    ": ", log.told(err))
        end

        return nil, kind == "too_long" and WHY.TOO_LONG or WHY.TOKENIZER,
               kind == "raise"
    end

    local place, busy = take(job, tape, seconds)

    if not place then
        return failed(busy and "busy" or "failed",
                      busy and "too many texts at a time" or "no memory")
    end

    local number = place.number
    local ids, n, kind = run(self, job, place)

    if not ids then
        lib.drop(number)

        return failed(kind, n)
    end

    engines.count(job.zone, "texts.done")

    return { tokens = ids, n = n, drop = function() lib.drop(number) end }
end




return _M
