/*
 * kick - kick ID [--kill]: end a client's session, and its process if so wished
 *
 * The daemon ends the session and signals nobody. With --kill this program sends
 * SIGKILL itself, with its user's rights, through a pidfd, and only to a process
 * whose start time is the one that the daemon saw when it connected: a process of
 * another PID namespace, or a later one of the same number, is never signalled.
 */
#include "client_name.h"
#include "ctl.h"
#include "kick.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Field 22 of /proc/PID/stat, counted behind the command's last ')'; 0: unknown. */
static uint64_t start_time_of(uint32_t pid)
{
    char path[64], line[1024];

    snprintf(path, sizeof(path), "/proc/%u/stat", (unsigned int)pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    size_t size = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[size] = '\0';
    const char *field = strrchr(line, ')');
    for (int i = 2; field && i < 22; i++) {
        field = strchr(field + 1, ' ');
    }
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

int kick_kill(uint32_t pid, uint64_t start_time)
{
    if (pid == 0 || start_time == 0) {
        return ctl_fail(CTL_NOT_FOUND, "its process is not visible from the daemon (another PID "
                                       "namespace): nobody was signalled");
    }
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    /* Read behind the opening: if it agrees, the pidfd is of that very process. */
    if (pidfd < 0 || start_time_of(pid) != start_time) {
        int error = pidfd < 0 ? errno : ESRCH;
        if (pidfd >= 0) {
            close(pidfd);
        }
        return ctl_fail(error == ESRCH ? CTL_NOT_FOUND : CTL_FAILED,
                        "process %u is not the one that connected (any more): nobody was "
                        "signalled%s%s",
                        (unsigned int)pid, error == ESRCH ? "" : ": ",
                        error == ESRCH ? "" : strerror(error));
    }
    int result = CTL_OK;
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) != 0) {
        int error = errno;
        result = ctl_fail(error == EPERM   ? CTL_NOT_PERMITTED
                          : error == ESRCH ? CTL_NOT_FOUND
                                           : CTL_FAILED,
                          "cannot kill process %u: %s", (unsigned int)pid, strerror(error));
    }
    close(pidfd);
    return result;
}

static int kicked_print(const struct ctl *ctl, uint64_t id, const Cubiemem__Kicked *kicked)
{
    bool known = kicked->has_pid && kicked->pid != 0;

    if (ctl->json) {
        json_t *pid = known ? json_integer((json_int_t)kicked->pid) : NULL;
        return ctl_print_json(json_pack("{s:I, s:o?, s:b}", "client", (json_int_t)id, "pid", pid,
                                        "killed", ctl->kill));
    }
    printf("client %ju: session ended%s\n", (uintmax_t)id, ctl->kill ? ", process killed" : "");
    return CTL_OK;
}

static int kick(const struct ctl *ctl, uint64_t id)
{
    Cubiemem__ClientMessage message = CUBIEMEM__CLIENT_MESSAGE__INIT;
    Cubiemem__Kick body = CUBIEMEM__KICK__INIT;
    Cubiemem__DaemonMessage *reply;

    body.has_client_id = true;
    body.client_id = id;
    message.kick = &body;
    int result = ctl_request(ctl, &message, &reply);
    if (result != CTL_OK) {
        return result;
    }
    const Cubiemem__Kicked *kicked = reply->kicked;
    if (!kicked) {
        result = ctl_fail(CTL_FAILED, "the daemon answered without naming the process");
    } else if (ctl->kill) {
        result = kick_kill(kicked->has_pid ? kicked->pid : 0, kicked->start_time);
    }
    if (result == CTL_OK) {
        result = kicked_print(ctl, id, kicked);
    }
    client_reply_free(reply);
    return result;
}

int cmd_kick(const struct ctl *ctl, int argc, char **argv)
{
    struct client_name name;
    json_t *document;

    (void)argc;
    if (!client_name_parse(argv[1], &name) || name.instance) {
        return ctl_fail(CTL_USAGE, "kick '%s': a client's ID is wanted, as status shows it",
                        argv[1]);
    }
    int result = ctl_status(ctl, &document);
    if (result != CTL_OK) {
        return result;
    }
    const json_t *client = client_find(document, name.client);
    if (client) {
        client_announce(ctl->kill ? "ending the session and killing the process of"
                                  : "ending the session of",
                        client);
    }
    json_decref(document);
    return kick(ctl, name.client);
}
