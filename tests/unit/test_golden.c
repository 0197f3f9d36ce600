/*
 * test_golden - packets of earlier versions, decoded and encoded again
 *
 * tests/data/golden has one packet of every message with all of its fields set.
 * Each decodes, nothing in it is unknown here, and it encodes to the same bytes. Not
 * written by this code: see tests/integration/test_golden.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cubiemem.pb-c.h"
#include "protocol_limits.h"

static unsigned char packet[PACKET_MAX_SIZE], again[PACKET_MAX_SIZE];

static void one_packet(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    size_t size = fread(packet, 1, sizeof(packet), file);
    fclose(file);
    const ProtobufCMessageDescriptor *descriptor = strncmp(name, "client-", 7) == 0
                                                       ? &cubiemem__client_message__descriptor
                                                       : &cubiemem__daemon_message__descriptor;
    ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, NULL, size, packet);
    if (message == NULL) {
        fail_msg("%s cannot be decoded any more", name);
        return;
    }
    assert_true(protobuf_c_message_check(message));
    assert_int_equal(message->n_unknown_fields, 0);
    assert_int_equal(protobuf_c_message_get_packed_size(message), size);
    assert_int_equal(protobuf_c_message_pack(message, again), size);
    if (memcmp(packet, again, size) != 0) {
        fail_msg("%s: a field has another meaning now", name);
    }
    protobuf_c_message_free_unpacked(message, NULL);
}

static void every_golden_packet_is_understood(void **state)
{
    (void)state;
    const char *data = getenv("CUBIEMEM_TEST_DATA");
    char folder[300];
    struct dirent **entries;
    size_t n_packets = 0;
    snprintf(folder, sizeof(folder), "%s/golden", data != NULL ? data : "tests/data");
    int n = scandir(folder, &entries, NULL, alphasort);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(entries[i]->d_name, '.');
        if (dot != NULL && strcmp(dot, ".bin") == 0) {
            one_packet(folder, entries[i]->d_name);
            n_packets++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_true(n_packets >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_packet_is_understood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
