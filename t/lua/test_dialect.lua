-- What the dialects make of requests is what the engines' own functions made of
-- them: the golden requests of t/vectors/dialect.


local tap = require "lib.tap"
local jinja = require "lib.jinja"
local bit = require "bit"
local value = require "resty.kv_router.template.value"
local template = require "resty.kv_router.template"
local text_ffi = require "resty.kv_router.tokens.text_ffi"

local is, ok = tap.is, tap.ok

local VECTORS = "t/vectors/dialect/"
local TOKENS = { bos_token = "<|begin|>", eos_token = "<|end|>",
                 pad_token = "<|end|>" }


local function fnv(text)
    local hash = 0xcbf29ce484222325ULL

    for i = 1, #text do
        hash = bit.bxor(hash, text:byte(i) + 0ULL) * 0x100000001b3ULL
    end

    return bit.tohex(hash)
end


local function read(name)
    local file = assert(io.open(VECTORS .. name, "rb"))
    local text = file:read "*a"

    file:close()

    return text
end


-- Python-like values as plain tables.
local function plain(x)
    if x == value.NONE then
        return nil
    elseif type(x) ~= "table" then
        return x
    end

    local made = {}

    for i = 1, x.n do
        if x.k then
            made[x.k[i]] = plain(x.v[x.k[i]])
        else
            made[i] = plain(x[i])
        end
    end

    return made
end


local function options_of(line)
    return {
        engine = line.engine,
        flags = plain(line.flags),
        probed = plain(line.probed),
        templates = { default = assert(jinja.compile(
            read("templates/" .. line.template .. ".jinja"),
            { name = line.template, tokens = TOKENS,
              transformers = line.transformers })) },
    }
end


local text = template.text()

-- The text that the template makes of variables.
local function rendered(tpl, vars)
    local good, err, kind = tpl:render(vars, text)

    if not good and kind == "raise" and vars.bare_tools then
        vars.tools = vars.bare_tools
        good, err, kind = tpl:render(vars, text)
    end

    return good and text_ffi.string(text), err, kind
end


-- What is wrong; nil: nothing.
local function wrong(options, case)
    local name = case.form == "completions" and "text"
                 or options.engine .. "_" .. case.form
    local dialect = require("resty.kv_router.dialect." .. name)
    local body = jinja.value(case.body)
    local vars, err, kind = dialect.prepare(body, options)
    local specials = 0

    if vars and not vars.text then
        local made

        made, err, kind = rendered(options.templates.default, vars)

        if not made then
            vars = nil
        elseif case.text and fnv(made) ~= case.text then
            return "another text: " .. made
        end

        specials = 1
    end

    if not case.specials then
        return nil      -- the engine refuses it, and so nothing is compared
    elseif not vars then
        return string.format("%s: %s", kind, err)
    elseif vars.text then
        local prompt = body.v.prompt

        if vars.text ~= (value.is_list(prompt) and prompt[1] or prompt) then
            return "another text: " .. vars.text
        end
    end

    if vars.add_special_tokens then
        specials = specials + 1
    end

    return specials ~= case.specials
           and string.format("%d tokens BOS, not %d", specials, case.specials)
           or nil
end


for _, engine in ipairs { "vllm", "sglang" } do
    local options
    local counts = {}

    for line in read(engine .. ".jsonl"):gmatch "[^\n]+" do
        local case = jinja.value(line).v

        if case.engine then
            options = options_of(case)
        else
            local found = wrong(options, case)
            local count = counts[case.form] or { good = 0, all = 0 }

            counts[case.form] = count
            count.all = count.all + 1

            if found then
                tap.note("%s %s: %s\n%s", engine, case.form, found, case.body)
            else
                count.good = count.good + 1
            end
        end
    end

    for _, form in ipairs { "chat", "messages", "responses",
                            "completions" } do
        local count = counts[form]

        ok(count and count.all > 50, engine .. ": requests of the form "
                                     .. form)
        is(count.good, count.all, string.format(
            "%s %s: as the engine prepares them", engine, form))
    end
end


tap.done()
