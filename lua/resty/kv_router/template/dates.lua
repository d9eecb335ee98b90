-- Copyright (C) the nginx-kv-router authors
--
-- strftime_now of transformers: the engine's local date, in English.
--
-- The engine's clock is read a moment after ours.  What changes within two
-- minutes of now is not known: the date around midnight, the hour around the
-- full hour, minutes and seconds always.


local value = require "resty.kv_router.template.value"

local date = os.date
local find = string.find
local floor = math.floor
local format = string.format
local gsub = string.gsub
local match = string.match
local time = os.time
local tonumber = tonumber
local unsupported = value.unsupported


local _M = {}

local NEAR = 120
local DAY, HOUR = 86400, 3600

local DAYS = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday",
               "Saturday" }
local MONTHS = { "January", "February", "March", "April", "May", "June", "July",
                 "August", "September", "October", "November", "December" }


-- How many seconds a zone is east of UTC: "UTC", "+02:00", or "local", that of
-- this machine; nil: not known.
function _M.offset(zone, now)
    if zone == "local" then
        local here, there = date("*t", now), date("!*t", now)

        there.isdst = here.isdst

        return time(here) - time(there)
    elseif zone == "UTC" or zone == "Etc/UTC" or zone == "GMT" then
        return 0
    end

    local sign, hours, minutes = match(zone or "", "^([+-])(%d%d):?(%d%d)$")

    if sign then
        return (sign == "-" and -1 or 1) * (tonumber(hours) * HOUR
                                            + tonumber(minutes) * 60)
    end
end


local FIELDS = {
    a = function(t) return DAYS[t.wday]:sub(1, 3) end,
    A = function(t) return DAYS[t.wday] end,
    b = function(t) return MONTHS[t.month]:sub(1, 3) end,
    B = function(t) return MONTHS[t.month] end,
    d = function(t) return t.day, "%02d" end,
    e = function(t) return t.day, "%2d" end,
    j = function(t) return t.yday, "%03d" end,
    m = function(t) return t.month, "%02d" end,
    y = function(t) return t.year % 100, "%02d" end,
    Y = function(t) return t.year, "%d" end,
    H = function(t) return t.hour, "%02d" end,
    I = function(t) return (t.hour + 11) % 12 + 1, "%02d" end,
    F = function(t)
        return format("%d-%02d-%02d", t.year, t.month, t.day)
    end,
    p = function(t) return t.hour < 12 and "AM" or "PM" end,
}
FIELDS.h = FIELDS.b


-- A format applied to a time, in seconds, of the engine's zone.
function _M.strftime(text, now, zone)
    local offset = _M.offset(zone, now)

    if not offset then
        unsupported(format("strftime_now: the engine's time zone, %s",
                           zone or "not known"))
    end

    local here = floor(now + offset)
    local t = date("!*t", here)
    local in_day, in_hour = here % DAY, here % HOUR

    if in_day < NEAR or in_day >= DAY - NEAR then
        unsupported("strftime_now within two minutes of midnight")
    end

    return (gsub(text, "%%(%-?)(.?)", function(plain, c)
        if c == "%" and plain == "" then
            return "%"
        end

        local field = FIELDS[c]

        if not field then
            unsupported("strftime_now with %" .. plain .. c)
        elseif find(c, "[HIp]") and (in_hour < NEAR or in_hour >= HOUR - NEAR)
        then
            unsupported("strftime_now within two minutes of the hour")
        end

        local got, width = field(t)

        return width and format(plain == "-" and "%d" or width, got) or got
    end))
end


return _M
