
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_call.h"
#include "ngx_mcp_connect.h"
#include "ngx_mcp_endpoint.h"
#include "ngx_mcp_hold.h"
#include "ngx_mcp_probe.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_revive.h"
#include "ngx_mcp_rr.h"
#include "ngx_mcp_stream.h"
#include "ngx_mcp_sweep.h"
#include "ngx_mcp_tick.h"


/*
 * The tick comes when something is due, within these bounds, in ms; at least so
 * many times an interval, since what is due may have become so elsewhere.
 */
#define NGX_MCP_TICK_MIN      100
#define NGX_MCP_TICK_MAX      500
#define NGX_MCP_TICK_SHARE    4

/* Peers that are gone are looked at every so many ms. */
#define NGX_MCP_TICK_REAP     10000

/* Holds of the lock in one go, NGX_MCP_LOCK_NODES records each. */
#define NGX_MCP_TICK_HOLDS    64
#define NGX_MCP_END_HOLDS     4


static ngx_msec_t ngx_mcp_tick_max(void);
static void ngx_mcp_tick_soon(void);
static void ngx_mcp_tick_handler(ngx_event_t *ev);
static void ngx_mcp_tick_peers(void);
static void ngx_mcp_tick_marked(ngx_mcp_srv_conf_t *conf);
static void ngx_mcp_tick_list(ngx_mcp_srv_conf_t *conf);
static void ngx_mcp_tick_reap(ngx_mcp_policy_t *policy);
static void ngx_mcp_tick_schedule(ngx_mcp_due_t *due);
static void ngx_mcp_tick_pump(ngx_mcp_zone_t *zone, ngx_mcp_policy_t *policy,
    uint32_t peer, ngx_uint_t holds, ngx_mcp_due_t *due);
static void ngx_mcp_tick_tell(ngx_mcp_due_t *due);
static void ngx_mcp_tick_next(ngx_mcp_policy_t *policy, uint32_t peer);


static ngx_event_t            ngx_mcp_tick;
static ngx_msec_t             ngx_mcp_tick_longest;
static ngx_msec_t             ngx_mcp_tick_reaped;
static ngx_connection_t       ngx_mcp_tick_dummy;
static ngx_mcp_main_conf_t   *ngx_mcp_tick_conf;


ngx_int_t
ngx_mcp_tick_init_process(ngx_cycle_t *cycle)
{
    ngx_mcp_tick_conf = ngx_http_cycle_get_module_main_conf(cycle,
                                                 ngx_mcp_keepalive_module);

    if (ngx_mcp_tick_conf == NULL
        || ngx_mcp_tick_conf->upstreams.nelts == 0)
    {
        return NGX_OK;
    }

    if (ngx_mcp_view_init_process(ngx_mcp_tick_conf->upstreams.nelts,
                                  ngx_mcp_tick_soon)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_mcp_endpoint_init_process(cycle);
    ngx_mcp_connect_init_process();
    ngx_mcp_call_init_process();
    ngx_mcp_revive_init_process();

    if (ngx_mcp_stub_init_process(cycle) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_mcp_tick_longest = ngx_mcp_tick_max();
    ngx_mcp_tick_dummy.fd = (ngx_socket_t) -1;

    ngx_mcp_tick.handler = ngx_mcp_tick_handler;
    ngx_mcp_tick.data = &ngx_mcp_tick_dummy;
    ngx_mcp_tick.log = cycle->log;
    ngx_mcp_tick.cancelable = 1;

    ngx_add_timer(&ngx_mcp_tick,
                  NGX_MCP_TICK_MIN + ngx_random() % ngx_mcp_tick_longest);

    return NGX_OK;
}


static ngx_msec_t
ngx_mcp_tick_max(void)
{
    ngx_msec_t            max, share;
    ngx_uint_t            i;
    ngx_mcp_srv_conf_t  **conf;

    max = NGX_MCP_TICK_MAX;
    conf = ngx_mcp_tick_conf->upstreams.elts;

    for (i = 0; i < ngx_mcp_tick_conf->upstreams.nelts; i++) {

        share = conf[i]->policy.interval / NGX_MCP_TICK_SHARE;

        if (share) {
            max = ngx_min(max, share);
        }
    }

    return ngx_max(max, NGX_MCP_TICK_MIN);
}


/* A peer changed: what there is to do is done at the end of this event. */

static void
ngx_mcp_tick_soon(void)
{
    ngx_post_event(&ngx_mcp_tick, &ngx_posted_events);
}


static void
ngx_mcp_tick_handler(ngx_event_t *ev)
{
    ngx_uint_t            i, n;
    ngx_mcp_due_t         due;
    ngx_mcp_zone_t      **zone;
    ngx_mcp_srv_conf_t  **conf;

    ngx_memzero(&due, sizeof(ngx_mcp_due_t));
    due.wake = (uint64_t) -1;

    ngx_mcp_tick_peers();

    if (ngx_exiting || ngx_quit || ngx_terminate) {

        /* another worker goes on; only open requests are still ours */

        ngx_mcp_call_cancel_all();
        ngx_mcp_connect_cancel_all();

    } else {
        conf = ngx_mcp_tick_conf->upstreams.elts;

        for (i = 0; i < ngx_mcp_tick_conf->upstreams.nelts; i++) {
            ngx_mcp_tick_pump(conf[i]->policy.zone, &conf[i]->policy, 0,
                              NGX_MCP_TICK_HOLDS, &due);
        }

        zone = ngx_mcp_tick_conf->zones.elts;

        for (i = 0; i < ngx_mcp_tick_conf->zones.nelts; i++) {

            for (n = NGX_MCP_TICK_HOLDS; n; n--) {
                if (ngx_mcp_session_revisit(zone[i]) == NGX_DONE) {
                    break;
                }
            }

            ngx_mcp_tick_pump(zone[i], NULL, 0, NGX_MCP_TICK_HOLDS, &due);
        }
    }

    ngx_mcp_request_renew();
    ngx_mcp_stream_tick();
    ngx_mcp_hold_tick();

    ngx_mcp_tick_schedule(&due);
}


/* The next tick is no later than what is due, and than it was to be. */

static void
ngx_mcp_tick_schedule(ngx_mcp_due_t *due)
{
    uint64_t    delay;
    ngx_msec_t  now;

    now = ngx_current_msec;

    delay = (due->wake > now) ? due->wake - now : 0;

    delay = ngx_min(delay, ngx_mcp_tick_longest);
    delay = ngx_max(delay, NGX_MCP_TICK_MIN);

    if (ngx_mcp_tick.timer_set
        && (ngx_msec_int_t) (ngx_mcp_tick.timer.key - now)
           <= (ngx_msec_int_t) delay)
    {
        return;
    }

    /* the workers of one instance drift apart */

    delay += ngx_random() % (delay / 10);

    if (ngx_mcp_tick.timer_set) {
        ngx_del_timer(&ngx_mcp_tick);
    }

    ngx_add_timer(&ngx_mcp_tick, (ngx_msec_t) delay);
}


static void
ngx_mcp_tick_peers(void)
{
    ngx_uint_t            i;
    ngx_mcp_srv_conf_t  **conf;

    conf = ngx_mcp_tick_conf->upstreams.elts;

    for (i = 0; i < ngx_mcp_tick_conf->upstreams.nelts; i++) {
        ngx_mcp_tick_list(conf[i]);
        ngx_mcp_tick_marked(conf[i]);
        ngx_mcp_sweep(&conf[i]->policy);
    }

    if (ngx_current_msec - ngx_mcp_tick_reaped >= NGX_MCP_TICK_REAP) {
        ngx_mcp_tick_reaped = ngx_current_msec;

        for (i = 0; i < ngx_mcp_tick_conf->upstreams.nelts; i++) {
            ngx_mcp_tick_reap(&conf[i]->policy);
        }
    }
}


/* Addresses that names led to once do not fill the zone for ever. */

static void
ngx_mcp_tick_reap(ngx_mcp_policy_t *policy)
{
    ngx_uint_t       i;
    ngx_mcp_view_t  *view;

    view = ngx_mcp_view(policy);

    for (i = 0; i < view->n; i++) {
        if (view->peers[i].gone) {
            ngx_mcp_peer_reap(policy, view->peers[i].slot);
        }
    }
}


/* Of a peer marked since, the notification streams end as well. */

static void
ngx_mcp_tick_marked(ngx_mcp_srv_conf_t *conf)
{
    ngx_str_t             name;
    ngx_uint_t            i;
    ngx_mcp_view_t       *view;
    ngx_mcp_peer_view_t  *peer;

    view = ngx_mcp_view(&conf->policy);

    for (i = 0; i < view->n; i++) {
        peer = &view->peers[i];

        if (peer->mark && peer->mark >= view->swept) {
            name.data = peer->name;
            name.len = peer->name_len;

            ngx_mcp_stream_mark(conf, &name, peer->mark);
        }
    }
}


/* Where names are resolved, peers come and go without a reload. */

static void
ngx_mcp_tick_list(ngx_mcp_srv_conf_t *conf)
{
    ngx_str_t             name;
    ngx_uint_t            i, absent;
    ngx_mcp_view_t       *view;
    ngx_mcp_zone_t       *zone;
    ngx_mcp_peer_view_t  *peer;

    zone = conf->policy.zone;

    /* a worker of the configuration before has a list of its own */

    if (!ngx_mcp_rr_dynamic(conf->upstream)
        || zone->generation != zone->sh->generation)
    {
        return;
    }

    view = ngx_mcp_view(&conf->policy);

    for (i = 0; i < view->n; i++) {
        peer = &view->peers[i];

        name.data = peer->name;
        name.len = peer->name_len;

        absent = (ngx_mcp_rr_state(conf->upstream, &name) == NGX_ABORT);

        if (absent != peer->gone) {
            ngx_mcp_peer_absent(&conf->policy, peer->slot, absent);
        }
    }
}


/*
 * Starts all that is due: of "policy" what its peers are to be tried or asked
 * for; without it sessions, see ngx_mcp_session_lease() for "peer".
 */

static void
ngx_mcp_tick_pump(ngx_mcp_zone_t *zone, ngx_mcp_policy_t *policy,
    uint32_t peer, ngx_uint_t holds, ngx_mcp_due_t *due)
{
    ngx_int_t        rc;
    ngx_mcp_lease_t  lease;

    while (holds) {

        rc = policy ? ngx_mcp_session_lease_attempt(policy, &lease, due)
                    : ngx_mcp_session_lease(zone, peer, &lease, due);

        ngx_mcp_tick_tell(due);

        if (rc == NGX_DONE) {
            return;
        }

        if (rc == NGX_AGAIN) {
            holds--;
            continue;
        }

        ngx_mcp_probe_start(&lease, ngx_mcp_tick_next);
    }

    due->wake = 0;
}


static void
ngx_mcp_tick_tell(ngx_mcp_due_t *due)
{
    if (due->credentials) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "mcp upstream \"%V\": sessions whose clients send "
                      "\"Authorization\" get no keepalives without "
                      "\"mcp_keepalive_pass_header Authorization\"",
                      &due->credentials->name);
        due->credentials = NULL;
    }

    if (due->behind) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "mcp upstream \"%V\" peer \"%*s\": keepalives are an "
                      "interval behind, with \"rate=%uD\" and %ui at once",
                      &due->behind->name, due->peer_len, due->peer_name,
                      due->behind->rate, due->behind->calls);
        due->behind = NULL;
    }
}


/* What waited for this end need not wait for the tick. */

static void
ngx_mcp_tick_next(ngx_mcp_policy_t *policy, uint32_t peer)
{
    ngx_mcp_due_t  due;

    if (ngx_exiting || ngx_quit || ngx_terminate) {
        return;
    }

    ngx_memzero(&due, sizeof(ngx_mcp_due_t));
    due.wake = (uint64_t) -1;

    ngx_mcp_tick_pump(policy->zone, policy, 0, NGX_MCP_END_HOLDS, &due);
    ngx_mcp_tick_pump(policy->zone, NULL, peer, NGX_MCP_END_HOLDS, &due);
    ngx_mcp_tick_schedule(&due);
}
