
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

/*
 * Copies the address of peer "name" to "sa"; returns its length, 0: there is
 * no such peer, or it is down.
 */
socklen_t ngx_mcp_rr_address(ngx_http_upstream_srv_conf_t *us, ngx_str_t *name,
    ngx_sockaddr_t *sa);


#endif /* _NGX_MCP_RR_H_INCLUDED_ */
