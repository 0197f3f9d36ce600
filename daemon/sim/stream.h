/* stream - streams, events and captures */
#ifndef DAEMON_SIM_STREAM_H
#define DAEMON_SIM_STREAM_H

#include <stdbool.h>

#include "link.h"

/* All under the process's lock; those that wait give it up meanwhile. */
CUresult stream_create(unsigned int flags, CUstream *stream_p);
CUresult stream_destroy(CUstream stream);
CUresult stream_submit(CUstream stream, struct queue_op op);
CUresult stream_synchronize(CUstream stream);
CUresult stream_query(CUstream stream);
CUresult stream_synchronize_all(void);
CUresult stream_wait_event(CUstream stream, CUevent event);

CUresult event_create(CUevent *event_p);
CUresult event_destroy(CUevent event);
CUresult event_record(CUevent event, CUstream stream);
CUresult event_query(CUevent event);
CUresult event_synchronize(CUevent event);

CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult capture_end(CUstream stream, CUgraph *graph_p);
CUresult capture_status(CUstream stream, CUstreamCaptureStatus *status_p);
CUresult capture_exchange_mode(CUstreamCaptureMode *mode);
/* Is this a moment for a call that a capture forbids? If not, the captures are
 * invalidated. */
CUresult capture_allows_unsafe(void);

/* A context's streams and events go with it. */
void streams_destroy(const struct link *link);

#endif
