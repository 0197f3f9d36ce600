/*
 * endpoint - where a daemon's socket is: the one rule for daemon, library, tool
 *
 * An explicit path wins (--socket, -s, CUBIEMEM_SOCKET), else
 * <run>/<UUID>.sock, where <run> is CUBIEMEM_RUNDIR or else, for the daemon,
 * the first of /run/cubiemem and $XDG_RUNTIME_DIR/cubiemem that it may write
 * to (made if its parent allows), and for the others both, in this order. What
 * else belongs to the daemon (<UUID>.lock, the simulated GPU's file) lies in
 * the socket's directory.
 */
#ifndef PROTO_ENDPOINT_H
#define PROTO_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

#define ENDPOINT_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path) /* with the 0 */

/*
 * The daemon's directory, known before its device is: of the explicit path (NULL:
 * CUBIEMEM_SOCKET) if there is one, else <run>, which is made if need be.
 * Return: as endpoint_for_daemon().
 */
int endpoint_run_dir(const char *explicit_path, char dir_p[ENDPOINT_PATH_MAX], char *why,
                     size_t why_size);

/* The directory part of a socket's path ("." if it has none): where the simulated
 * GPU's file lies, for a client that knows the socket. */
void endpoint_dir_of(const char *path, char dir_p[ENDPOINT_PATH_MAX]);

/*
 * Whether somebody listens on the socket file. Makes no connection, so nobody
 * notices. True also where it cannot be told (no rights).
 */
bool endpoint_is_alive(const char *path);

/*
 * The daemon's socket path for a device. explicit_path may be NULL; then
 * CUBIEMEM_SOCKET counts.
 * Return: CUBIEMEM_OK; INVALID_REQUEST (path too long); SYSTEM (no directory
 * that it may write to). why gets one line.
 */
int endpoint_for_daemon(const char *explicit_path, const char *uuid,
                        char path_p[ENDPOINT_PATH_MAX], char *why, size_t why_size);

/*
 * The socket a client should connect to. explicit_path and uuid may be NULL; the
 * environment (CUBIEMEM_SOCKET, CUBIEMEM_GPU, CUBIEMEM_RUNDIR,
 * XDG_RUNTIME_DIR) is read here. Sockets left behind by dead daemons do not
 * count where a live one is.
 * Return: CUBIEMEM_OK; INVALID_REQUEST (path too long, several daemons and no
 * choice made: why lists them); DISCONNECTED (none found: why says how to start
 * one).
 */
int endpoint_for_client(const char *explicit_path, const char *uuid,
                        char path_p[ENDPOINT_PATH_MAX], char *why, size_t why_size);

/* All sockets (<UUID>.sock) in the run directories, sorted in each; malloc'ed
 * strings in a malloc'ed array of n. Return: CUBIEMEM_OK or HOST_MEMORY. */
int endpoint_list(char ***paths_p, size_t *n_p);
void endpoint_list_free(char **paths, size_t n);

#endif
