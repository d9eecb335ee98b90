-- The table of models in docs/requests.md: which rung each engine gets for chats.
--
-- A model is tokenized in nginx if no Python code of the engine encodes it, and
-- if its chat template is understood.  Templates are those of a folder beside
-- the repository, ../shared/vectors/chat_templates; without it only the types
-- of models and the table's form are compared.


local ffi = require "ffi"

-- kept: a library that is collected is unloaded
local kvr = ffi.load("kvr", true)

local host = require "resty.kv_router.tools.host"

host.install(function() end)

local compile = require("resty.kv_router.template").compile
local lib = require "resty.kv_router.tokens.model_ffi"
local tap = require "lib.tap"

local is, note, ok = tap.is, tap.note, tap.ok


local TEMPLATES = "../shared/vectors/chat_templates/"

-- The name, the type in config.json, and a file of the folder.
local MODELS = {
    { "Apertus", "apertus", "Apertus-8B-Instruct" },
    { "Command A", "cohere2", "axolotl-command_a" },
    { "DeepSeek R1", "deepseek_v3", "hf-deepseek-ai_DeepSeek-R1" },
    { "DeepSeek V3", "deepseek_v3", "trl-deepseekv3" },
    { "DeepSeek V3.1", "deepseek_v3", "deepseek-ai-DeepSeek-V3.1" },
    { "DeepSeek V3.2", "deepseek_v32", "deepseek-ai-DeepSeek-V3.2" },
    { "DeepSeek V4", "deepseek_v4", "deepseek-ai-DeepSeek-V4" },
    { "Gemma 3", "gemma3", "trl-gemma3" },
    { "Gemma 4", "gemma4", "google-gemma-4-31B-it-interleaved" },
    { "GLM-4.6", "glm4_moe", "GLM-4.6" },
    { "GLM-5.1", "glm_moe_dsa", "hf-zai-org_GLM-5.1" },
    { "gpt-oss", "gpt_oss", "openai-gpt-oss-120b" },
    { "Granite 4.1", "granitemoehybrid", "ibm-granite-granite-4.1" },
    { "Kimi K2 Thinking", "kimi_k2", "Kimi-K2-Thinking" },
    { "Kimi K3", "kimi_k3", "Kimi-K3" },
    { "Llama 3", "llama", "trl-llama3" },
    { "Llama 3.1, 3.3", "llama", "meta-llama-Llama-3.1-8B-Instruct" },
    { "Llama 3.2", "llama", "meta-llama-Llama-3.2-3B-Instruct" },
    { "MiniMax M2", "minimax_m2", "MiniMax-M2" },
    { "Nemotron 3", "nemotron_h", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16" },
    { "Phi-4", "phi3", "axolotl-phi_4" },
    { "Qwen2.5", "qwen2", "Qwen-Qwen2.5-7B-Instruct" },
    { "Qwen3", "qwen3", "Qwen-Qwen3-0.6B" },
    { "Qwen3 2507", "qwen3_moe", "trl-qwen3_instruct_2507" },
    { "Qwen3 Coder", "qwen3_moe", "Qwen3-Coder" },
    { "Qwen3.5", "qwen3_5", "Qwen3.5-4B" },
    { "QwQ", "qwen2", "Qwen-QwQ-32B" },
    { "Seed-OSS", "seed_oss", "ByteDance-Seed-OSS" },
    { "SmolLM3", "smollm3", "HuggingFaceTB-SmolLM3-3B" },
}


local function read(name)
    local file = io.open(name, "rb")
    local text = file and file:read("*a")

    if file then
        file:close()
    end

    return text
end


local function write(name, text)
    local file = assert(io.open(name, "wb"))

    file:write(text)
    file:close()
end


-- Do engines encode models of this type by Python code?
local function coded(folder, kind)
    write(folder .. "/config.json", '{"model_type": "' .. kind .. '"}')
    write(folder .. "/tokenizer.json", "{}")

    local model = assert(lib.load(folder, "vllm"))

    return (lib.refused(model) or ""):find("Python code", 1, true) ~= nil
end


-- ---- the table --------------------------------------------------------------

local folder = os.tmpname()
local readme = assert(read("docs/requests.md"))
local rows, n = {}, 0

os.remove(folder)
assert(os.execute("mkdir -m 700 " .. folder) == 0)

for line in readme:match("| models | vLLM.-\n\n"):gmatch("[^\n]+") do
    local names, vllm, sglang, trtllm = line:match(
        "^| ([^|]-) | ([^|]-) | ([^|]-) | ([^|]-) |$")

    if names and vllm:find("^`") then
        for name in names:gmatch("[^;]+") do
            rows[name:match("^ *(.*)$")] = { vllm, sglang, trtllm }
            n = n + 1
        end
    end
end

is(n, #MODELS, "the page has each model")

local there = read(TEMPLATES .. "INDEX.tsv") ~= nil

if not there then
    note("%s is not there: no template was compiled", TEMPLATES)
end

for _, m in ipairs(MODELS) do
    local name, kind, file = m[1], m[2], m[3]
    local python = coded(folder, kind)
    local rung = python and "`render`" or "`local`"
    local row = rows[name] or {}

    if there and not python then
        local source = assert(read(TEMPLATES .. file .. ".jinja"), file)
        local tpl, err = compile(source, { name = name, zone = "UTC" })

        if not ok(tpl, name .. ": its template is understood") then
            note("%s", err)
        end
    end

    is(row[1], rung, name .. ": the rung with vLLM")
    is(row[2], python and "`remote`" or "`local`",
       name .. ": the rung with SGLang")
    is(row[3], "`render`", name .. ": the rung with TensorRT-LLM")
end

os.execute("rm -r " .. folder)
ok(kvr ~= nil, "libkvr was used")
tap.done()
