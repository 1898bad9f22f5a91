
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * JSON-RPC as MCP uses it: builds the requests the module sends and reads the
 * answers.  The only file that touches JSON of the wire; jansson does the work.
 * Pure: no clock, no random, no I/O.  Memory: malloc, owned by the reader.
 */


#ifndef _MCP_RPC_H_INCLUDED_
#define _MCP_RPC_H_INCLUDED_


#include <stddef.h>

#include "mcp_modern.h"


#define MCP_RPC_ID_PREFIX     "mcpka-"
#define MCP_RPC_ID_MAX        64                /* with the final NUL */
#define MCP_RPC_BODY_MAX      (1024 * 1024)     /* kept if it was announced */
#define MCP_RPC_HEAD_MAX      (64 * 1024)       /* cost of any other body */
#define MCP_RPC_MESSAGE_MAX   160               /* with the final NUL */


typedef enum {
    MCP_MEDIA_NONE = 0,         /* no Content-Type */
    MCP_MEDIA_JSON,             /* application/json */
    MCP_MEDIA_SSE,              /* text/event-stream */
    MCP_MEDIA_HTML,             /* text/html, application/xhtml+xml */
    MCP_MEDIA_TEXT,             /* any other text type */
    MCP_MEDIA_OTHER
} mcp_media_t;


typedef enum {
    MCP_RPC_NOTHING = 0,        /* no JSON-RPC response was found */
    MCP_RPC_RESULT,             /* a response with "result" */
    MCP_RPC_ERROR               /* a response with "error" */
} mcp_rpc_kind_t;


typedef enum {
    MCP_RPC_ID_MISSING = 0,
    MCP_RPC_ID_NULL,
    MCP_RPC_ID_OURS,
    MCP_RPC_ID_FOREIGN
} mcp_rpc_id_t;


typedef struct {
    mcp_rpc_kind_t              kind;
    mcp_rpc_id_t                id;
    long long                   code;       /* of the error, 0 if none */
    char                        message[MCP_RPC_MESSAGE_MAX];
                                            /* of the error, safe to log: cut,
                                             * odd bytes replaced, what may be
                                             * an id or credential masked */
    char                        version[MCP_MODERN_VERSION_MAX];
                                            /* of those the server names with
                                             * -32022, one that we speak; else
                                             * empty */
    unsigned                    others;     /* messages that are not for us */
    unsigned                    json:1;     /* the body was well-formed JSON */
    unsigned                    object:1;   /* ... with "jsonrpc" at the top */
    unsigned                    too_big:1;  /* judged by its head */
    unsigned                    empty:1;    /* no body byte at all */
} mcp_rpc_answer_t;


typedef struct mcp_rpc_reader_s  mcp_rpc_reader_t;


typedef enum {
    MCP_RPC_AGAIN = 0,          /* more of the body is wanted */
    MCP_RPC_DONE,               /* the answer is in, the rest need not come */
    MCP_RPC_NOMEM
} mcp_rpc_rc_t;


/*
 * Tells the media type of a Content-Type value of "len" bytes (NULL: none);
 * parameters and case do not count (RFC 9110, 8.3.1).
 */
mcp_media_t mcp_rpc_media(const char *value, size_t len);

/*
 * Writes the keepalive request for "method" ("tools/list" or "ping") with the
 * string id "id" into "buf".  "version" is NULL for a legacy session; for a
 * modern peer (2026-07-28 and later) it is the protocol version and the request
 * carries the _meta that revision demands.  Returns the length without a NUL,
 * 0 if it does not fit or memory is short.
 */
size_t mcp_rpc_build(char *buf, size_t size, const char *method,
    const char *id, const char *version);

/*
 * Starts to read the answer to request "id", whose body is of type "media".
 * "length" is its Content-Length or -1.  Only a body announced with at most
 * MCP_RPC_BODY_MAX may cost more memory than MCP_RPC_HEAD_MAX, the reader
 * included; of any other one, and of each event of a stream, what does not fit
 * is dropped, and the head judged without a parse.  Nor is a result parsed that
 * is longer and kept: only its top level is looked at.  NULL: no memory.
 */
mcp_rpc_reader_t *mcp_rpc_reader_create(mcp_media_t media, const char *id,
    long long length);

/*
 * Takes the next "len" bytes.  MCP_RPC_DONE comes only on an event stream, with
 * the event that holds our id or an error with a null or missing id; bytes
 * given after it are ignored.  MCP_RPC_NOMEM: the reader goes on with what it
 * has.
 */
mcp_rpc_rc_t mcp_rpc_reader_feed(mcp_rpc_reader_t *r,
    const unsigned char *data, size_t len);

/*
 * Judges what has come, the end of the body included.  On plain JSON any
 * response counts whatever its id, one with our id first; an array is searched.
 */
void mcp_rpc_reader_finish(mcp_rpc_reader_t *r, mcp_rpc_answer_t *answer);

/*
 * The head of the raw body, for texts that are not JSON-RPC; owned by the
 * reader, never NULL.  "*len" says how many bytes are wanted at most and is set
 * to how many there are (of a stream 1024 at most).
 */
const char *mcp_rpc_reader_head(mcp_rpc_reader_t *r, size_t *len);

/* Frees the reader; NULL is allowed. */
void mcp_rpc_reader_destroy(mcp_rpc_reader_t *r);

/*
 * True if the whole body of a client's POST is one JSON-RPC request with the
 * method "initialize" (an array is not a session start).  Bodies over
 * MCP_RPC_HEAD_MAX and broken ones are not.
 */
int mcp_rpc_is_initialize(const unsigned char *data, size_t len);

/*
 * True if the body of a client's POST looks like JSON-RPC: an object or array
 * that names "jsonrpc".  Its head is enough.
 */
int mcp_rpc_is_message(const unsigned char *data, size_t len);


#endif /* _MCP_RPC_H_INCLUDED_ */
