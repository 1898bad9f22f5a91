
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * How a session starts: what a client's "initialize" asked for, what the server
 * said to it, and the same asked once more in the client's place.  Pure; memory
 * by malloc, owned by the reader.
 */


#ifndef _MCP_START_H_INCLUDED_
#define _MCP_START_H_INCLUDED_


#include <stddef.h>

#include "mcp_rpc.h"


#define MCP_START_PARAMS_MAX   2048             /* kept of a client */
#define MCP_START_BODY_MAX     (MCP_START_PARAMS_MAX + 256)
#define MCP_START_VERSION_MAX  11               /* with the final NUL */


typedef struct {
    unsigned                    found:1;        /* a result of "initialize" */
    unsigned                    list_changed:1; /* tools.listChanged */
    char                        version[MCP_START_VERSION_MAX];
                                                /* protocolVersion; empty: none,
                                                 * or not one for a header */
} mcp_start_answer_t;


typedef struct mcp_start_reader_s  mcp_start_reader_t;


/*
 * Writes the "params" of the client's "initialize" in "data" to "buf", compact
 * and with sorted keys so that like ones are equal.  Returns the length; 0: it
 * is none, or longer than "size", or memory is short.
 */
size_t mcp_start_params(const unsigned char *data, size_t len, char *buf,
    size_t size);

/*
 * Writes an "initialize" with the string id "id" and such params, or the
 * notification that follows it.  Returns the length, 0: does not fit.
 */
size_t mcp_start_initialize(char *buf, size_t size, const char *id,
    const char *params, size_t len);
size_t mcp_start_initialized(char *buf, size_t size);

/*
 * Reads the answer to an "initialize" from a body of type "media", up to
 * MCP_RPC_HEAD_MAX bytes of it or of one event.  create: NULL, no memory; feed
 * takes the next bytes and returns 1 when the answer is in; finish says what
 * was found; destroy takes NULL.
 */
mcp_start_reader_t *mcp_start_create(mcp_media_t media);
int mcp_start_feed(mcp_start_reader_t *r, const unsigned char *data,
    size_t len);
void mcp_start_finish(mcp_start_reader_t *r, mcp_start_answer_t *answer);
void mcp_start_destroy(mcp_start_reader_t *r);


#endif /* _MCP_START_H_INCLUDED_ */
