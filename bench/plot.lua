-- Draws one plot with data of a benchmark.
--
--     LUA_PATH='lua/?.lua;?.lua;;' luajit bench/plot.lua <plot.json >plot.svg
--
-- plot.json: [ "dots" or the name of a function of
-- resty.kv_router.tools.simulate.plot, its arguments ... ].


local decode = require("cjson").decode
local plot = require "resty.kv_router.tools.simulate.plot"

plot.dots = require "bench.dots"

local asked = decode(io.read("*a"))

io.write(plot[asked[1]](unpack(asked, 2)))
