
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The end of a subscription (2026-07-28, "subscriptions/listen"): the one
 * message the module says in a server's name.
 */


#ifndef _MCP_RPC_LISTEN_H_INCLUDED_
#define _MCP_RPC_LISTEN_H_INCLUDED_


#include <stddef.h>


/*
 * Writes the event that completes the subscription asked for by the body
 * "data" of a client's POST.  Returns the length without a NUL; 0: the body is
 * no such request, the event does not fit, or memory is short.
 */
size_t mcp_rpc_complete(char *buf, size_t size, const unsigned char *data,
    size_t len);


#endif /* _MCP_RPC_LISTEN_H_INCLUDED_ */
