# The module loads into nginx, beside the Lua module, and does no harm.

use lib 't/lib';
use KVRouter;

plan tests => repeat_each() * blocks() * 3;

no_shuffle();
run_tests();

__DATA__

=== TEST 1: nginx answers with the module loaded
--- config
    location = /t {
        return 200 "ok\n";
    }
--- request
GET /t
--- response_body
ok
--- no_error_log
[error]



=== TEST 2: Lua runs beside the module
--- config
    location = /t {
        content_by_lua_block {
            ngx.say("ok")
        }
    }
--- request
GET /t
--- response_body
ok
--- no_error_log
[error]
