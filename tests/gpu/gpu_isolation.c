/*
 * gpu_isolation - fresh memory of another reads zero
 *
 * Somebody fills the whole budget with a pattern and goes: killed, or in order. The
 * next tenant gets the same bytes of the budget and finds no word of the pattern,
 * whatever way they came: another user's cached memory goes through the driver first,
 * and so does a dead client's (DESIGN 3.3, 3.10).
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "card.h"
#include "harness.h"
#include "outcome.h"
#include "role.h"
#include "tenant.h"

#define MIB     ((uint64_t)1 << 20)
#define PATTERN 0xb10bb10bu
#define USER_A  65001
#define USER_B  65002

struct part {
    const struct harness *harness;
    const char *name;
    uid_t uid; /* 0: as it is */
    uint64_t size;
    int shows;    /* reads what it finds instead of writing */
    int released; /* gives back before it says that it is done */
};

static void become(uid_t uid)
{
    if (uid != 0 && (setgid(uid) < 0 || setuid(uid) < 0)) {
        fail("cannot become user %d", (int)uid);
    }
}

static void part_run(int fd, const void *argument)
{
    const struct part *part = argument;
    struct tenant tenant;
    struct cubiemem_array array;
    struct card card;
    uint64_t n_foreign = 0;
    uint32_t foreign = 0;

    become(part->uid);
    tenant_open(part->harness, part->name, 0, &tenant);
    card_open(part->harness, &card);
    card_use(&card);
    tenant_take_when_free(&tenant, part->size, 20000, &array);
    if (part->shows) {
        n_foreign =
            card_count_foreign(&card, (CUdeviceptr)array.pointer, array.nbytes, 0, &foreign);
    } else {
        card_fill(&card, (CUdeviceptr)array.pointer, array.nbytes, PATTERN);
    }
    if (part->released) {
        tenant_release(&tenant);
    }
    role_tell(fd, &n_foreign, sizeof(n_foreign));
    role_tell(fd, &foreign, sizeof(foreign));
    role_hear(fd, &n_foreign, 1); /* a word to end; who is killed hears none */
    tenant_close(&tenant);
    card_close(&card);
}

static uint64_t part_hear(const struct role *role, uint32_t *foreign_p)
{
    uint64_t n_foreign;

    role_hear(role->fd, &n_foreign, sizeof(n_foreign));
    role_hear(role->fd, foreign_p, sizeof(*foreign_p));
    return n_foreign;
}

static void story(const struct harness *harness, const char *what, uint64_t size, bool killed,
                  uid_t writer_uid, uid_t reader_uid)
{
    const struct part writes = {
        .harness = harness, .name = "writer", .uid = writer_uid, .size = size, .released = !killed};
    const struct part reads = {
        .harness = harness, .name = "reader", .uid = reader_uid, .size = size, .shows = 1};
    struct role writer, reader;
    uint32_t foreign = 0;

    role_start(&writer, "writer", part_run, &writes);
    part_hear(&writer, &foreign);
    if (killed) {
        role_kill(&writer);
    }
    role_start(&reader, "reader", part_run, &reads);
    uint64_t n_foreign = part_hear(&reader, &foreign);
    role_tell(reader.fd, "", 1);
    role_finish(&reader);
    if (!killed) {
        role_tell(writer.fd, "", 1);
        role_finish(&writer);
    }
    expect(n_foreign == 0, "%s: %llu of %llu words are not zero, the first is %08x", what,
           (unsigned long long)n_foreign, (unsigned long long)(size / sizeof(uint32_t)), foreign);
    printf("%s: %llu MiB read zero\n", what, (unsigned long long)(size / MIB));
}

int main(void)
{
    const char *device = harness_device("sim:256MiB");
    bool simulated = harness_device_is_simulated(device);
    uint64_t size = simulated ? 64 * MIB : 4096 * MIB;
    char budget[32];
    struct harness harness;
    const char *const arguments[] = {"--budget", budget, "--mode", "passive", NULL};
    const struct harness_options options = {.arguments = arguments, .open_to_all = geteuid() == 0};

    snprintf(budget, sizeof(budget), "%lluMiB", (unsigned long long)(size / MIB));
    harness_start(device, &options, &harness);
    story(&harness, "after a killed client", size, true, 0, 0);
    if (geteuid() == 0) {
        story(&harness, "after another user's release", size, false, USER_A, USER_B);
        story(&harness, "after another user was killed", size, true, USER_A, USER_B);
    } else {
        printf("other users: left out (not root)\n");
    }
    harness_stop(&harness);
    return 0;
}
