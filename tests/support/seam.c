/*
 * seam - the daemon's side of a test that stops it between two steps
 *
 * CUBIEMEM_TEST_SEAM_FD is a packet socket that the daemon has inherited: each point
 * goes out as a packet of its name, and the daemon goes on when something comes back.
 * Without it, or when the test is gone, no point stops anything.
 */
#include "seam.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Also declared here: proto/seam.h does so only where points are compiled in. */
void seam_stop(const char *point);

void seam_stop(const char *point)
{
    const char *number = getenv("CUBIEMEM_TEST_SEAM_FD");
    char go;

    if (number == NULL) {
        return;
    }
    const int fd = atoi(number);
    if (send(fd, point, strlen(point), MSG_NOSIGNAL) >= 0) {
        (void)!recv(fd, &go, 1, 0);
    }
}
