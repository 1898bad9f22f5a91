
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_alias.h"
#include "ngx_mcp_call.h"
#include "ngx_mcp_conf.h"
#include "ngx_mcp_filter.h"
#include "ngx_mcp_gate.h"
#include "ngx_mcp_hold.h"
#include "ngx_mcp_param.h"
#include "ngx_mcp_peer.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_session.h"
#include "ngx_mcp_status.h"
#include "ngx_mcp_stream.h"
#include "ngx_mcp_stub.h"
#include "ngx_mcp_tally.h"
#include "ngx_mcp_tick.h"
#include "ngx_mcp_upstream.h"
#include "ngx_mcp_variable.h"
#include "ngx_mcp_view.h"


static char *ngx_mcp_keepalive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static void *ngx_mcp_create_main_conf(ngx_conf_t *cf);
static char *ngx_mcp_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_mcp_create_srv_conf(ngx_conf_t *cf);
static void *ngx_mcp_create_loc_conf(ngx_conf_t *cf);
static char *ngx_mcp_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t ngx_mcp_init(ngx_conf_t *cf);
static ngx_int_t ngx_mcp_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_mcp_register(ngx_mcp_srv_conf_t *conf, ngx_uint_t known);
static ngx_int_t ngx_mcp_register_peer(ngx_mcp_srv_conf_t *conf,
    ngx_str_t *name);
static ngx_int_t ngx_mcp_init_process(ngx_cycle_t *cycle);
static void ngx_mcp_exit_process(ngx_cycle_t *cycle);


/* for a time that may be "off" */

static ngx_uint_t  ngx_mcp_off = 1;


static ngx_command_t  ngx_mcp_commands[] = {

    { ngx_string("mcp_keepalive"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_mcp_keepalive,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("mcp_keepalive_pass_header"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_mcp_conf_pass_header,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("mcp_session_lost_text"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_mcp_conf_lost_text,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("mcp_reconnect"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_mcp_conf_reconnect,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("mcp_pin"),
      NGX_HTTP_UPS_CONF|NGX_CONF_TAKE12,
      ngx_mcp_conf_pin,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("mcp_revive"),
      NGX_HTTP_UPS_CONF|NGX_CONF_TAKE12,
      ngx_mcp_conf_revive,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("mcp_heartbeat"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_mcp_param_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_mcp_loc_conf_t, heartbeat),
      &ngx_mcp_off },

    { ngx_string("mcp_stream_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_mcp_param_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_mcp_loc_conf_t, stream_timeout),
      NULL },

    { ngx_string("mcp_stream_hold"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_mcp_param_time,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_mcp_loc_conf_t, stream_hold),
      &ngx_mcp_off },

    { ngx_string("mcp_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
      ngx_mcp_status_directive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_mcp_module_ctx = {
    ngx_mcp_variable_add,                  /* preconfiguration */
    ngx_mcp_init,                          /* postconfiguration */

    ngx_mcp_create_main_conf,              /* create main configuration */
    ngx_mcp_init_main_conf,                /* init main configuration */

    ngx_mcp_create_srv_conf,               /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_mcp_create_loc_conf,               /* create location configuration */
    ngx_mcp_merge_loc_conf                 /* merge location configuration */
};


ngx_module_t  ngx_mcp_keepalive_module = {
    NGX_MODULE_V1,
    &ngx_mcp_module_ctx,                   /* module context */
    ngx_mcp_commands,                      /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_mcp_init_module,                   /* init module */
    ngx_mcp_init_process,                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_mcp_exit_process,                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static char *
ngx_mcp_keepalive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    return ngx_mcp_conf_keepalive(cf, cmd, conf, ngx_mcp_upstream_init);
}


static void *
ngx_mcp_create_main_conf(ngx_conf_t *cf)
{
    ngx_mcp_main_conf_t  *mcf;

    mcf = ngx_pcalloc(cf->pool, sizeof(ngx_mcp_main_conf_t));
    if (mcf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&mcf->upstreams, cf->pool, 4, sizeof(void *)) != NGX_OK
        || ngx_array_init(&mcf->zones, cf->pool, 1, sizeof(void *)) != NGX_OK)
    {
        return NULL;
    }

    return mcf;
}


/* Runs after that of "upstream": every chain of peers is finished. */

static char *
ngx_mcp_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_mcp_main_conf_t  *mcf = conf;

    ngx_uint_t            i;
    ngx_mcp_srv_conf_t  **scf;

    if (ngx_mcp_conf_check(cf, mcf, ngx_mcp_upstream_init_inner)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    scf = mcf->upstreams.elts;

    for (i = 0; i < mcf->upstreams.nelts; i++) {
        ngx_mcp_upstream_wrap(scf[i]->upstream);
    }

    return NGX_CONF_OK;
}


static void *
ngx_mcp_create_srv_conf(ngx_conf_t *cf)
{
    mcp_health_conf_t   *h;
    ngx_mcp_srv_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_mcp_srv_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->pin = NGX_CONF_UNSET;
    conf->revive = NGX_CONF_UNSET;
    conf->revive_limit = 3;
    conf->failover = NGX_MCP_FAILOVER_REFUSED;
    conf->drain = 5000;

    conf->policy.interval = 180000;
    conf->policy.timeout = 30000;
    conf->policy.max_idle = 1800000;
    conf->policy.method = NGX_MCP_METHOD_TOOLS;
    conf->policy.rate = 50;

    h = &conf->policy.health;

    h->failures = 1;
    h->budget = 5;
    h->initial = 3;
    h->jitter = 20;
    h->backoff_ms = 1000;
    h->backoff_max_ms = 60000;
    h->park_ms = 300000;
    h->park_max_ms = 3600000;

    return conf;
}


static void *
ngx_mcp_create_loc_conf(ngx_conf_t *cf)
{
    ngx_mcp_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_mcp_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->heartbeat = NGX_CONF_UNSET_MSEC;
    conf->stream_timeout = NGX_CONF_UNSET_MSEC;
    conf->stream_hold = NGX_CONF_UNSET_MSEC;

    return conf;
}


static char *
ngx_mcp_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_mcp_loc_conf_t *prev = parent;
    ngx_mcp_loc_conf_t *conf = child;

    ngx_conf_merge_msec_value(conf->heartbeat, prev->heartbeat, 20000);
    ngx_conf_merge_msec_value(conf->stream_timeout, prev->stream_timeout,
                              3600000);
    ngx_conf_merge_msec_value(conf->stream_hold, prev->stream_hold, 30000);

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_mcp_init(ngx_conf_t *cf)
{
    ngx_mcp_main_conf_t  *mcf;
    static ngx_str_t      scheme = ngx_string("scheme");

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_mcp_keepalive_module);

    if (mcf->upstreams.nelts == 0) {
        return NGX_OK;
    }

    mcf->scheme_index = ngx_http_get_variable_index(cf, &scheme);
    if (mcf->scheme_index == NGX_ERROR) {
        return NGX_ERROR;
    }

    ngx_mcp_stream_init();
    ngx_mcp_filter_init();

    if (ngx_mcp_alias_init(cf) != NGX_OK || ngx_mcp_gate_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_mcp_call_init(cf);
}


/* The new configuration is the one in force from here on. */

static ngx_int_t
ngx_mcp_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t             i;
    ngx_mcp_zone_t       **zone;
    ngx_mcp_srv_conf_t   **conf;
    ngx_mcp_main_conf_t   *mcf;

    mcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_mcp_keepalive_module);

    if (mcf == NULL) {
        return NGX_OK;
    }

    zone = mcf->zones.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {
        ngx_mcp_zone_lock(zone[i]);
        zone[i]->generation = ++zone[i]->sh->generation;
        zone[i]->sh->revisit = (zone[i]->sh->top != 0);
        ngx_mcp_zone_unlock(zone[i]);
    }

    conf = mcf->upstreams.elts;

    /* first those that stay: what is gone by then makes room for the others */

    for (i = 0; i < mcf->upstreams.nelts; i++) {
        (void) ngx_mcp_register(conf[i], 1);
    }

    for (i = 0; i < mcf->zones.nelts; i++) {
        ngx_mcp_zone_lock(zone[i]);
        zone[i]->sh->ready = zone[i]->generation;
        ngx_mcp_zone_unlock(zone[i]);
    }

    for (i = 0; i < mcf->upstreams.nelts; i++) {

        if (ngx_mcp_register(conf[i], 0) != NGX_OK) {
            ngx_log_error(NGX_LOG_ERR, cycle->log, 0,
                          "mcp zone \"%V\" has no room for the peers of "
                          "upstream \"%V\"",
                          &conf[i]->policy.zone->shm_zone->shm.name,
                          &conf[i]->policy.name);
        }
    }

    return NGX_OK;
}


/* "known": only what is in the zone already.  NGX_ERROR: the zone is full. */

static ngx_int_t
ngx_mcp_register(ngx_mcp_srv_conf_t *conf, ngx_uint_t known)
{
    ngx_str_t                   *name;
    ngx_uint_t                   i, n;
    ngx_http_upstream_server_t  *server;

    while (ngx_mcp_peer_upstream(&conf->policy) != NGX_OK) {
        if (known || ngx_mcp_session_make_room(conf->policy.zone) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    server = conf->upstream->servers ? conf->upstream->servers->elts : NULL;

    for (i = 0; server && i < conf->upstream->servers->nelts; i++) {
        for (n = 0; n < server[i].naddrs; n++) {
            name = &server[i].addrs[n].name;

            if (known) {
                ngx_mcp_peer_keep(&conf->policy, name);

            } else if (ngx_mcp_register_peer(conf, name) != NGX_OK) {
                return NGX_ERROR;
            }
        }
    }

    /* those of former generations that are not among them are gone */

    ngx_mcp_peer_upstream_ready(&conf->policy);

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_register_peer(ngx_mcp_srv_conf_t *conf, ngx_str_t *name)
{
    /* a name that is resolved later has no address yet */

    if (name->len == 0 || name->len > NGX_MCP_PEER_NAME_MAX) {
        return NGX_OK;
    }

    while (ngx_mcp_peer_add(&conf->policy, name, 1, NULL) == 0) {
        if (ngx_mcp_session_make_room(conf->policy.zone) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_init_process(ngx_cycle_t *cycle)
{
    /* not in the cache manager and its like */

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    ngx_mcp_request_init_process();
    ngx_mcp_tally_init_process();
    ngx_mcp_hold_init_process();

    return ngx_mcp_tick_init_process(cycle);
}


static void
ngx_mcp_exit_process(ngx_cycle_t *cycle)
{
    ngx_mcp_tally_exit_process();
    ngx_mcp_stub_exit_process();
    ngx_mcp_view_exit_process();
}
