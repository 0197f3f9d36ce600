/*
 * test_daemon_parts - identity, control pages, the scrub check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control_page.h"
#include "identity.h"
#include "scrub.h"

static void the_peer_is_known_and_its_death_is_seen(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct identity self;
    assert_int_equal(identity_read(ends[0], &self), 0);
    assert_int_equal(self.pid, getpid());
    assert_int_equal(self.uid, getuid());
    assert_true(self.start_time > 0);
    assert_true(self.pidfd >= 0);
    assert_true((fcntl(self.pidfd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true(identity_is_admin(ends[0], &self, (gid_t)-1)); /* the daemon's own user */
    struct identity stranger = self;
    stranger.uid = geteuid() + 1234;
    assert_false(identity_is_admin(ends[0], &stranger, (gid_t)-1));
    stranger.gid = 4711;
    assert_true(identity_is_admin(ends[0], &stranger, 4711));
    assert_false(identity_is_admin(ends[0], &stranger, 4712));
    struct pollfd alive = {.fd = self.pidfd, .events = POLLIN};
    assert_int_equal(poll(&alive, 1, 0), 0);
    identity_finish(&self);
    assert_int_equal(self.pidfd, -1);
    close(ends[0]);
    close(ends[1]);
}

static bool looks_idle(struct control_page *page, uint32_t reference)
{
    control_pages_look(page);
    return control_page_is_idle(page, reference);
}

static void a_control_page_is_sealed_and_slots_are_used_again(void **state)
{
    (void)state;
    int fd;
    struct control_page *page = control_page_create(0, &fd);
    assert_non_null(page);
    assert_int_not_equal(ftruncate(fd, 0), 0); /* nobody can shrink it below the daemon */
    assert_int_not_equal(ftruncate(fd, 2 * CONTROL_PAGE_SIZE), 0);
    assert_int_not_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    uint32_t first = control_page_allot(page), second = control_page_allot(page);
    assert_int_not_equal(first, 0);
    assert_int_not_equal(first, second);
    control_page_free(page, first);
    assert_int_equal(control_page_allot(page), first);
    unsigned n = 2;
    while (control_page_allot(page) != 0) {
        n++;
    }
    assert_int_equal(n, CONTROL_OWNERS_PER_PAGE);
    control_page_destroy(page);
    close(fd);
}

static void idle_is_nothing_begun_all_used_all_completed(void **state)
{
    (void)state;
    int fd;
    struct control_page *page = control_page_create(3, &fd);
    uint32_t reference = control_page_allot(page);
    struct control_owner *owner = control_page_owner(page, reference);
    assert_true(looks_idle(page, reference));
    atomic_store(&owner->granted, 1);
    assert_false(looks_idle(page, reference)); /* granted, not used yet */
    atomic_store(&owner->used, 1);
    assert_true(looks_idle(page, reference));
    atomic_store(&owner->word, 1);
    assert_false(looks_idle(page, reference));
    atomic_store(&owner->word, 0);
    struct control_stream *stream = &page->slots[CONTROL_SLOTS - 1].stream;
    atomic_store(&stream->owner, reference);
    atomic_store(&stream->submitted, 2);
    atomic_store(&stream->completed, 1);
    atomic_store(&stream->kind, CONTROL_STREAM);
    assert_false(looks_idle(page, reference));
    atomic_store(&stream->completed, 2);
    assert_true(looks_idle(page, reference));
    /* Nonsense is nobody's fault but the client's, and reads nothing outside. */
    for (uint32_t i = 0; i < CONTROL_SLOTS; i++) {
        memset(&page->slots[i], (int)(i * 37 + 1), sizeof(page->slots[i]));
    }
    looks_idle(page, reference);
    looks_idle(page, 0xffffffff);
    assert_null(control_page_owner(page, 0xffff0001));
    control_page_destroy(page);
    close(fd);
}

static bool scrub_of(const char *text)
{
    char path[] = "/tmp/cubiemem-params.XXXXXX", why[200] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    bool on = scrub_is_on(path, why, sizeof(why));
    assert_true(on == (why[0] == '\0'));
    unlink(path);
    return on;
}

static void scrubbing_must_be_certain(void **state)
{
    (void)state;
    char why[200];
    assert_true(scrub_of("ResmanDebugLevel: 4294967295\nRegistryDwords: \"\"\n"));
    assert_true(scrub_of("RegistryDwords: \"RMOther=1;RMDisableScrubOnFree=0\"\n"));
    assert_false(scrub_of("RegistryDwords: \"RMOther=1;RMDisableScrubOnFree=1\"\n"));
    assert_false(scrub_of("RegistryDwords: \"rmdisablescrubonfree=0x1;A=0\"\n"));
    assert_false(scrub_of("ResmanDebugLevel: 4294967295\n"));
    assert_false(scrub_is_on("/nonexistent/params", why, sizeof(why)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peer_is_known_and_its_death_is_seen),
        cmocka_unit_test(a_control_page_is_sealed_and_slots_are_used_again),
        cmocka_unit_test(idle_is_nothing_begun_all_used_all_completed),
        cmocka_unit_test(scrubbing_must_be_certain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
