
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A limit to the CPU time that a policy may take: a timer of the thread's CPU
 * time, whose signal has LuaJIT's interpreter call a hook, and that raises an
 * error.  Code that LuaJIT has compiled looks at no hook: it is stopped when
 * it is back in the interpreter.
 *
 * The timer runs only while policies do: a system call for each period of CPU
 * time at most, none for a request.  It never interrupts a process that
 * sleeps.
 */


#ifndef _NGX_HTTP_KV_ROUTER_GUARD_H_INCLUDED_
#define _NGX_HTTP_KV_ROUTER_GUARD_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Milliseconds of CPU time between two looks.  What is seen in two of them is
 * stopped: it has run for one period or more, and two at most.
 */

#define NGX_HTTP_KV_ROUTER_GUARD_PERIOD  50


/*
 * Ends the timer, and its signal with it: before the process exits, while this
 * code is still mapped.
 */
void ngx_http_kv_router_guard_exit(void);


#endif /* _NGX_HTTP_KV_ROUTER_GUARD_H_INCLUDED_ */
