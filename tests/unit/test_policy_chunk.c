/*
 * test_policy_chunk - the largest chunk length against trying all of them, over
 * granularities, sizes and rooms; and lengths too large to try.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chunk.h"

static const struct {
    uint64_t granularity, alignment;
} granules[] = { { 1, 1 }, { 1, 7 }, { 4, 2 }, { 12, 4 }, { 64, 8 }, { 100, 25 }, { 4096, 512 } };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static void bisection_finds_what_trying_all_finds(void **state)
{
    uint64_t random = 42;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t g = next_random(&random) % (sizeof(granules) / sizeof(granules[0]));
        uint64_t rows[6], most = 2 + next_random(&random) % 60, expected = 0;
        struct chunk_member members[2] = { { .n_rows = 2 }, { .first_row = 2, .n_rows = 4 } };
        struct chunk_batch batch = { granules[g].granularity, granules[g].alignment, members, 2,
                                     rows, 6 };
        bytes128 room, before = 0;

        for (size_t i = 0; i < 6; i++) {
            rows[i] = next_random(&random) % (i == 0 ? 3 : 40);
        }
        chunk_member_add(&batch, &members[0], next_random(&random) % 100);
        chunk_member_add(&batch, &members[1], next_random(&random) % 5000);
        room = next_random(&random) % (uint64_t)(chunk_total(&batch, most, NULL) + 2);
        for (uint64_t n = 1; n <= most; n++) {
            bytes128 total = chunk_total(&batch, n, NULL);

            assert_true(total >= before); /* rule 5: never decreases */
            before = total;
            expected = total <= room ? n : expected;
        }
        if (expected > 0) {
            assert_true(chunk_largest(&batch, most, room, NULL) == expected);
        }
    }
}

static void the_last_byte_decides(void **state)
{
    uint64_t rows[] = { 132 };
    struct chunk_member member = { .n_rows = 1 };
    struct chunk_batch batch = { 1, 1, &member, 1, rows, 1 };

    (void)state;
    chunk_member_add(&batch, &member, 16);
    assert_true(chunk_total(&batch, 0, NULL) == 16);
    assert_true(chunk_total(&batch, 7, NULL) == 940);
    assert_true(chunk_largest(&batch, 7, 940, NULL) == 7);
    assert_true(chunk_largest(&batch, 7, 939, NULL) == 6);
    assert_true(chunk_largest(&batch, 7, 148, NULL) == 1);
    assert_true(chunk_largest(&batch, 7, 500, NULL) == 3);
}

static void lengths_near_the_end_of_integers_are_found(void **state)
{
    uint64_t rows[] = { 1 }, most = INT64_MAX;
    struct chunk_member member = { .n_rows = 1 };
    struct chunk_batch batch = { 2ull << 20, 512, &member, 1, rows, 1 };
    bytes128 room = (bytes128)INT64_MAX - 12345;

    (void)state;
    /* Whole granules of the room. */
    assert_true(chunk_largest(&batch, most, room, NULL) ==
                (uint64_t)room / (2ull << 20) * (2ull << 20));
    assert_true(chunk_largest(&batch, most, (bytes128)1 << 100, NULL) == most);
}

static void only_those_under_the_ceiling_are_counted(void **state)
{
    struct account account = { .kind = POLICY_CEILING_UID };
    struct policy_instance under = { .accounts = { [POLICY_CEILING_UID] = &account } };
    struct policy_instance apart = { .accounts = { NULL } };
    uint64_t rows[] = { 10, 1000 };
    struct chunk_member members[] = { { .instance = &under, .n_rows = 1 },
                                      { .instance = &apart, .first_row = 1, .n_rows = 1 } };
    struct chunk_batch batch = { 1, 1, members, 2, rows, 2 };

    (void)state;
    assert_true(chunk_total(&batch, 3, NULL) == 3030);
    assert_true(chunk_total(&batch, 3, &account) == 30);
    assert_true(chunk_largest(&batch, 9, 55, &account) == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bisection_finds_what_trying_all_finds),
        cmocka_unit_test(the_last_byte_decides),
        cmocka_unit_test(lengths_near_the_end_of_integers_are_found),
        cmocka_unit_test(only_those_under_the_ceiling_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
