-- Templates rendered here beside what the oracle made of them.
--
--     luajit t/parity/templates.lua chats TEMPLATES CASES ORACLE [DETAILS]
--     luajit t/parity/templates.lua snippets ORACLE [DETAILS]
--
-- CASES: a conversation a line; ORACLE: {"t", "c", "text" or "error"} a line,
-- of one template after the other; or, of snippets, the variables in the first
-- line, and {"src", "text" or "error"} in the others.  DETAILS: a file for what
-- differs and what is unsupported.  The exit status is 1 when anything differs
-- or fails on one side only.


local ffi = require "ffi"
local kvr = ffi.load("kvr", true)

local tape = require "resty.kv_router.template.tape"
local template = require "resty.kv_router.template"
local text_ffi = require "resty.kv_router.text_ffi"

local format = string.format

local TOKENS = { bos_token = "<s>", eos_token = "</s>", unk_token = "<unk>",
                 pad_token = "<pad>" }
local NO_LIMIT = 1e12            -- units of fuel, microseconds


local counts = { same = 0, both_raise = 0, unsupported = 0, refused = 0,
                 differ = 0, we_raise = 0, they_raise = 0 }
local reasons = {}
local details
local text = template.text()


local function read(path)
    local file = assert(io.open(path, "rb"))
    local all = file:read("*a")

    file:close()

    return all
end


local function decode(line)
    local made, err = tape.decode(line)

    assert(made ~= nil, err)

    return made
end


local function noon()
    return 1785067200            -- 26 July 2026, 12:00 UTC
end


local function compile(source, name)
    return template.compile(source, {
        name = name, tokens = TOKENS, zone = "UTC", now = noon,
        fuel = NO_LIMIT, cpu_us = NO_LIMIT,
    })
end


local function tell(what, where, message)
    if details then
        details:write(format("%s\t%s\t%s\n", what, where, message))
    end
end


-- One rendering: theirs is a dict with text or error.
local function count(where, good, err, kind, theirs)
    local wanted = theirs.v.text
    local what

    if good then
        local ours = text_ffi.string(text)

        if wanted == nil then
            what = "they_raise"
            tell(what, where, tostring(theirs.v.error))
        elseif ours == wanted then
            what = "same"
        else
            local at = 1

            while ours:byte(at) == wanted:byte(at) do
                at = at + 1
            end

            what = "differ"
            tell(what, where, format("at byte %d\n  ours   %q\n  theirs %q", at,
                                     ours:sub(math.max(1, at - 40), at + 60),
                                     wanted:sub(math.max(1, at - 40), at + 60)))
        end

    elseif kind == "unsupported" then
        -- an error of ours is no refusal
        what = err:find("internal error", 1, true) and "differ" or "unsupported"
        reasons[err] = (reasons[err] or 0) + 1
        tell(what, where, err)

    elseif wanted == nil then
        what = "both_raise"

    else
        what = "we_raise"
        tell(what, where, err .. " | " .. wanted:sub(1, 80))
    end

    counts[what] = counts[what] + 1
end


local function flag(x)
    return x == true
end


local function given(x)
    if type(x) ~= "table" or x.n then
        return x
    end
end


local function chats(folder, cases_file, oracle_file)
    local cases, name, tpl, err = {}, nil, nil, nil

    for line in io.lines(cases_file) do
        cases[decode(line).v.name] = line
    end

    for line in io.lines(oracle_file) do
        local theirs = decode(line)

        if theirs.v.t ~= name then
            name = theirs.v.t
            tpl, err = compile(read(folder .. "/" .. name .. ".jinja"), name)

            if not tpl then
                print(format("refused: %s: %s", name, err))
            end
        end

        if not tpl then
            counts.refused = counts.refused + 1

        else
            local case = decode(cases[theirs.v.c]).v
            local good, message, kind = tpl:render({
                messages = case.messages,
                tools = given(case.tools),
                documents = given(case.documents),
                add_generation_prompt = flag(case.add_generation_prompt),
                continue_final_message = flag(case.continue_final_message),
                kwargs = given(case.kwargs),
            }, text)

            count(name .. "\t" .. theirs.v.c, good, message, kind, theirs)
        end
    end
end


local function snippets(oracle_file)
    local vars

    for line in io.lines(oracle_file) do
        if not vars then
            vars = line
        else
            local theirs = decode(line)
            local tpl, err, kind = compile(theirs.v.src, "snippet")
            local good

            if tpl then
                good, err, kind = tpl:render_with(decode(vars).v, text)
            end

            count(theirs.v.src, good, err, kind, theirs)
        end
    end
end


local mode = arg[1]
local where = mode == "chats" and arg[5] or arg[3]

details = where and assert(io.open(where, "w"))

if mode == "chats" then
    chats(arg[2], arg[3], arg[4])
else
    snippets(arg[2])
end

if details then
    details:close()
end

for reason, n in pairs(reasons) do
    print(format("unsupported %d: %s", n, reason))
end

local total = 0

for _, n in pairs(counts) do
    total = total + n
end

print(format("%s: %d cases: %d same, %d both raise, %d unsupported, %d refused "
             .. "at load, %d differ, %d only we raise, %d only they raise", mode,
             total, counts.same, counts.both_raise, counts.unsupported,
             counts.refused, counts.differ, counts.we_raise,
             counts.they_raise))

-- the library must stay loaded until here
assert(kvr)

os.exit(counts.differ + counts.we_raise + counts.they_raise == 0 and 0 or 1)
