
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What a keepalive says: its headers, and a body with an id of its own.
 */


#ifndef _NGX_MCP_MESSAGE_H_INCLUDED_
#define _NGX_MCP_MESSAGE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "mcp/mcp_rpc.h"
#include "ngx_mcp_conf.h"
#include "ngx_mcp_session.h"


#define NGX_MCP_MESSAGE_MAX   512       /* of a body, in bytes */


/*
 * Takes the texts of a lease over into "pool", and wipes the credentials where
 * they lay before.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_mcp_message_keep(ngx_pool_t *pool, ngx_mcp_lease_t *lease);

/*
 * The headers besides Host and the content's, as an array of ngx_keyval_t that
 * points into the lease.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_mcp_message_headers(ngx_pool_t *pool, ngx_mcp_srv_conf_t *conf,
    ngx_mcp_lease_t *lease, ngx_array_t *headers);

/*
 * A new id of MCP_RPC_ID_MAX bytes at most, and the body with it; "buf" has
 * NGX_MCP_MESSAGE_MAX bytes.  The lease is one of ngx_mcp_message_keep().
 * Returns the body's length, 0: no memory, or no random number.
 */
size_t ngx_mcp_message_body(ngx_mcp_lease_t *lease, char *id, u_char *buf);

/* Takes out of a text what the lease has of secrets. */
void ngx_mcp_message_scrub(ngx_mcp_lease_t *lease, ngx_str_t *uri, char *text);


#endif /* _NGX_MCP_MESSAGE_H_INCLUDED_ */
