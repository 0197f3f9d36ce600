/* stream_inner - what streams, events and captures know of each other */
#ifndef DAEMON_SIM_STREAM_INNER_H
#define DAEMON_SIM_STREAM_INNER_H

#include <pthread.h>

#include "stream.h"

struct stream {
    struct link *link;
    uint64_t link_number;
    uint32_t lane;
    uint64_t capture; /* its number; 0: none */
    bool origin, invalidated;
    CUstreamCaptureMode mode;
    pthread_t thread; /* that began the capture */
};

/* stream.c */

CUresult stream_find(CUstream handle, struct stream **stream_p);
bool stream_is_legacy(const struct stream *stream);
/* The next of the streams that have a handle, from *at on; NULL: no more. */
struct stream *stream_next(uint32_t *at);
/* The point at which all that a stream now has to do is done. */
CUresult stream_mark(const struct stream *stream, uint32_t *number_p);
/* Wait for such a point, without the lock. */
CUresult stream_wait(struct link *link, uint32_t lane, uint32_t number);

/* capture.c */

void capture_invalidate(uint64_t capture);
/* Work on the legacy stream would have to be ordered with a capture. */
CUresult capture_allows(const struct stream *stream);
/* The stream takes part in a capture that another one has begun. */
CUresult capture_join(struct stream *stream, uint64_t capture);

/* event.c: those of a context that ends. */
void events_destroy(const struct link *link);

#endif
