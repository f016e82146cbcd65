/* A load generator for RocketMQ brokers that takes less of the machine than any broker it measures.
 *
 *   load send --port P --topic T [--queues 4] [--body 128] [--window 64] [--connections 1] --count N [--warmup W]
 *             [--batch 1] [--access-key A --secret-key S] [--tls 1]
 *   load pull --port P --topic T [--queues 4] [--window 4] [--connections 1] --count N [--warmup W]
 *   load transact ... as send, without keys and batches
 *
 * One thread, epoll. Each connection keeps `window` requests in flight; a request belongs to a slot, whose number is
 * its opaque, and the reply to a slot sends its next request. So latency is measured at the chosen window, and the
 * rate is what the broker gives (a closed loop). `send` writes SEND_MESSAGE_V2 (310) frames as the Java client 4.9.8
 * does, built once per slot and patched (and signed anew, with keys; what is signed leaves every 8 KB, so that the broker need not wait for the last); `pull` asks for 32 messages a time (PULL_MESSAGE, 11), goes round the queues
 * from offset 0 to their ends and over again, and walks each body record by record. With --batch N a request is a SEND_BATCH_MESSAGE
 * (320) of N messages, and latency that of the batch. `transact` sends half messages; a
 * slot whose half message is answered commits it (END_TRANSACTION, 37), and has done one transaction when that is
 * answered too, so a latency is that of both requests.
 *
 * A refused message is an error and is not counted; Apache's refuse some when the machine is too busy. More than a tenth
 * refused ends the run.
 * Measuring begins when `warmup` messages are done and ends when `count` more are, or after `--seconds`. With --pid the
 * CPU time of that process over the same span is told too. Prints one line of JSON; ends with 1 when it could not work.
 * Compiled with OpenSSL (-DWITH_TLS), it encrypts with --tls 1, and trusts any certificate.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/ssl.h>
#endif

enum { BATCH_ROOM = 160, PULLED = 32, MAX_QUEUES = 10, HEAD_ROOM = 1024, STALL_MS = 20000, SUB_BITS = 5, SIGNED_AT_ONCE = 8192 };

typedef struct {
    char *frame;        /* send: the ready request, patched before each use */
    size_t size;
    char *queue_digit;  /* where in the frame the queue and the unique id stand */
    char *unique_digits;
    size_t message_size; /* of a message in a batch */
    char *signature;    /* with keys: where it stands, and what is signed, patched in the same two places */
    unsigned char *content, *content_queue, *content_unique;
    size_t content_size;
    uint64_t sent_ns;
    int is_half;        /* transact: whether its half message is stored, and where it lies */
    unsigned long long half_offset, half_queue_offset;
} Slot;

typedef struct {
    int fd;
#ifdef WITH_TLS
    SSL *tls;
#endif
    Slot *slots;
    char *out, *in;
    size_t out_start, out_end, out_capacity, in_end, in_capacity;
    int waits_to_write;
} Connection;

static const char *host = "127.0.0.1", *topic = "bench", *access_key, *secret_key;
static int pulls, transacts, port, queues = 4, body_size = 128, window = 64, connection_count = 1, pid, poller, encrypts, batch = 1;
static uint64_t count = 1000000, warmup, seconds;

static Connection *connections;
static uint64_t issued, done, errors, unique, measured_from, start_ns;
static uint64_t next_offset[MAX_QUEUES], end_offset[MAX_QUEUES];
static uint64_t histogram[64 << SUB_BITS], slowest_ns;
static char first_error[300];
static double own_cpu_start, broker_cpu_start;

static void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- what is measured ---- */

/* 32 steps to every doubling: a percentile is told to 3 %. */
static size_t bucket(uint64_t ns) {
    int high = 63 - __builtin_clzll(ns | 1);
    if (high <= SUB_BITS) return (size_t)ns;
    return ((size_t)(high - SUB_BITS) << SUB_BITS) + (size_t)(ns >> (high - SUB_BITS));
}

static double bucket_us(size_t index) {
    if (index < (2u << SUB_BITS)) return (double)index / 1e3;
    size_t high = (index >> SUB_BITS) - 1;
    return (double)((((index & ((1u << SUB_BITS) - 1)) | (1u << SUB_BITS)) << high) + ((1ull << high) >> 1)) / 1e3;
}

static double percentile_us(double part) {
    uint64_t all = 0, seen = 0;
    for (size_t i = 0; i < sizeof histogram / sizeof *histogram; i++) all += histogram[i];
    for (size_t i = 0; i < sizeof histogram / sizeof *histogram; i++)
        if ((seen += histogram[i]) && (double)seen >= part * (double)all) return bucket_us(i);
    return 0;
}

static double own_cpu_s(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* User and system time of --pid: fields 14 and 15 of its stat, counted behind the name, which may hold blanks. */
static double broker_cpu_s(void) {
    char path[64], text[2048];
    unsigned long user = 0, system = 0;
    if (!pid) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[got] = 0;
    char *name_end = strrchr(text, ')');
    if (!name_end || sscanf(name_end + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("cannot read the CPU time of process %d", pid);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void start_measuring(void) {
    memset(histogram, 0, sizeof histogram);
    slowest_ns = 0;
    measured_from = done;
    errors = 0;
    own_cpu_start = own_cpu_s();
    broker_cpu_start = broker_cpu_s();
    start_ns = now_ns();
}

static void report(void) {
    double elapsed = (double)(now_ns() - start_ns) / 1e9, broker_cpu = broker_cpu_s() - broker_cpu_start;
    uint64_t messages = done - measured_from - (pulls ? 0 : errors);
    for (char *c = first_error; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = ' ';
    printf("{\"mode\":\"%s\",\"messages\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,"
           "\"errors\":%llu,\"own_cpu_s\":%.3f,\"broker_cpu_s\":%.3f,\"error\":\"%s\"}\n",
           pulls ? "pull" : transacts ? "transact" : "send", (unsigned long long)messages, elapsed, (double)messages / elapsed, percentile_us(0.5),
           percentile_us(0.99), (double)slowest_ns / 1e3, (unsigned long long)errors, own_cpu_s() - own_cpu_start, broker_cpu,
           first_error);
}

/* ---- requests ---- */

static void put_u32(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint32_t get_u32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static size_t close_frame(char *frame, size_t header, size_t body) {
    put_u32(frame, (uint32_t)(4 + header + body));
    put_u32(frame + 4, (uint32_t)header);
    return 8 + header + body;
}

/* A signature is base64(HMAC-SHA1(secret key, the values of the fields in the order of their names, then the body)). */
typedef struct {
    uint32_t h[5];
} Sha1;

static Sha1 inner_start, outer_start;

static uint32_t rotated(uint32_t value, int by) { return value << by | value >> (32 - by); }

static void sha1_block(Sha1 *s, const unsigned char *block) {
    uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
    for (int i = 0; i < 16; i++) w[i] = get_u32((const char *)block + 4 * i);
    for (int i = 16; i < 80; i++) w[i] = rotated(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
        uint32_t k = i < 20 ? 0x5A827999 : i < 40 ? 0x6ED9EBA1 : i < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
        uint32_t next = rotated(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rotated(b, 30), b = a, a = next;
    }
    s->h[0] += a, s->h[1] += b, s->h[2] += c, s->h[3] += d, s->h[4] += e;
}

/* The digest of 64 bytes of key, which `s` has seen, and `data`. */
static void sha1_end(Sha1 s, const unsigned char *data, size_t size, unsigned char digest[20]) {
    unsigned char last[128] = {0};
    size_t whole = size / 64 * 64, rest = size - whole, end = rest < 56 ? 64 : 128;
    for (size_t at = 0; at < whole; at += 64) sha1_block(&s, data + at);
    memcpy(last, data + whole, rest);
    last[rest] = 0x80;
    put_u32((char *)last + end - 4, (uint32_t)(8 * (64 + size)));
    for (size_t at = 0; at < end; at += 64) sha1_block(&s, last + at);
    for (int i = 0; i < 5; i++) put_u32((char *)digest + 4 * i, s.h[i]);
}

static void learn_key(void) {
    Sha1 start = {{0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}};
    inner_start = outer_start = start;
    if (strlen(secret_key) > 64) fail("--secret-key has more than 64 characters");
    for (int outer = 0; outer < 2; outer++) {
        unsigned char pad[64] = {0};
        memcpy(pad, secret_key, strlen(secret_key));
        for (int i = 0; i < 64; i++) pad[i] ^= outer ? 0x5c : 0x36;
        sha1_block(outer ? &outer_start : &inner_start, pad);
    }
}

static void sign(Slot *slot) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char digest[21] = {0};
    sha1_end(inner_start, slot->content, slot->content_size, digest);
    sha1_end(outer_start, digest, 20, digest);
    for (int i = 0; i < 7; i++) {
        uint32_t three = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 | digest[3 * i + 2];
        for (int j = 0; j < 4; j++) slot->signature[4 * i + j] = letters[three >> (18 - 6 * j) & 63];
    }
    slot->signature[27] = '=';
}

static void build_content(Slot *slot, const char *born, const char *unique_id) {
    size_t capacity = HEAD_ROOM + strlen(topic) + (size_t)body_size;
    char *content = malloc(capacity);
    int size = snprintf(content, capacity, "%sbench-producer%sTBW1024", access_key, topic);
    slot->content = (unsigned char *)content;
    slot->content_queue = slot->content + size;
    size += snprintf(content + size, capacity - (size_t)size, "00%s0UNIQ_KEY\001", born);
    slot->content_unique = slot->content + size + 20;
    size += snprintf(content + size, capacity - (size_t)size,
        "%s\002WAIT\001true\002TAGS\001TagA0falsefalsebroker-a", unique_id);
    memset(content + size, 'x', (size_t)body_size);
    slot->content_size = (size_t)size + (size_t)body_size;
}

#define IS_HALF "TRAN_MSG\\u0001true\\u0002PGROUP\\u0001bench-producer\\u0002"

static size_t request_room(void) {
    return HEAD_ROOM + strlen(topic) + (size_t)batch * (BATCH_ROOM + (size_t)body_size);
}

/* The messages of a batch: size, magic, CRC, flag, body size; body; size of the properties; properties. */
static size_t build_batch(Slot *slot, char *at, const char *unique_id) {
    char *begin = at, properties[BATCH_ROOM];
    int size = snprintf(properties, sizeof properties, "UNIQ_KEY\001%s\002WAIT\001true\002TAGS\001TagA\002", unique_id);
    slot->message_size = 22 + (size_t)body_size + (size_t)size;
    for (int i = 0; i < batch; i++) {
        put_u32(at, (uint32_t)slot->message_size);
        memset(at + 4, 0, 12);
        put_u32(at + 16, (uint32_t)body_size);
        memset(at + 20, 'x', (size_t)body_size);
        at += 20 + body_size;
        *at++ = (char)(size >> 8);
        *at++ = (char)size;
        memcpy(at, properties, (size_t)size);
        at += size;
    }
    slot->unique_digits = strchr(begin + 20 + body_size + 2, '#') - 11;
    return (size_t)(at - begin);
}

static void build_send(Slot *slot, int opaque) {
    size_t capacity = request_room();
    char *frame = slot->frame = malloc(capacity);
    char born[24], unique_id[40], keys[200] = "", properties[200];
    snprintf(born, sizeof born, "%lld", (long long)time(NULL) * 1000);
    snprintf(unique_id, sizeof unique_id, "7F0000010000%04X000000000000000#", (unsigned)getpid() & 0xffff);
    snprintf(properties, sizeof properties, "%sUNIQ_KEY\\u0001%s\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA",
        transacts ? IS_HALF : "", unique_id);
    if (access_key) snprintf(keys, sizeof keys, "\"AccessKey\":\"%s\",\"Signature\":\"%028d\",", access_key, 0);
    int size = snprintf(frame + 8, capacity - 8,
        "{\"code\":%d,\"extFields\":{%s\"a\":\"bench-producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"0\",\"f\":\"%d\","
        "\"g\":\"%s\",\"h\":\"0\",\"i\":\"%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"%s\",\"n\":\"broker-a\"},\"flag\":0,\"language\":\"JAVA\","
        "\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
        batch > 1 ? 320 : 310, keys, topic, transacts ? 4 : 0, born, batch > 1 ? "WAIT\\u0001true" : properties,
        batch > 1 ? "true" : "false", opaque);
    slot->queue_digit = strstr(frame + 8, "\"e\":\"") + 5;
    if (batch > 1) {
        slot->size = close_frame(frame, (size_t)size, build_batch(slot, frame + 8 + size, unique_id));
        return;
    }
    memset(frame + 8 + size, 'x', (size_t)body_size);
    slot->size = close_frame(frame, (size_t)size, (size_t)body_size);
    slot->unique_digits = strchr(frame + 8, '#') - 11;
    if (access_key) {
        slot->signature = strstr(frame + 8, "Signature") + 12;
        build_content(slot, born, unique_id);
    }
}

/* Unique ids are what the Java client makes: fixed digits, then a counter. */
static void patch_send(Slot *slot) {
    static int queue;
    for (int i = 0; i < batch; i++) {
        char *digits = slot->unique_digits + (size_t)i * slot->message_size;
        uint64_t number = ++unique;
        for (char *digit = digits + 11; digit >= digits; digit--, number >>= 4)
            *digit = "0123456789ABCDEF"[number & 15];
    }
    *slot->queue_digit = (char)('0' + queue);
    if (access_key) {
        memcpy(slot->content_unique, slot->unique_digits, 12);
        *slot->content_queue = (unsigned char)*slot->queue_digit;
        sign(slot);
    }
    queue = queue + 1 == queues ? 0 : queue + 1;
}

static size_t build_pull(char *frame, int opaque, int queue, uint64_t offset) {
    int size = snprintf(frame + 8, HEAD_ROOM,
        "{\"code\":11,\"extFields\":{\"queueId\":\"%d\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\",\"suspendTimeoutMillis\":\"0\","
        "\"commitOffset\":\"0\",\"topic\":\"%s\",\"queueOffset\":\"%llu\",\"expressionType\":\"TAG\",\"subscription\":\"*\","
        "\"subVersion\":\"0\",\"consumerGroup\":\"bench-consumer\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
        queue, PULLED, topic, (unsigned long long)offset, opaque);
    return close_frame(frame, (size_t)size, 0);
}

static size_t next_pull(char *frame, int opaque) {
    static int turn;
    int queue = turn;
    turn = turn + 1 == queues ? 0 : turn + 1;
    uint64_t offset = next_offset[queue];
    next_offset[queue] = offset + 2 * PULLED > end_offset[queue] ? 0 : offset + PULLED;
    return build_pull(frame, opaque, queue, offset);
}

static size_t build_commit(char *frame, int opaque, const Slot *slot) {
    int size = snprintf(frame + 8, HEAD_ROOM,
        "{\"code\":37,\"extFields\":{\"producerGroup\":\"bench-producer\",\"commitLogOffset\":\"%llu\",\"tranStateTableOffset\":\"%llu\","
        "\"commitOrRollback\":\"8\",\"fromTransactionCheck\":\"false\",\"msgId\":\"%.32s\",\"transactionId\":\"%.32s\"},\"flag\":0,"
        "\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
        slot->half_offset, slot->half_queue_offset, slot->unique_digits - 20, slot->unique_digits - 20, opaque);
    return close_frame(frame, (size_t)size, 0);
}

/* Queue the next request of a slot behind what its connection still has to write. */
static void issue(Connection *c, int index) {
    Slot *slot = &c->slots[index];
    size_t room = pulls || slot->is_half ? HEAD_ROOM : slot->size;
    if (!pulls && !slot->is_half && !seconds && issued >= warmup + count) return;
    if (c->out_end + room > c->out_capacity) {
        memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
        c->out_end -= c->out_start;
        c->out_start = 0;
    }
    int opaque = (int)(c - connections) * window + index;
    if (pulls) {
        c->out_end += next_pull(c->out + c->out_end, opaque);
    } else if (slot->is_half) {
        c->out_end += build_commit(c->out + c->out_end, opaque, slot);
        return;  /* the transaction goes on */
    } else {
        patch_send(slot);
        memcpy(c->out + c->out_end, slot->frame, slot->size);
        c->out_end += slot->size;
        issued += (uint64_t)batch;
    }
    slot->sent_ns = now_ns();
}

/* ---- replies ---- */

static long number_after(const char *header, size_t size, const char *name, size_t name_size) {
    const char *at = memmem(header, size, name, name_size);
    if (!at) return -1;
    at += name_size;
    if (*at == '"') at++;
    return strtol(at, NULL, 10);
}

#define NUMBER_AFTER(header, size, name) number_after(header, size, "\"" name "\":", sizeof name + 2)

static uint64_t count_records(const char *body, size_t size) {
    uint64_t records = 0;
    for (size_t at = 0; at < size; records++) {
        uint32_t record = size - at >= 8 ? get_u32(body + at) : 0;
        if (record < 91 || record > size - at) fail("a pulled body ends in half a record");
        at += record;
    }
    return records;
}

static void note_error(const char *header, size_t size) {
    errors += (uint64_t)batch;
    if (!*first_error) snprintf(first_error, sizeof first_error, "%.*s", (int)size, header);
}

/* Whether a reply says that a half message is stored, and where: the msgId ends in 16 hex digits of its offset. */
static int learn_half(Slot *slot, const char *header, size_t size) {
    static const char name[] = "\"msgId\":\"";
    const char *id = memmem(header, size, name, sizeof name - 1);
    if (slot->is_half || !id || id + sizeof name + 31 > header + size) return slot->is_half = 0;
    char digits[17] = {0};
    memcpy(digits, id + sizeof name - 1 + 16, 16);
    slot->half_offset = strtoull(digits, NULL, 16);
    slot->half_queue_offset = (unsigned long long)NUMBER_AFTER(header, size, "queueOffset");
    return slot->is_half = 1;
}

static void take_reply(Connection *c, const char *frame, uint64_t now) {
    size_t header_size = get_u32(frame + 4) & 0xffffff, total = get_u32(frame) + 4;
    const char *header = frame + 8;
    long opaque = NUMBER_AFTER(header, header_size, "opaque");
    long index = opaque - (c - connections) * window;
    if (index < 0 || index >= window) fail("a reply with the unknown opaque %ld", opaque);
    int is_refused = NUMBER_AFTER(header, header_size, "code") != 0;
    if (transacts && !is_refused && learn_half(&c->slots[index], header, header_size)) {
        issue(c, (int)index);
        return;
    }
    c->slots[index].is_half = 0;
    if (is_refused) {
        note_error(header, header_size);
        done += pulls ? 0 : (uint64_t)batch;
        if (errors > 1000 && errors > done / 10) fail("too many errors; the first: %s", first_error);
    } else {
        done += pulls ? count_records(header + header_size, total - 8 - header_size) : (uint64_t)batch;
    }
    uint64_t taken = now - c->slots[index].sent_ns;
    histogram[bucket(taken)]++;
    if (taken > slowest_ns) slowest_ns = taken;
    issue(c, (int)index);
}

static void flush(Connection *c);

/* ---- bytes from and to a connection: as read() and write(), by TLS if it encrypts ---- */

#ifdef WITH_TLS
static void encrypt(Connection *c) {
    static SSL_CTX *context;
    if (!context && !(context = SSL_CTX_new(TLS_client_method()))) fail("no TLS");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    c->tls = SSL_new(context);
    SSL_set_fd(c->tls, c->fd);
    if (SSL_connect(c->tls) != 1) fail("the TLS handshake failed");
}

static ssize_t result_of(Connection *c, int result) {
    if (result > 0) return result;
    int error = SSL_get_error(c->tls, result);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) errno = EAGAIN;
    return -1;
}

static ssize_t take(Connection *c, void *into, size_t size) {
    return encrypts ? result_of(c, SSL_read(c->tls, into, (int)size)) : read(c->fd, into, size);
}

static ssize_t put(Connection *c, const void *from, size_t size) {
    return encrypts ? result_of(c, SSL_write(c->tls, from, (int)size)) : write(c->fd, from, size);
}

static int has_more(Connection *c) { return encrypts && SSL_pending(c->tls); }
#else
static void encrypt(Connection *c) { (void)c; fail("compiled without OpenSSL: --tls needs its headers"); }
static ssize_t take(Connection *c, void *into, size_t size) { return read(c->fd, into, size); }
static ssize_t put(Connection *c, const void *from, size_t size) { return write(c->fd, from, size); }
static int has_more(Connection *c) { (void)c; return 0; }
#endif

/* Signing takes time, in which the broker may begin with what is signed already. */
static void receive(Connection *c) {
    if (c->in_capacity - c->in_end < 65536) {
        c->in_capacity *= 2;
        c->in = realloc(c->in, c->in_capacity);
    }
    ssize_t got = take(c, c->in + c->in_end, c->in_capacity - c->in_end);
    if (got == 0) fail("the broker closed the connection");
    if (got < 0) {
        if (errno == EAGAIN) return;
        fail("reading: %s", strerror(errno));
    }
    c->in_end += (size_t)got;
    size_t at = 0;
    uint64_t now = now_ns();
    while (c->in_end - at >= 8 && c->in_end - at >= get_u32(c->in + at) + 4u) {
        take_reply(c, c->in + at, now);
        if (access_key && c->out_end - c->out_start > SIGNED_AT_ONCE) flush(c);
        at += get_u32(c->in + at) + 4u;
    }
    memmove(c->in, c->in + at, c->in_end - at);
    c->in_end -= at;
}

static void flush(Connection *c) {
    while (c->out_start < c->out_end) {
        ssize_t done_now = put(c, c->out + c->out_start, c->out_end - c->out_start);
        if (done_now < 0) {
            if (errno == EAGAIN) break;
            fail("writing: %s", strerror(errno));
        }
        c->out_start += (size_t)done_now;
    }
    int waits = c->out_start < c->out_end;
    if (!waits) c->out_start = c->out_end = 0;
    if (waits == c->waits_to_write) return;
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    c->waits_to_write = waits;
}

/* ---- from start to end ---- */

/* Pull once from each queue, waiting, to learn how far it reaches. */
static void learn_ends(Connection *c) {
    char frame[HEAD_ROOM + 8], reply[1 << 20];
    for (int queue = 0; queue < queues; queue++) {
        size_t size = build_pull(frame, 0, queue, 0), got = 0;
        if (put(c, frame, size) != (ssize_t)size) fail("writing: %s", strerror(errno));
        while (got < 8 || got < get_u32(reply) + 4u) {
            ssize_t more = take(c, reply + got, sizeof reply - got);
            if (more <= 0) fail("the broker does not answer a pull");
            got += (size_t)more;
        }
        size_t header_size = get_u32(reply + 4) & 0xffffff;
        long end = NUMBER_AFTER(reply + 8, header_size, "maxOffset");
        if (end < PULLED) fail("queue %d of %s holds too little: %.*s", queue, topic, (int)header_size, reply + 8);
        end_offset[queue] = (uint64_t)end;
    }
}

static void open_connection(Connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int yes = 1;
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("%s is not an IPv4 address", host);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("%s:%d: %s", host, port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (encrypts) encrypt(c);
    if (pulls && c == connections) learn_ends(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->slots = calloc((size_t)window, sizeof *c->slots);
    c->in_capacity = 1 << 20;
    c->in = malloc(c->in_capacity);
    c->out_capacity = (size_t)window * (HEAD_ROOM + request_room());
    c->out = malloc(c->out_capacity);
    for (int i = 0; !pulls && i < window; i++) build_send(&c->slots[i], (int)(c - connections) * window + i);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

static void parse(int argc, char **argv) {
    if (argc < 2) fail("usage: load send|pull|transact --port P --topic T --count N ... (see the head of load.c)");
    pulls = !strcmp(argv[1], "pull");
    transacts = !strcmp(argv[1], "transact");
    if (!pulls && !transacts && strcmp(argv[1], "send")) fail("the mode is send, pull or transact, not %s", argv[1]);
    struct { const char *name; int *number; uint64_t *large; const char **text; } options[] = {
        {"--access-key", 0, 0, &access_key}, {"--secret-key", 0, 0, &secret_key},
        {"--host", 0, 0, &host}, {"--topic", 0, 0, &topic}, {"--port", &port, 0, 0}, {"--queues", &queues, 0, 0},
        {"--body", &body_size, 0, 0}, {"--window", &window, 0, 0}, {"--connections", &connection_count, 0, 0},
        {"--pid", &pid, 0, 0}, {"--tls", &encrypts, 0, 0}, {"--batch", &batch, 0, 0}, {"--count", 0, &count, 0}, {"--warmup", 0, &warmup, 0}, {"--seconds", 0, &seconds, 0}};
    for (int i = 2; i < argc; i += 2) {
        size_t o = 0, all = sizeof options / sizeof *options;
        while (o < all && strcmp(argv[i], options[o].name)) o++;
        if (o == all || i + 1 == argc) fail("no option %s, or it lacks a value", argv[i]);
        if (options[o].number) *options[o].number = atoi(argv[i + 1]);
        if (options[o].large) *options[o].large = strtoull(argv[i + 1], NULL, 10);
        if (options[o].text) *options[o].text = argv[i + 1];
    }
    if (!access_key != !secret_key) fail("--access-key and --secret-key go together");
    if (transacts && secret_key) fail("transact cannot sign");
    if (batch > 1 && (pulls || transacts || secret_key)) fail("--batch is for send, without keys");
    if (secret_key) learn_key();
    if (queues < 1 || queues > MAX_QUEUES) fail("--queues is 1 to %d", MAX_QUEUES);
    if (port < 1 || window < 1 || connection_count < 1 || body_size < 0) fail("--port, --window and --connections are above 0");
}

static int finished(void) {
    if (seconds) return start_ns && now_ns() - start_ns >= seconds * 1000000000u;
    return start_ns && done >= warmup + count;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    poller = epoll_create1(0);
    connections = calloc((size_t)connection_count, sizeof *connections);
    unique = now_ns();
    for (int i = 0; i < connection_count; i++) open_connection(&connections[i]);
    if (!warmup) start_measuring();
    for (int i = 0; i < connection_count; i++) {
        for (int slot = 0; slot < window; slot++) issue(&connections[i], slot);
        flush(&connections[i]);
    }
    while (!finished()) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, STALL_MS);
        if (ready == 0) fail("no answer for %d s; %llu messages done", STALL_MS / 1000, (unsigned long long)done);
        for (int i = 0; i < ready; i++) {
            if (events[i].events & ~(uint32_t)EPOLLOUT) do receive(events[i].data.ptr); while (has_more(events[i].data.ptr));
            flush(events[i].data.ptr);
        }
        if (!start_ns && done >= warmup) start_measuring();
    }
    report();
    return 0;
}
