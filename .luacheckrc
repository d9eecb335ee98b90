-- Settings of luacheck, which util/lint runs.

std = "ngx_lua+luajit"
max_line_length = 100
cache = false
codes = true

-- a policy's functions take the arguments of the interface, used or not
unused_args = false
