
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The module's configuration: what the directives leave behind, and the
 * handlers that parse them.  Read-only after start.
 */


#ifndef _NGX_MCP_CONF_H_INCLUDED_
#define _NGX_MCP_CONF_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_zone.h"


#define NGX_MCP_MODULE_VERSION      "0.1.0"

#define NGX_MCP_FAILOVER_REFUSED    0
#define NGX_MCP_FAILOVER_PARKED     1


/* of the upstream{} block */

typedef struct {
    ngx_mcp_policy_t                policy;     /* policy.zone NULL: off */
    ngx_http_upstream_srv_conf_t   *upstream;
    ngx_array_t                    *pass_headers;
                                                /* of ngx_str_t */
    const char                    **lost_texts; /* lower case, NULL-ended; or
                                                 * NULL */
    ngx_msec_t                      drain;      /* 0: off */
    ngx_flag_t                      pin;
    ngx_flag_t                      revive;
    uint32_t                        revive_limit;
    ngx_uint_t                      failover;

    ngx_http_upstream_init_pt       original_init_upstream;
    ngx_http_upstream_init_peer_pt  original_init_peer;     /* the balancer's */
    ngx_http_upstream_init_peer_pt  chain_init_peer;        /* the chain's */

    unsigned                        authorization:1;
                                                /* is a passed header */
    unsigned                        inited:1;   /* our place was kept */
    unsigned                        reconnect:1;
} ngx_mcp_srv_conf_t;


typedef struct {
    ngx_array_t                     upstreams;  /* of ngx_mcp_srv_conf_t * */
    ngx_array_t                     zones;      /* of ngx_mcp_zone_t * */
    ngx_int_t                       scheme_index;
                                                /* of $scheme */
} ngx_mcp_main_conf_t;


extern ngx_module_t  ngx_mcp_keepalive_module;


/* The configuration of an upstream; NULL: implicit, or the module is off. */
ngx_mcp_srv_conf_t *ngx_mcp_conf_upstream(ngx_http_upstream_srv_conf_t *us);

/*
 * Directive handlers.  "init_upstream" is put into the chain of the upstream in
 * the place where mcp_keepalive stands.
 */
char *ngx_mcp_conf_keepalive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf,
    ngx_http_upstream_init_pt init_upstream);
char *ngx_mcp_conf_pass_header(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_mcp_conf_lost_text(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_mcp_conf_reconnect(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_mcp_conf_pin(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_mcp_conf_revive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Checks that need the whole configuration. */
char *ngx_mcp_conf_check(ngx_conf_t *cf, ngx_mcp_main_conf_t *mcf,
    ngx_http_upstream_init_peer_pt ours);


#endif /* _NGX_MCP_CONF_H_INCLUDED_ */
