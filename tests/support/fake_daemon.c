/*
 * fake_daemon - a scripted daemon in a thread, for tests of the library
 */
#include "fake_daemon.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol_limits.h"
#include "status.h"

#define GRANULARITY (2ull << 20)

void fake_daemon_send(struct fake_daemon *fake, Cubiemem__DaemonMessage *message, const int *fds,
                      size_t n_fds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PACKET_MAX_FDS)];
    } control = {0};
    uint8_t *data = malloc(PACKET_MAX_SIZE);
    if (n_fds > 0) {
        message->has_packet = true;
        message->packet = ++fake->last_packet;
    }
    size_t size = cubiemem__daemon_message__pack(message, data);
    struct iovec part = {data, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_fds > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(rights), fds, sizeof(int) * n_fds);
    }
    (void)!sendmsg(fake->socket, &header, MSG_NOSIGNAL);
    free(data);
}

void fake_daemon_answer(struct fake_daemon *fake, uint64_t id, int status, const char *text)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    message.has_id = true;
    message.id = id;
    message.result = &result;
    result.has_code = true;
    result.code = status;
    result.text = (char *)(uintptr_t)text;
    fake_daemon_send(fake, &message, NULL, 0);
}

void fake_daemon_invalidate(struct fake_daemon *fake, uint64_t instance)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Invalidate invalidate = CUBIEMEM__INVALIDATE__INIT;
    message.invalidate = &invalidate;
    invalidate.has_evict_id = true;
    invalidate.evict_id = ++fake->last_id;
    invalidate.n_instance_ids = 1;
    invalidate.instance_ids = &instance;
    fake_daemon_send(fake, &message, NULL, 0);
}

/* ------------------------------------------------------------ answers */

static int make_page(struct fake_daemon *fake)
{
    int fd = memfd_create("fake-control", MFD_CLOEXEC);
    assert(fd >= 0 && ftruncate(fd, CONTROL_PAGE_SIZE) == 0);
    fake->page = mmap(NULL, CONTROL_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(fake->page != MAP_FAILED);
    fake->page[0].header.magic = CONTROL_MAGIC;
    fake->page[0].header.n_slots = CONTROL_SLOTS;
    atomic_store(&fake->page[0].header.kind, CONTROL_HEADER);
    return fd;
}

static void answer_hello(struct fake_daemon *fake, const Cubiemem__ClientMessage *from)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    Cubiemem__HelloReply hello = CUBIEMEM__HELLO_REPLY__INIT;
    char version[] = "9.9.9";
    int fd = make_page(fake);
    message.has_id = true;
    message.id = from->id;
    message.result = &result;
    message.hello = &hello;
    result.has_code = true;
    hello.has_major = hello.has_granularity = hello.has_control_page_size = true;
    hello.has_simulated = hello.has_client_id = hello.has_budget = true;
    hello.major = fake->major;
    hello.granularity = GRANULARITY;
    hello.budget = 1 << 30;
    hello.simulated = true;
    hello.client_id = 7;
    hello.daemon_version = version;
    hello.device_uuid = fake->uuid;
    hello.run_dir = getenv("CUBIEMEM_RUNDIR");
    hello.control_page_size = CONTROL_PAGE_SIZE;
    fake_daemon_send(fake, &message, &fd, 1);
    close(fd);
}

static void answer_register(struct fake_daemon *fake, const Cubiemem__ClientMessage *from)
{
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    Cubiemem__InstanceReply instance = CUBIEMEM__INSTANCE_REPLY__INIT;
    uint32_t slot = ++fake->n_owners;
    atomic_store(&fake->page[slot].owner.kind, CONTROL_OWNER);
    message.has_id = true;
    message.id = from->id;
    message.result = &result;
    message.instance = &instance;
    result.has_code = true;
    instance.has_instance_id = instance.has_owner_slot = true;
    instance.instance_id = slot; /* one owner an instance: the id is the slot */
    instance.owner_slot = slot;
    fake_daemon_send(fake, &message, NULL, 0);
}

static void answer_status(struct fake_daemon *fake, const Cubiemem__ClientMessage *from)
{
    int n = fake->n_fake_parts; /* the test may change it as soon as it has its answer */
    for (int i = 0; i < n; i++) {
        Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
        Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
        Cubiemem__StatusReply status = CUBIEMEM__STATUS_REPLY__INIT;
        char text[16], *piece = text;
        snprintf(text, sizeof text, "[%d]", i);
        message.has_id = message.has_part = message.has_more = true;
        message.id = from->id;
        message.part = (uint32_t)i;
        message.more = i + 1 < n;
        message.result = &result;
        message.status = &status;
        result.has_code = true;
        status.n_json = 1;
        status.json = &piece;
        fake_daemon_send(fake, &message, NULL, 0);
    }
}

/* ------------------------------------------------------------- memory */

static struct fake_segment *find_segment(struct fake_daemon *fake, uint64_t instance,
                                         const char *label)
{
    for (size_t i = 0; i < fake->n_segments; i++) {
        struct fake_segment *segment = &fake->segments[i];
        if (segment->live && segment->instance == instance && strcmp(segment->label, label) == 0) {
            return segment;
        }
    }
    return NULL;
}

static int new_segment(struct fake_daemon *fake, uint64_t instance, const char *label,
                       uint64_t size, struct fake_segment **segment_p)
{
    CUmemAllocationProp prop = segment_prop(0);
    int fd = -1;
    assert(fake->n_segments < FAKE_BLOCKS_MAX);
    struct fake_segment *segment = &fake->segments[fake->n_segments++];
    *segment = (struct fake_segment){.id = ++fake->last_id, .size = size, .instance = instance,
                                     .live = true};
    segment->block = segment->id;
    snprintf(segment->label, sizeof segment->label, "%s", label);
    CUresult result = fake->driver->cuMemCreate(&segment->handle, size, &prop, 0);
    assert(result == CUDA_SUCCESS);
    result = fake->driver->cuMemExportToShareableHandle(
        &fd, segment->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    assert(result == CUDA_SUCCESS);
    (void)result;
    *segment_p = segment;
    return fd;
}

static uint64_t bytes_of(const Cubiemem__ArrayRequest *request)
{
    int dtype = 0;
    dtype_from_name(request->dtype, &dtype);
    uint64_t bytes = dtype_size(dtype);
    for (size_t i = 0; i < request->n_shape; i++) {
        bytes *= (uint64_t)request->shape[i];
    }
    return bytes;
}

/* What a grant is put together from; bounded, as tests are small. */
struct fake_grant {
    Cubiemem__ArrayResponse response;
    Cubiemem__Block blocks[64], *block_list[64];
    Cubiemem__Segment segments[64], *segment_list[64];
    Cubiemem__ArrayPlacement places[64], *place_list[64];
    uint64_t dropped[64];
    int fds[64];
    size_t n_fds;
};

static void grant_array(struct fake_daemon *fake, struct fake_grant *grant,
                        const Cubiemem__ArrayRequest *request)
{
    Cubiemem__ArrayResponse *response = &grant->response;
    size_t k = response->n_arrays++;
    Cubiemem__ArrayPlacement *place = &grant->places[k];
    uint64_t instance = response->instance_id;
    uint64_t bytes = bytes_of(request);
    cubiemem__array_placement__init(place);
    grant->place_list[k] = place;
    place->label = request->label;
    place->dtype = request->dtype;
    place->n_shape = request->n_shape;
    place->shape = request->shape;
    place->has_nbytes = place->has_memory = true;
    place->nbytes = bytes;
    place->memory = request->memory;
    struct fake_segment *old = find_segment(fake, instance, request->label);
    uint64_t size = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    if (request->memory == CUBIEMEM__MEMORY__PINNED || bytes == 0) {
        return;
    }
    place->has_block_id = true;
    if (old != NULL && old->size == size) {
        place->block_id = old->block;
        return;
    }
    if (old != NULL) {
        grant->dropped[response->n_dropped_blocks++] = old->block;
        old->live = false;
    }
    struct fake_segment *segment = NULL;
    grant->fds[grant->n_fds++] = new_segment(fake, instance, request->label, size, &segment);
    size_t b = response->n_blocks++;
    cubiemem__block__init(&grant->blocks[b]);
    cubiemem__segment__init(&grant->segments[b]);
    grant->block_list[b] = &grant->blocks[b];
    grant->segment_list[b] = &grant->segments[b];
    grant->blocks[b].has_block_id = grant->blocks[b].has_size = grant->blocks[b].has_kind = true;
    grant->blocks[b].block_id = segment->block;
    grant->blocks[b].size = size;
    grant->blocks[b].kind = CUBIEMEM__HANDLE_KIND__HANDLE_VMM_FD;
    grant->blocks[b].n_segments = 1;
    grant->blocks[b].segments = &grant->segment_list[b];
    grant->segments[b].has_segment_id = grant->segments[b].has_size = true;
    grant->segments[b].segment_id = segment->id;
    grant->segments[b].size = size;
    place->block_id = segment->block;
}

static void grant_all(struct fake_daemon *fake, uint64_t id, uint64_t instance,
                      const Cubiemem__Allocate *allocate)
{
    struct fake_grant *grant = calloc(1, sizeof *grant);
    Cubiemem__DaemonMessage message = CUBIEMEM__DAEMON_MESSAGE__INIT;
    Cubiemem__Result result = CUBIEMEM__RESULT__INIT;
    cubiemem__array_response__init(&grant->response);
    grant->response.has_instance_id = grant->response.has_grant = true;
    grant->response.instance_id = instance;
    grant->response.grant = ++fake->last_grant;
    grant->response.has_runs = grant->response.has_chunks = true;
    grant->response.runs = grant->response.chunks = 1;
    grant->response.has_chunk_length = grant->response.has_tail_length = true;
    grant->response.chunk_length = grant->response.tail_length = 1;
    grant->response.blocks = grant->block_list;
    grant->response.arrays = grant->place_list;
    grant->response.dropped_blocks = grant->dropped;
    for (size_t i = 0; i < allocate->n_requests; i++) {
        for (size_t j = 0; allocate->requests[i]->instance_id == instance &&
                           j < allocate->requests[i]->n_arrays && grant->response.n_arrays < 64;
             j++) {
            grant_array(fake, grant, allocate->requests[i]->arrays[j]);
        }
    }
    atomic_store(&fake->page[instance].owner.granted, fake->last_grant);
    message.has_id = true;
    message.id = id;
    message.result = &result;
    message.response = &grant->response;
    result.has_code = true;
    fake_daemon_send(fake, &message, grant->fds, fake->lose_fds ? 0 : grant->n_fds);
    for (size_t i = 0; i < grant->n_fds; i++) {
        close(grant->fds[i]);
    }
    free(grant);
}

static void answer_allocate(struct fake_daemon *fake, const Cubiemem__ClientMessage *from)
{
    const Cubiemem__Allocate *allocate = from->allocate;
    if (fake->refuse != 0) {
        fake_daemon_answer(fake, from->id, fake->refuse, "the fake refuses");
        return;
    }
    /* Other instances of the batch get theirs as events before. */
    for (size_t i = 0; i < allocate->n_requests; i++) {
        if (allocate->requests[i]->instance_id != allocate->instance_id) {
            grant_all(fake, 0, allocate->requests[i]->instance_id, allocate);
        }
    }
    grant_all(fake, from->id, allocate->instance_id, allocate);
}

static void take_release(struct fake_daemon *fake, const Cubiemem__Release *release)
{
    for (size_t i = 0; i < fake->n_segments; i++) {
        struct fake_segment *segment = &fake->segments[i];
        bool goes = release->all;
        for (size_t j = 0; j < release->n_labels; j++) {
            goes = goes || strcmp(segment->label, release->labels[j]) == 0;
        }
        if (goes && segment->instance == release->instance_id) {
            segment->live = false;
        }
    }
    fake->n_releases++;
}

/* ----------------------------------------------------------- dispatch */

static void answer(struct fake_daemon *fake, const Cubiemem__ClientMessage *message)
{
    fake_handler_fn *handler = fake->handler;
    if (handler != NULL && handler(fake, message)) {
        return;
    }
    if (message->hello != NULL) {
        answer_hello(fake, message);
    } else if (message->ping != NULL) {
        fake_daemon_answer(fake, message->id, CUBIEMEM_OK, NULL);
    } else if (message->register_instance != NULL) {
        answer_register(fake, message);
    } else if (message->status != NULL) {
        answer_status(fake, message);
    } else if (message->allocate != NULL) {
        fake->n_allocates++;
        answer_allocate(fake, message);
    } else if (message->ack != NULL) {
        fake->n_acks++;
        fake->n_lost += message->ack->lost;
    } else if (message->give_back != NULL) {
        fake->n_give_backs++;
        fake->n_given += (unsigned)message->give_back->n_segment_ids;
    } else if (message->release != NULL) {
        take_release(fake, message->release);
    } else if (message->unregister_instance != NULL) {
        fake->n_unregisters++;
    } else if (message->evict_reply != NULL) {
        if (message->evict_reply->busy) {
            fake->n_busy++;
        } else {
            fake->n_evicted++;
        }
    } else if (message->context_ready != NULL) {
        fake->n_contexts++;
    } else if (message->id != 0) {
        fake_daemon_answer(fake, message->id, CUBIEMEM_INVALID_REQUEST, "the fake knows it not");
    }
}

static void take(struct fake_daemon *fake, const uint8_t *data, size_t size)
{
    Cubiemem__ClientMessage *message = cubiemem__client_message__unpack(NULL, size, data);
    assert(message != NULL && fake->joined_size + size <= sizeof fake->joined);
    fake->n_parts++;
    bool more = message->more;
    if (more || fake->joined_size > 0) {
        memcpy(fake->joined + fake->joined_size, data, size);
        fake->joined_size += size;
        cubiemem__client_message__free_unpacked(message, NULL);
        if (more) {
            return;
        }
        message = cubiemem__client_message__unpack(NULL, fake->joined_size, fake->joined);
        fake->joined_size = 0;
    }
    answer(fake, message);
    cubiemem__client_message__free_unpacked(message, NULL);
}

static void accept_client(struct fake_daemon *fake)
{
    int socket = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fake->socket >= 0) {
        close(fake->socket);
    }
    fake->socket = socket;
}

static void *run(void *arg)
{
    struct fake_daemon *fake = arg;
    uint8_t *data = fake->packet = malloc(PACKET_MAX_SIZE);
    for (;;) {
        struct pollfd fds[] = {{fake->stop, POLLIN, 0}, {fake->listener, POLLIN, 0},
                               {fake->socket, POLLIN, 0}};
        poll(fds, 3, -1);
        if (fds[0].revents != 0) {
            break;
        }
        if (fds[1].revents != 0) {
            accept_client(fake);
            continue;
        }
        if (fds[2].revents != 0) {
            ssize_t size = recv(fake->socket, data, PACKET_MAX_SIZE, 0);
            if (size <= 0) {
                close(fake->socket);
                fake->socket = -1;
            } else {
                take(fake, data, (size_t)size);
            }
        }
    }
    free(data);
    return NULL;
}

void fake_daemon_hang_up(struct fake_daemon *fake)
{
    shutdown(fake->socket, SHUT_RDWR);
}

void fake_daemon_start(struct fake_daemon *fake, struct driver *driver, fake_handler_fn *handler,
                       void *arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memset(fake, 0, sizeof *fake);
    fake->driver = driver;
    fake->handler = handler;
    fake->arg = arg;
    fake->socket = -1;
    fake->major = PROTOCOL_MAJOR;
    fake->n_fake_parts = 1;
    snprintf(fake->uuid, sizeof fake->uuid, "GPU-00000000-0000-0000-0000-000000000000");
    snprintf(fake->directory, sizeof fake->directory, "/tmp/cubiemem-fake.XXXXXX");
    assert(mkdtemp(fake->directory) != NULL);
    snprintf(fake->path, sizeof fake->path, "%s/fake.sock", fake->directory);
    memcpy(address.sun_path, fake->path, strlen(fake->path));
    fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    fake->stop = eventfd(0, EFD_CLOEXEC);
    int failed = bind(fake->listener, (struct sockaddr *)&address, sizeof address);
    failed |= listen(fake->listener, 16);
    failed |= pthread_create(&fake->thread, NULL, run, fake);
    assert(failed == 0);
    (void)failed;
}

void fake_daemon_stop(struct fake_daemon *fake)
{
    uint64_t one = 1;
    (void)!write(fake->stop, &one, sizeof one);
    pthread_join(fake->thread, NULL);
    for (size_t i = 0; i < fake->n_segments; i++) {
        fake->driver->cuMemRelease(fake->segments[i].handle);
    }
    close(fake->listener);
    close(fake->stop);
    if (fake->socket >= 0) {
        close(fake->socket);
    }
    if (fake->page != NULL) {
        munmap(fake->page, CONTROL_PAGE_SIZE);
    }
    unlink(fake->path);
    rmdir(fake->directory);
}
