
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * nginx's own list of peers: the only file that reads or sets what belongs to
 * its balancers, and the place of every version's difference in them.
 */


#ifndef _NGX_MCP_RR_H_INCLUDED_
#define _NGX_MCP_RR_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/*
 * Chooses the peer "name" for a connection, in place of the balancer whose
 * data "data" is; with "spare" only if max_conns leaves a place for another.
 * NGX_OK: chosen and counted, the balancer's own free must follow. NGX_BUSY:
 * there is none of that name, or it is down or full, or the list has changed;
 * NGX_DECLINED: "data" is not a round robin's, leave it alone.
 */
ngx_int_t ngx_mcp_rr_select(ngx_http_upstream_srv_conf_t *us,
    ngx_peer_connection_t *pc, void *data, ngx_str_t *name,
    ngx_uint_t spare);

/* Is this peer one that a request had better not go to? */
typedef ngx_uint_t (*ngx_mcp_rr_avoid_pt)(void *ctx, ngx_str_t *name);

/* True if "data" is a round robin's, as all below need it. */
ngx_uint_t ngx_mcp_rr_known(ngx_http_upstream_srv_conf_t *us, void *data);

/*
 * NGX_OK: the balancer has a peer of that name; NGX_DECLINED: it is down;
 * NGX_ABORT: it has none.
 */
ngx_int_t ngx_mcp_rr_state(ngx_http_upstream_srv_conf_t *us, ngx_str_t *name);

/*
 * True if there is a peer, primary or backup, that is not down, draining, full,
 * "except" (may be NULL) or to be avoided.
 */
ngx_uint_t ngx_mcp_rr_usable(ngx_http_upstream_srv_conf_t *us,
    ngx_str_t *except, ngx_mcp_rr_avoid_pt avoid, void *ctx);

/*
 * Makes the balancer with "data" leave out the peers to be avoided, in the
 * first tier that has others it has not tried, and try no more than these.
 * "left" is the caller's memory of what was left out, 0 at first.  NGX_OK: the
 * balancer is asked next; NGX_BUSY: it would take none of them, nginx's own
 * count of failures is against it; NGX_DECLINED: there is none.
 */
ngx_int_t ngx_mcp_rr_steer(ngx_http_upstream_srv_conf_t *us,
    ngx_peer_connection_t *pc, void *data, uintptr_t *left,
    ngx_mcp_rr_avoid_pt avoid, void *ctx);

/*
 * Chooses, as ngx_mcp_rr_select() does, the least busy of the peers that
 * ngx_mcp_rr_usable() would find: for a balancer that turned them all down.
 */
ngx_int_t ngx_mcp_rr_pick(ngx_http_upstream_srv_conf_t *us,
    ngx_peer_connection_t *pc, void *data, ngx_mcp_rr_avoid_pt avoid,
    void *ctx);

/* True if the list may change while nginx runs ("resolve"). */
ngx_uint_t ngx_mcp_rr_dynamic(ngx_http_upstream_srv_conf_t *us);

/*
 * Copies the address of peer "name" to "sa"; returns its length, 0: there is
 * no such peer, or it is down.
 */
socklen_t ngx_mcp_rr_address(ngx_http_upstream_srv_conf_t *us, ngx_str_t *name,
    ngx_sockaddr_t *sa);


#endif /* _NGX_MCP_RR_H_INCLUDED_ */
