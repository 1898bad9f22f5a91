
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * SipHash-2-4: a keyed 64-bit hash of short texts that strangers choose.  Pure.
 */


#ifndef _MCP_HASH_H_INCLUDED_
#define _MCP_HASH_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


#define MCP_HASH_KEY_LEN  16


/*
 * The hash of the eight bytes of "space", lowest first, and the "len" bytes
 * after them, under a secret key.
 */
uint64_t mcp_hash(const unsigned char *key, uint64_t space, const void *data,
    size_t len);


#endif /* _MCP_HASH_H_INCLUDED_ */
