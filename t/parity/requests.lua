-- Compares what the dialects make of requests with what the engines' own
-- functions made of them: luajit requests.lua REQUESTS ANSWERS, two files of
-- JSON lines.  Prints a table of engines and forms, and what differs.  The
-- exit status is 0 if nothing does, and no request is refused here that the
-- engine reads.  A request that only the engine refuses is counted as sent: the
-- client gets the engine's answer.
--
-- A third file gets a line for each request that is read alike, or refused by
-- both: its number, and "same" or "refused".


local here = arg[0]:match "^(.*)/t/parity/[^/]*$" or "."

package.path = here .. "/lua/?.lua;" .. package.path

-- it must be kept: a library that is collected is unloaded
local kvr = require "ffi".load(here .. "/build/libkvr.so", true)

local template = require "resty.kv_router.template"
local tape = require "resty.kv_router.template.tape"
local text_ffi = require "resty.kv_router.tokens.text_ffi"
local value = require "resty.kv_router.template.value"

local NONE = value.NONE

local FORMS = { "chat", "messages", "responses", "completions" }
local BOS = 0
local TOKENS = { bos_token = "<|begin|>", eos_token = "<|end|>",
                 pad_token = "<|end|>" }

-- the number of requests that are printed of those that differ in one way
local SHOWN = 2


-- ---- equality ---------------------------------------------------------------

-- Both values as texts, where they differ; nil: they are equal.  Members of
-- dicts must have one order.
local function different(a, b, path)
    if type(a) ~= "table" or type(b) ~= "table" or a == NONE or b == NONE then
        if a == b then
            return nil
        end

        return string.format("%s: %s here, %s there", path, tostring(a),
                             tostring(b))
    end

    local kind = getmetatable(a)

    if kind ~= getmetatable(b) then
        return path .. ": other types"
    elseif kind == value.FLOAT then
        return a.x ~= b.x and string.format("%s: %.17g here, %.17g there",
                                            path, a.x, b.x) or nil
    elseif kind == value.BIG then
        return a.s ~= b.s and path .. ": other integers" or nil
    elseif a.n ~= b.n then
        return string.format("%s: %d elements here, %d there", path, a.n, b.n)
    end

    for i = 1, a.n do
        local found

        if kind == value.DICT and a.k[i] ~= b.k[i] then
            return string.format("%s: %s here, %s there", path, a.k[i],
                                 b.k[i])
        elseif kind == value.DICT then
            found = different(a.v[a.k[i]], b.v[b.k[i]],
                              path .. "." .. a.k[i])
        else
            found = different(a[i], b[i], path .. "[" .. i .. "]")
        end

        if found then
            return found
        end
    end
end


local VARIABLES = { "messages", "tools", "documents", "add_generation_prompt",
                    "continue_final_message" }


-- The same of variables: ours, the engine's, and the template's source;
-- variables that it does not name are of no matter.
local function vars_differ(ours, theirs, source)
    local rest = value.dict()

    for i = 1, theirs.n do
        value.dset(rest, theirs.k[i], theirs.v[theirs.k[i]])
    end

    for _, name in ipairs(VARIABLES) do
        local a, b = ours[name], rest.v[name]

        if a == nil then
            a = NONE
        end

        if b == nil and name == "continue_final_message" then
            b = false
        elseif b == nil then
            b = NONE
        end

        local found = different(a, b, name)

        if found then
            return found
        end

        rest.v[name] = nil
    end

    local kwargs = ours.kwargs

    for i = 1, kwargs.n do
        local name = kwargs.k[i]

        if rest.v[name] ~= nil or source:find(name, 1, true) then
            local there = rest.v[name]

            if there == nil then
                there = "nothing"
            end

            local found = different(kwargs.v[name], there, name)

            if found then
                return found
            end
        end
    end

    for i = 1, rest.n do
        local name = rest.k[i]

        if rest.v[name] ~= nil and kwargs.v[name] == nil then
            return name .. ": nothing here"
        end
    end
end


-- What differs; nil: nothing.
local function compared(ours, text, answer, request)
    local ids = answer.v.ids[1]
    local specials = ours.text and 0 or 1

    if ours.text and ours.text ~= request.text then
        return "another text"
    elseif not ours.text then
        -- null: they can't be written as JSON
        local found = answer.v.vars ~= NONE
                      and vars_differ(ours, answer.v.vars, request.template)

        if found then
            return found
        elseif text ~= answer.v.text then
            return string.format("text: %q here, %q there", text,
                                 answer.v.text)
        end
    end

    -- templates of ours begin with BOS
    local added = ids[specials + 1] == BOS

    if added ~= ours.add_special_tokens then
        return string.format("add_special_tokens: %s here, %s there",
                             tostring(ours.add_special_tokens),
                             tostring(added))
    end
end


-- ---- requests ---------------------------------------------------------------

-- Python-like values as plain tables, for options.
local function plain(x)
    if x == NONE then
        return nil
    elseif type(x) ~= "table" then
        return x
    end

    local made = {}

    if value.is_dict(x) then
        for i = 1, x.n do
            made[x.k[i]] = plain(x.v[x.k[i]])
        end
    else
        for i = 1, x.n do
            made[i] = plain(x[i])
        end
    end

    return made
end


local known = {}

-- The options of a request, one table for equal ones.
local function options_of(request, answer)
    local key = request.engine .. "\0" .. request.key

    if not known[key] then
        known[key] = {
            engine = request.engine,
            flags = plain(request.options),
            probed = plain(answer.v.probed),
            templates = { default = assert(template.compile(request.template, {
                name = request.key, tokens = TOKENS,
                transformers = answer.v.transformers,
            })) },
        }

        local tpl = known[key].templates.default
        local format = tpl["format_" .. request.engine]

        if format ~= answer.v.format then
            error(string.format("%s: the content format is %s here, %s there",
                                request.engine, format, answer.v.format))
        end
    end

    return known[key]
end


local room = text_ffi.text(2^20)

-- The rendered text; nil, a sentence and the kind of failure.
local function rendered(tpl, vars)
    local good, err, kind = tpl:render(vars, room)

    if not good and kind == "raise" and vars.bare_tools then
        vars.tools = vars.bare_tools
        good, err, kind = tpl:render(vars, room)
    end

    if not good then
        return nil, err, kind
    end

    return text_ffi.string(room)
end


local function module_of(engine, form)
    local name = form == "completions" and "text" or engine .. "_" .. form

    return require("resty.kv_router.dialect." .. name)
end


local function decoded(line)
    return assert(tape.decode(line))
end


local alike = arg[3] and assert(io.open(arg[3], "w"))
local counts, reasons, shown = {}, {}, {}


local function count(engine, form, what)
    local key = engine .. " " .. form

    counts[key] = counts[key] or {}
    counts[key][what] = (counts[key][what] or 0) + 1
    counts[key].all = (counts[key].all or 0) + 1
end


-- what: a sentence, of which the first words tell its kind
local function show(engine, form, what, detail, body)
    local key = engine .. form .. what .. detail:sub(1, 40)

    shown[key] = (shown[key] or 0) + 1

    if shown[key] <= SHOWN then
        print(string.format("%s %s: %s: %s\n    %s", engine, form, what,
                            detail, body))
    end
end


local function one(request, answer)
    local engine, form = request.engine, request.form
    local body, made, text, err, kind
    local refused = answer.v.error

    body, err, kind = tape.decode(request.body)

    if body then
        made, err, kind = module_of(engine, form).prepare(
            body, options_of(request, answer))

        local prompt = body.v and body.v.prompt

        request.text = value.is_list(prompt) and prompt[1] or prompt
    end

    if made and not made.text then
        text, err, kind = rendered(
            options_of(request, answer).templates.default, made)
        made = text and made
    end

    if err and err:find "^internal error" then
        count(engine, form, "differ")
        show(engine, form, "fails", err, request.body)
    elseif not made then
        if kind == "raise" and not refused then
            count(engine, form, "refused here")
            show(engine, form, "raised here alone", err, request.body)
        elseif refused then
            if alike then
                alike:write(request.id, " refused\n")
            end

            count(engine, form, kind == "raise" and "both raise"
                                or "unsupported")
        else
            count(engine, form, "unsupported")
            reasons[err] = (reasons[err] or 0) + 1
        end

    elseif refused then
        count(engine, form, "sent")
    else
        local found = compared(made, text, answer, request)

        count(engine, form, found and "differ" or "same")

        if alike and not found then
            alike:write(request.id, " same\n")
        end

        if found then
            show(engine, form, "differs", found, request.body)
        end
    end
end


local answers = {}

for line in io.lines(arg[2]) do
    local answer = decoded(line)

    answers[answer.v.id] = answer
end

local failed = false

for line in io.lines(arg[1]) do
    local r = decoded(line).v
    local answer = answers[r.id]

    if not answer then
        error("no answer to request " .. r.id)
    end

    one({ id = r.id, engine = r.engine, form = r.form, body = r.body,
          key = r.key, template = r.template, options = r.options }, answer)
end

local WHAT = { "all", "same", "both raise", "sent", "unsupported", "differ",
               "refused here" }

print(string.format("%-22s" .. ("%13s"):rep(#WHAT), "requests",
                    unpack(WHAT)))

for _, engine in ipairs { "vllm", "sglang" } do
    for _, form in ipairs(FORMS) do
        local c = counts[engine .. " " .. form]

        if c then
            local cells = {}

            for i, what in ipairs(WHAT) do
                cells[i] = c[what] or 0
            end

            print(string.format("%-22s" .. ("%13d"):rep(#WHAT),
                                engine .. " " .. form, unpack(cells)))
            failed = failed or c.differ or c["refused here"]
        end
    end
end

local sorted = {}

for reason, n in pairs(reasons) do
    sorted[#sorted + 1] = { n, reason }
end

table.sort(sorted, function(a, b)
    return a[1] > b[1] or (a[1] == b[1] and a[2] < b[2])
end)

print "unsupported here, though the engine reads them:"

for _, row in ipairs(sorted) do
    print(string.format("%8d  %s", row[1], row[2]))
end

if alike then
    alike:close()
end

os.exit(kvr and not failed and 0 or 1)
