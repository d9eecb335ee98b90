# Who may call the HTTP API.

use lib 't/lib';
use KVRouter;

our $token = "6f1d0c2b9a8e7d6c5b4a";

scripts(http_config => <<'_EOC_', config => <<'_EOC_');
    kv_router_zone  zone=main:8m block_size=4;

    init_by_lua_block {
        router = require("resty.kv_router").new("main")
    }
_EOC_
    location /kv/ {
        kv_router_api  main;
    }

    location /reader/ {
        kv_router_api  main read_only;

        if ($arg_inner) {
            set $inner 1;
        }
    }

    location /token/ {
        kv_router_api        main token_file=../html/token;
        access_by_lua_block  { router:api() }

        if ($arg_inner) {
            set $inner 1;
        }
    }

    location /any/ {
        kv_router_api  main token_file=../html/token;
        satisfy        any;
        deny           all;
    }
_EOC_

add_block_preprocessor(sub {
    my $block = shift;

    $block->set_value('user_files', ">>> token\n$token\n");
});

log_level('info');
no_long_string();
no_shuffle();

plan tests => repeat_each() * blocks() * 5;

run_tests();

__DATA__

=== TEST 1: pages of other sites change nothing
--- script
            local drain = "/kv/workers/w1/drain"

            tell("a foreign page", "POST", drain, "{}",
                 "Origin: http://evil.example\r\n")
            tell("a page without an origin", "POST", drain, "{}",
                 "Origin: null\r\n")
            tell("a longer name", "POST", drain, "{}",
                 "Origin: http://localhost.evil.example\r\n")
            tell("cross-site", "DELETE", "/kv/workers/w1", nil,
                 "Sec-Fetch-Site: cross-site\r\n")
            tell("put", "PUT", "/kv/workers/w1", '{"address":"10.0.0.1:80"}',
                 "Origin: http://evil.example\r\n")
            tell("reading", "GET", "/kv/workers", nil,
                 "Origin: http://evil.example\r\n")
            tell("a page of the same host", "POST", drain, "{}",
                 "Origin: http://localhost\r\n")
            tell("by TLS", "POST", drain, "{}", "Origin: https://localhost\r\n")
            tell("same-origin", "POST", drain, "{}",
                 "Sec-Fetch-Site: same-origin\r\n")
            tell("no browser", "POST", drain, "{}")
--- response_body
a foreign page: 403 {"error":"a page of another site (\"http://evil.example\") can't call \"workers/ID/drain\" of \"localhost\": call it without a browser"}
a page without an origin: 403 {"error":"a page of another site (\"null\") can't call \"workers/ID/drain\" of \"localhost\": call it without a browser"}
a longer name: 403 {"error":"a page of another site (\"http://localhost.evil.example\") can't call \"workers/ID/drain\" of \"localhost\": call it without a browser"}
cross-site: 403 {"error":"a page of another site (\"cross-site\") can't call \"workers/ID\" of \"localhost\": call it without a browser"}
put: 403 {"error":"a page of another site (\"http://evil.example\") can't call \"workers/ID\" of \"localhost\": call it without a browser"}
reading: 200 []
a page of the same host: 404 {"error":"unknown worker \"w1\""}
by TLS: 404 {"error":"unknown worker \"w1\""}
same-origin: 404 {"error":"unknown worker \"w1\""}
no browser: 404 {"error":"unknown worker \"w1\""}
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 2: a reader changes nothing, in a location inside, too
--- script
            show("POST", "/reader/workers/w1/drain", "{}")
            show("POST", "/reader/workers/w1/drain?inner=1", "{}")
            show("PUT", "/reader/workers/w1", '{"address":"10.0.0.1:80"}')
            show("DELETE", "/reader/workers/w1")
            show("POST", "/reader/events", "[]")
            show("GET", "/reader/workers")
            show("POST", "/reader/hash", '{"tokens":[]}')
--- response_body
POST /reader/workers/w1/drain: 403 {"error":"\"workers/ID/drain\" changes zone \"main\", and this location of kv_router_api is read_only"}
POST /reader/workers/w1/drain?inner=1: 403 {"error":"\"workers/ID/drain\" changes zone \"main\", and this location of kv_router_api is read_only"}
PUT /reader/workers/w1: 403 {"error":"\"workers/ID\" changes zone \"main\", and this location of kv_router_api is read_only"}
DELETE /reader/workers/w1: 403 {"error":"\"workers/ID\" changes zone \"main\", and this location of kv_router_api is read_only"}
POST /reader/events: 403 {"error":"\"events\" changes zone \"main\", and this location of kv_router_api is read_only"}
GET /reader/workers: 200 []
POST /reader/hash: 200 {"local":[],"sequence":[]}
--- no_error_log
[error]
[alert]
[emerg]



=== TEST 3: a token is needed for all, in a location inside and for Lua, too
--- script
            local bearer = "Authorization: Bearer "
            local right = bearer .. "6f1d0c2b9a8e7d6c5b4a\r\n"

            local function status(what, path, headers, method, body)
                local answer = ask(method or "GET", path, body, headers)

                ngx.say(what, ": ", answer.status, " ",
                        answer.headers["www-authenticate"] or "-")
            end

            tell("none", "GET", "/token/workers")
            status("none", "/token/workers")
            status("none, inside", "/token/workers?inner=1")
            status("none, for Lua", "/token/route", nil, "POST", "{}")
            status("a wrong one", "/token/workers",
                   bearer .. "6f1d0c2b9a8e7d6c5b4b\r\n")
            status("a shorter one", "/token/workers",
                   bearer .. "6f1d0c2b9a8e7d6c5b4\r\n")
            status("a longer one", "/token/workers",
                   bearer .. "6f1d0c2b9a8e7d6c5b4a6f1d0c2b9a8e7d6c5b4a\r\n")
            status("an empty one", "/token/workers", bearer .. "\r\n")
            status("another kind", "/token/workers",
                   "Authorization: Basic 6f1d0c2b9a8e7d6c5b4a\r\n")
            status("the right one", "/token/workers", right)
            status("the right one, inside", "/token/workers?inner=1", right)
            status("the right one, for Lua", "/token/route", right, "POST",
                   '{"prompt":[1]}')
--- response_body
none: 401 {"error":"the token is missing or wrong: send \"Authorization: Bearer TOKEN\" with that of token_file"}
none: 401 Bearer
none, inside: 401 Bearer
none, for Lua: 401 Bearer
a wrong one: 401 Bearer
a shorter one: 401 Bearer
a longer one: 401 Bearer
an empty one: 401 Bearer
another kind: 401 Bearer
the right one: 200 -
the right one, inside: 200 -
the right one, for Lua: 503 -
--- no_error_log
6f1d0c2b9a8e7d6c5b4
[alert]
[emerg]



=== TEST 4: with "satisfy any" a token is enough
--- script
            ngx.say(ask("GET", "/any/workers").status)
            ngx.say(ask("GET", "/any/workers", nil, "Authorization: Bearer "
                        .. "6f1d0c2b9a8e7d6c5b4a\r\n").status)
--- response_body
401
200
--- no_error_log
6f1d0c2b9a8e7d6c5b4
[alert]
[emerg]



=== TEST 5: a name that somebody else may have pointed here changes nothing
--- http_config
    server {
        listen       127.0.0.1:$TEST_NGINX_RAND_PORT_1;
        server_name  kv.example .dot.example *.star.example tail.*
                     ~^re[0-9]+\.example$;

        location /kv/ {
            kv_router_api  main;
        }

        location /token/ {
            kv_router_api  main token_file=../html/token;
        }
    }
--- script
            local function call(host, path, headers)
                local answer = client.receive(client.send(
                    "POST " .. (path or "/kv") .. "/workers/w1/drain "
                    .. "HTTP/1.0\r\nHost: " .. host
                    .. "\r\nContent-Length: 2\r\n" .. (headers or "")
                    .. "\r\n{}", $TEST_NGINX_RAND_PORT_1))

                return answer.status, answer.body
            end

            ngx.print(select(2, call("evil.example:9500", nil,
                             "Origin: http://evil.example:9500\r\n"
                             .. "Sec-Fetch-Site: same-origin\r\n")))

            for _, host in ipairs {
                "localhost:9500", "127.0.0.1", "10.1.2.3:80", "[::1]:80",
                "kv.example", "KV.example:80", "dot.example", "a.dot.example",
                "a.star.example", "tail.net", "re12.example",
                "", "evil", "akv.example", "kv.example.evil", "adot.example",
                "star.example", "tail.", "atail.net", "re.example",
                "127.0.0.1.evil", "127.0.0", "localhost.evil"
            } do
                ngx.say(host, ": ", (call(host)))
            end

            ngx.say("with a token: ", (call("evil.example", "/token",
                    "Authorization: Bearer 6f1d0c2b9a8e7d6c5b4a\r\n")))
--- response_body
{"error":"the host \"evil.example\" is no name of this server: call \"workers/ID/drain\" by an address, add the host to \"server_name\", or use \"token_file\""}
localhost:9500: 404
127.0.0.1: 404
10.1.2.3:80: 404
[::1]:80: 404
kv.example: 404
KV.example:80: 404
dot.example: 404
a.dot.example: 404
a.star.example: 404
tail.net: 404
re12.example: 404
: 400
evil: 403
akv.example: 403
kv.example.evil: 403
adot.example: 403
star.example: 403
tail.: 403
atail.net: 403
re.example: 403
127.0.0.1.evil: 403
127.0.0: 403
localhost.evil: 403
with a token: 404
--- no_error_log
[error]
[alert]
[emerg]
