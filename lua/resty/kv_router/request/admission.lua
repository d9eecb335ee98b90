-- Copyright (C) the nginx-kv-router authors
--
-- Admission: requests that find no room at any worker wait for it in the queue
-- of their zone, in the order of their classes and tenants.  docs/admission.md
-- says what that is for; admission/kvr_order.h has the order.
--
--     local gate = admission.new(zone_name, conf)
--     local queued = gate:begin(r, zone, request)
--
--     while not room() do
--         local ok, why = queued and gate:wait(r, zone, queued)
--
--         if not ok then
--             return why
--         end
--     end


local checked = require "resty.kv_router.request.conf".check
local ffi = require "ffi"
require "resty.kv_router.request.body"   -- declares ngx_http_kv_router_sem_post_pt
local limited = require "resty.kv_router.request.log".limited
local log = require "resty.kv_router.request.log"
local semaphore = require "ngx.semaphore"

local C = ffi.C
local WARN = ngx.WARN
local cast = ffi.cast
local concat = table.concat
local ffi_new = ffi.new
local find = string.find
local format = string.format
local ipairs = ipairs
local max = math.max
local min = math.min
local new_semaphore = semaphore.new
local now = ngx.now
local now_us = require("resty.kv_router.ffi").now_us
local pairs = pairs
local pcall = pcall
local setmetatable = setmetatable
local sleep = ngx.sleep
local sort = table.sort
local start_time = ngx.req.start_time
local sub = string.sub
local tonumber = tonumber
local tostring = tostring
local type = type
local var = ngx.var


ffi.cdef [[
typedef struct {
    const unsigned char *text;
    size_t               text_len;
    double               weight;
    double               most;
    uint32_t             max_active;
} ngx_http_kv_router_rule_t;

int ngx_http_kv_router_ffi_queue_rules(void *zone,
    const ngx_http_kv_router_rule_t *classes, uint32_t nclasses,
    const ngx_http_kv_router_rule_t *tenants, uint32_t ntenants);
int ngx_http_kv_router_ffi_queue_begin(ngx_http_request_t *r, void *zone,
    uint32_t class, const unsigned char *tenant, size_t len,
    double max_tokens, double wait);
int ngx_http_kv_router_ffi_queue_line(ngx_http_request_t *r, void *zone,
    void *semaphore, ngx_http_kv_router_sem_post_pt post);
int ngx_http_kv_router_ffi_queue_poll(ngx_http_request_t *r, void *zone);
int ngx_http_kv_router_ffi_queue_leave(ngx_http_request_t *r, void *zone);
double ngx_http_kv_router_ffi_queue_expected(ngx_http_request_t *r);
]]


local _M = {}
local mt = { __index = _M }


local OK = 0
local WAITS, GOES = 0, 1         -- NGX_HTTP_KV_ROUTER_QUEUE_...

-- by these numbers, from 0
local REASONS = { [0] = "queue_full", "tenant_limit", "too_late", "overload",
                  "left", "no_worker" }

local CLASSES_MAX = 8
local TENANTS_MAX = 64
local NAME_MAX = 31              -- bytes of a class's name
local LOOK = 1                   -- seconds between two looks, without a wake
local AGAIN = 0.02               -- seconds before a request looks again that has
                                 -- been granted a place in vain

local CLASS = {
    weight = { type = "number", default = 1, min = 1e-3, max = 1e6 },
    wait = { type = "number", default = 5, min = 0.01, max = 3600 },
    most = { type = "number", default = 1, min = 1e-3, max = 1 },
}

local TENANT = {
    weight = { type = "number", default = 1, min = 1e-3, max = 1e6 },
    max_active = { type = "number", default = 0, integer = true },
}

-- Rules by zone: of all routers of this configuration, the one that has some.
local rules_of = {}

local post                       -- of the Lua module, which nginx alone has


-- ---- settings ---------------------------------------------------------------

-- A list of what a table of settings names, in the order of the names.  Returns
-- nil and what is wrong.
local function named(given, what, specs, most, name_max)
    local list = {}

    for name, conf in pairs(given) do
        if type(name) ~= "string" or name == "" or #name > name_max
           or find(name, "%c")
        then
            return nil, '"' .. what .. '": the name "' .. tostring(name)
                        .. '" must be a string of 1 to ' .. name_max
                        .. " bytes without control characters"
        end

        local complete, err = checked(conf, specs)
        if not complete then
            return nil, '"' .. what .. '" of "' .. name .. '": ' .. err
        end

        complete.name = name
        list[#list + 1] = complete
    end

    if #list > most then
        return nil, '"' .. what .. '" must be at most ' .. most .. ", not "
                    .. #list
    end

    sort(list, function(a, b) return a.name < b.name end)

    return list
end


-- The first class is that of requests whose class is none of these.
local function fallback_first(classes)
    local at = 1

    for i, class in ipairs(classes) do
        if class.name == "default" then
            at = i
            break
        end

        if class.weight < classes[at].weight then
            at = i
        end
    end

    classes[1], classes[at] = classes[at], classes[1]
end


-- All that is said of the classes and tenants, as a text.
local function text_of(rules)
    local list = {}

    for _, class in ipairs(rules.classes) do
        list[#list + 1] = format("%q %.17g %.17g %.17g", class.name,
                                 class.weight, class.wait, class.most)
    end

    for _, tenant in ipairs(rules.tenants) do
        list[#list + 1] = format("%q %.17g %d", tenant.name, tenant.weight,
                                 tenant.max_active)
    end

    return concat(list, "\n")
end


local function rules_from(conf)
    local classes, tenants, err

    classes, err = named(conf.classes or { default = {} }, "classes", CLASS,
                         CLASSES_MAX, NAME_MAX)
    if not classes then
        return nil, err
    end

    if #classes == 0 then
        return nil, '"classes" must have at least one'
    end

    tenants, err = named(conf.tenants or {}, "tenants", TENANT, TENANTS_MAX,
                         256)
    if not tenants then
        return nil, err
    end

    fallback_first(classes)

    local index = {}

    for i, class in ipairs(classes) do
        index[class.name] = i
    end

    local rules = { classes = classes, tenants = tenants, index = index }

    rules.text = text_of(rules)

    return rules
end


-- What a request is asked for its class or tenant: a function that returns a
-- string or nil.  Returns nil and what is wrong with the setting.
local function asker(what, given)
    if given == nil then
        return function() end
    end

    if type(given) == "function" then
        return given
    end

    if type(given) ~= "string" then
        return nil, 'the value of "' .. what .. '" must be a string or a '
                    .. "function, not " .. type(given)
    end

    if sub(given, 1, 1) ~= "$" then
        return function() return given end
    end

    local name = sub(given, 2)

    return function() return var[name] end
end


-- conf: class, tenant, classes, tenants of kv.new().  Returns nil and what is
-- wrong.
function _M.new(zone_name, conf)
    local class, tenant, rules, err

    class, err = asker("class", conf.class)
    if not class then
        return nil, err
    end

    tenant, err = asker("tenant", conf.tenant)
    if not tenant then
        return nil, err
    end

    rules, err = rules_from(conf)
    if not rules then
        return nil, err
    end

    if conf.classes or conf.tenants then
        local other = rules_of[zone_name]

        if other and other.text ~= rules.text then
            return nil, "the classes or tenants are not those of another "
                        .. 'kv.new() of the zone "' .. zone_name
                        .. '": give both the same, or give them once'
        end

        rules_of[zone_name] = rules
    end

    return setmetatable({ name = zone_name, class = class, tenant = tenant,
                          own = rules }, mt)
end


-- ---- requests ---------------------------------------------------------------

local function list_of(rules)
    local list = ffi_new("ngx_http_kv_router_rule_t[?]", #rules + 1)

    for i, rule in ipairs(rules) do
        local to = list[i - 1]

        to.text = rule.name
        to.text_len = #rule.name
        to.weight = rule.weight
        to.most = rule.most or 1
        to.max_active = rule.max_active or 0
    end

    return list, #rules
end


-- The zone is told the rules by the first request of the process.  False: it
-- has no queue.
local function start(self, zone)
    local rules = rules_of[self.name] or self.own
    local classes, n = list_of(rules.classes)
    local tenants, m = list_of(rules.tenants)

    self.rules = rules

    return C.ngx_http_kv_router_ffi_queue_rules(zone, classes, n, tenants, m)
           == OK
end


local function ask(self, what, request)
    local ok, name = pcall(self[what], request)

    if not ok or name ~= nil and type(name) ~= "string" then
        limited("admission " .. what, log.MINUTE, WARN,
                'zone "' .. self.name .. '": the function "' .. what
                .. '" of kv.new() returned '
                .. (ok and "a " .. type(name) or "an error: " .. tostring(name))
                .. ", so the request has none")

        return ""
    end

    return name or ""
end


-- A request is asked for its class and tenant.  Returns what wait() needs; nil:
-- the zone has no queue, and wait() must not be called.  request: as policies
-- have it.
function _M.begin(self, r, zone, request)
    if self.on == nil then
        self.on = start(self, zone)
    end

    if not self.on then
        return nil
    end

    local rules = self.rules
    local index = rules.index[ask(self, "class", request)] or 1
    local tenant = ask(self, "tenant", request)
    local wait = rules.classes[index].wait
    local asked = tonumber(var.http_x_request_timeout_ms)

    if asked and asked > 0 then
        wait = max(0, min(wait, asked / 1000 - (now() - start_time())))
    end

    if C.ngx_http_kv_router_ffi_queue_begin(r, zone, index - 1, tenant, #tenant,
                                            request.max_tokens or 0, wait)
       ~= OK
    then
        return nil
    end

    return { deadline_us = now_us() + wait * 1e6, tries = 0 }
end


-- A request that has found no room waits until a place is granted to it.
-- Returns true: it is to look again; or nil, why it is refused (the code of the
-- answer), and the seconds after which it may come again.
-- Yields.
function _M.wait(_, r, zone, place)
    post = post or cast("int (*)(void *, int)", C.ngx_http_lua_ffi_sema_post)

    place.semaphore = place.semaphore or new_semaphore(0)
    place.tries = place.tries + 1

    -- a place that the request can't use is not asked for in a loop
    if place.tries > 2 then
        sleep(AGAIN)
    end

    local state = C.ngx_http_kv_router_ffi_queue_line(r, zone,
                                                      place.semaphore.sem, post)

    while state == WAITS do
        local left = (place.deadline_us - now_us()) / 1e6

        if left <= 0 then
            state = C.ngx_http_kv_router_ffi_queue_leave(r, zone)
            break
        end

        place.semaphore:wait(min(left, LOOK))
        state = C.ngx_http_kv_router_ffi_queue_poll(r, zone)
    end

    if state == GOES then
        return true
    end

    return nil, REASONS[state - GOES - 1],
           C.ngx_http_kv_router_ffi_queue_expected(r)
end


return _M
