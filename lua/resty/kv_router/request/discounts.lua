-- Copyright (C) the nginx-kv-router authors
--
-- How much of a match counts, by the confidence_id of a candidate, from 0: 1
-- for a view that is to be trusted, less for others.  For policies without a
-- setting for it; the values are DISCOUNTS of resty.kv_router.ffi.


local ffi = require "resty.kv_router.ffi"

local names = ffi.CONFIDENCES


local _M = {}


for id = 0, #names do
    _M[id] = ffi.DISCOUNTS[names[id]] or 1
end


return _M
