-- TAP for tests that plain luajit runs.


local floor = math.floor
local format = string.format
local pairs = pairs
local pcall = pcall
local print = print
local tostring = tostring
local type = type


local _M = {}

local tests = 0
local failed = 0


function _M.note(...)
    print("# " .. format(...))
end


function _M.ok(good, name)
    tests = tests + 1

    if not good then
        failed = failed + 1
    end

    print((good and "ok " or "not ok ") .. tests .. " - " .. name)

    return good
end


local function show(value)
    if type(value) == "string" then
        return format("%q", value)
    end

    return tostring(value)
end


function _M.is(got, wanted, name)
    if not _M.ok(got == wanted, name) then
        _M.note("     got: %s", show(got))
        _M.note("expected: %s", show(wanted))
    end
end


-- Numbers that differ by no more than delta.
function _M.near(got, wanted, delta, name)
    if not _M.ok(got >= wanted - delta and got <= wanted + delta, name) then
        _M.note("     got: %s", show(got))
        _M.note("expected: %s, +- %s", show(wanted), show(delta))
    end
end


-- text holds part, as it is.
function _M.has(text, part, name)
    local good = type(text) == "string" and text:find(part, 1, true) ~= nil

    if not _M.ok(good, name) then
        _M.note("     got: %s", show(text))
        _M.note("expected: ... %s ...", show(part))
    end
end


-- Calling what follows raises an error that holds part.
function _M.raises(part, name, f, ...)
    local ok, err = pcall(f, ...)

    if ok then
        err = "no error"
    end

    _M.has(err, part, name)
end


-- counts (name -> number) are what equal chances for n names give: chi-square
-- within five standard deviations of its mean.
function _M.even(counts, n, name)
    local total = 0

    for _, count in pairs(counts) do
        total = total + count
    end

    local expected = total / n
    local seen = 0
    local chi = 0

    for _, count in pairs(counts) do
        seen = seen + 1
        chi = chi + (count - expected) ^ 2 / expected
    end

    chi = chi + (n - seen) * expected

    local bound = n - 1 + 5 * (2 * (n - 1)) ^ 0.5

    if not _M.ok(chi < bound, name) then
        _M.note("chi-square %d, bound %d", floor(chi), floor(bound))
    end
end


function _M.done()
    print("1.." .. tests)
    os.exit(failed == 0 and 0 or 1, true)
end


return _M
