-- Copyright (C) the nginx-kv-router authors
--
-- What engines read from a template's tree: the format in which it wants the
-- content of messages, and which names it uses.
--
-- vLLM calls the format "openai", a list of parts, if a loop walks over the
-- content of a message: a message is the target of a loop over messages, or
-- over what was set from it; a macro's parameter counts that gets such a
-- content; so does a variable "content" outside of macros.  If vLLM meets a
-- target there that is no name, it gives up and takes "string".
--
-- SGLang calls it "openai" if the text has one of four words, or if a loop walks
-- over the content of message, msg or m.


local find = string.find
local ipairs = ipairs
local next = next
local type = type


local _M = {}


-- ---- the tree ---------------------------------------------------------------

-- The fields of nodes that have nodes, in the order of Jinja's.
local FIELDS = { "target", "iter", "of", "left", "call", "key", "params", "args",
                 "test", "yes", "right", "no", "items", "named", "star",
                 "ops", "value", "from", "to", "step", "arms", "body", "other",
                 "filter" }

-- The nodes of a type, from the top down.
local function all(node, wanted, found)
    found = found or {}

    if node.t == wanted then
        found[#found + 1] = node
    end

    if node.t then
        for _, field in ipairs(FIELDS) do
            if type(node[field]) == "table" then
                all(node[field], wanted, found)
            end
        end
    else
        for _, child in ipairs(node) do
            if type(child) == "table" then
                all(child, wanted, found)
            end
        end
    end

    return found
end


local function is_name(node, name)
    return node.t == "Name" and node.name == name
end


-- Is it this variable, or its field of this key, sliced or filtered?
local function reads(node, name, key)
    while node.t == "Filter" or node.t == "Test" or node.t == "Slice" do
        node = node.of
    end

    if not key then
        return is_name(node, name)
    elseif node.t == "Item" then
        return is_name(node.of, name) and node.key.t == "Const"
               and node.key.value == key
    end

    return node.t == "Attr" and node.name == key and is_name(node.of, name)
end


local function reads_one(node, names, key)
    for _, name in ipairs(names) do
        if reads(node, name, key) then
            return true
        end
    end

    return false
end


-- ---- vLLM -------------------------------------------------------------------

-- The variables that are set from messages, and messages; nil: a target is no
-- name.
local function set_from(tree, name)
    local names, known, at = { name }, { [name] = true }, 1
    local sets = all(tree, "Set")

    while names[at] do
        for _, node in ipairs(sets) do
            if reads(node.value, names[at]) then
                local target = node.target

                if target.t ~= "Name" then
                    return nil
                elseif not known[target.name] then
                    known[target.name] = true
                    names[#names + 1] = target.name
                end
            end
        end

        at = at + 1
    end

    return names
end


-- Names of the parameters of a macro that get the content of a message.
local function content_params(macro, calls, messages)
    local params = {}

    for _, call in ipairs(calls) do
        if is_name(call.of, macro.name) then
            for i, arg in ipairs(call.args) do
                if macro.params[i] and reads_one(arg, messages, "content") then
                    params[macro.params[i].name] = true
                end
            end

            for _, named in ipairs(call.named) do
                if reads_one(named[2], messages, "content") then
                    params[named[1]] = true
                end
            end
        end
    end

    return params
end


local function vllm(tree)
    local sources = set_from(tree, "messages")
    local loops = all(tree, "For")
    local messages = {}

    if not sources then
        return "string"
    end

    for _, loop in ipairs(loops) do
        if reads_one(loop.iter, sources) then
            if loop.target.t ~= "Name" then
                return "string"
            end

            messages[#messages + 1] = loop.target.name
        end
    end

    local calls, params_of = all(tree, "Call"), {}

    for _, macro in ipairs(all(tree, "Macro")) do
        local params = content_params(macro, calls, messages)

        for _, loop in ipairs(all(macro, "For")) do
            -- of macros within each other the outer one counts unless the inner
            -- one has such parameters
            if next(params) or not params_of[loop] then
                params_of[loop] = params
            end
        end
    end

    for _, loop in ipairs(loops) do
        local params, iter = params_of[loop], loop.iter

        if reads_one(iter, messages, "content")
           or (iter.t == "Name" and (params and params[iter.name]
                                     or not params and iter.name == "content"))
        then
            return loop.target.t == "Name" and "openai" or "string"
        end
    end

    return "string"
end


-- ---- SGLang -----------------------------------------------------------------

local WORDS = { "image", "audio", "video", "vision" }
local MESSAGES = { "message", "msg", "m" }

local function sglang(tree, source)
    for _, word in ipairs(WORDS) do
        if find(source, word, 1, true) then
            return "openai"
        end
    end

    for _, loop in ipairs(all(tree, "For")) do
        if reads_one(loop.iter, MESSAGES, "content") then
            return "openai"
        end
    end

    return "string"
end


-- The content formats by vLLM's and by SGLang's rule.
function _M.formats(tree, source)
    return vllm(tree), sglang(tree, source)
end


-- ---- names ------------------------------------------------------------------

-- Is a function of this name called?
function _M.calls(tree, name)
    for _, call in ipairs(all(tree, "Call")) do
        if is_name(call.of, name) then
            return true
        end
    end

    return false
end


-- Is a field of this name read: x.name, x["name"] or x.get("name")?
function _M.reads_field(tree, name)
    local function is_const(node)
        return node.t == "Const" and node.value == name
    end

    for _, node in ipairs(all(tree, "Attr")) do
        if node.name == name then
            return true
        end
    end

    for _, node in ipairs(all(tree, "Item")) do
        if is_const(node.key) then
            return true
        end
    end

    for _, node in ipairs(all(tree, "Call")) do
        if node.of.t == "Attr" and node.of.name == "get" and node.args[1]
           and is_const(node.args[1])
        then
            return true
        end
    end

    return false
end


return _M
