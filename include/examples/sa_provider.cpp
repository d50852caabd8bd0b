// SPDX-License-Identifier: MIT OR Apache-2.0
//
// sa-example-cpp: a small ibacm provider in C++ that asks the subnet administrator (SA) for paths to GIDs and
// LIDs. It refuses requests for names and IP addresses. To build, check and install it:
//
//     c++ -std=c++17 -O2 -Wall -Wextra -fPIC -fvisibility=hidden -shared -Wl,-z,now -o libsa_example_cpp.so
//         sa_provider.cpp -libverbs -lpthread          (one line)
//     loader-test check --strict libsa_example_cpp.so
//     install -m 644 libsa_example_cpp.so /usr/lib/x86_64-linux-gnu/ibacm/
//     echo 'provider sa-example-cpp default' >> /etc/rdma/ibacm_opts.cfg
//
// Rules for C++, in addition to those in the C example: no exception may leave a callback; the core may unload
// the library right after provider_query, so nothing starts before open_device; the macro acm_log of acm_prov.h
// works in C only.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <endian.h>

#include <infiniband/acm_prov.h>

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Clients may send these two although acm.h does not define them.
constexpr uint16_t kGidAddress = 4;
constexpr uint16_t kLidAddress = 5;
constexpr size_t kMaxPaths = 65536;
constexpr Milliseconds kFirstPause{20};
constexpr Milliseconds kNoSuchPathFor{1000};
constexpr uint32_t kQosSupported = 1 << 1; // in the CapabilityMask2 of the SA's ClassPortInfo
constexpr std::chrono::minutes kQosFor{10}; // how long the SA's statement is cached
constexpr std::chrono::minutes kQosAgain{1}; // when to query again if the SA does not state it

// A client's request until its answer. All of it is copied: the message is the core's, and invalid after the
// call.
struct Request {
    uint64_t id;
    acm_hdr header;
    bool is_query;                       // whether it came by query() instead of resolve()
    std::vector<acm_ep_addr_data> extra; // resolve: the source, if the answer must contain it; query: the entry itself
    Clock::time_point deadline;
};

// An answer that will be sent after the lock is released.
struct Answer {
    Request request;
    uint8_t status;
    ibv_path_record path;

    void send() const;
};

using Answers = std::vector<Answer>;

struct Endpoint;
struct Port;

// The cached result of a query; the key is the record that is sent to the SA.
struct Path {
    ibv_path_record question, record;
    enum { Unknown, Known, Missing } state = Unknown;
    Clock::time_point missing_until, ask_at;
    Milliseconds pause = kFirstPause;
    uint32_t tid = 0; // of the MAD in flight
    bool owed = true; // must be queried even if no request waits
    std::list<Request> waiters;
};

// A MAD in the core. Its context is its transaction id: if it returns late, or never, nothing is found and
// nothing leaks.
struct Query {
    Port *port;
    Endpoint *endpoint;
    uint32_t *owner; // holds its transaction id; nullptr: the result is not needed, but the core still has the MAD
    std::shared_ptr<Path> path; // empty: it asks whether service ids and QoS classes choose paths
    Clock::time_point lost_at;  // if the core has not returned it by then, it is lost
};

// A request that names a service and waits until it is known whether that matters.
struct Undecided {
    Endpoint *endpoint;
    ibv_path_record question;
    Request request;
};

std::mutex lock; // guards everything below
std::unordered_map<uint32_t, Query> queries;
uint32_t last_tid;

struct Device {
    Milliseconds patience{6000}; // of a client
    long depth = 1;              // number of MADs that the core sends at a time

    Device();
};

// If the first port of a device does not open, the core does not close the device but opens it again, which
// replaces it here.
std::unordered_map<const acm_device *, std::unique_ptr<Device>> devices;

struct Port {
    Device &device;
    std::list<Endpoint *> endpoints;
    std::condition_variable wake;
    bool stop = false;
    enum { Untold, Reserved, Choosing } qos = Untold; // whether the SA ignores service ids and QoS classes
    Clock::time_point qos_until;
    uint32_t qos_tid = 0; // of the MAD in flight
    std::list<Undecided> undecided;
    std::thread deadlines; // the last member, because it uses the others

    explicit Port(Device &device);
    ~Port();
    bool has_room() const;
    Clock::time_point drop_lost(Clock::time_point now);
    void keep_deadlines();
    void ask_qos(Endpoint &endpoint, Answers &answers);
    void qos_answered(const acm_sa_mad &mad, Answers &answers);
    void decide_qos(bool is_told, bool is_choosing, Answers &answers);
    Clock::time_point tend_undecided(Clock::time_point now, Answers &answers);
};

struct Endpoint {
    Port &port;
    const acm_endpoint *acm; // the core's; invalid after close_endpoint
    ibv_gid gid;
    std::unordered_map<std::string, std::shared_ptr<Path>> paths;   // by query
    std::unordered_map<std::string, std::shared_ptr<Path>> records; // by the query for the same record
    std::list<std::shared_ptr<Path>> busy; // those with a query in flight or due
    uint64_t counters[ACM_MAX_COUNTER] = {};

    Endpoint(Port &port, const acm_endpoint *acm, const ibv_gid &gid) : port(port), acm(acm), gid(gid) {}
    bool is_own(const ibv_gid &wanted) const;
    uint8_t make_question(const ibv_path_record &wanted, ibv_path_record &question) const;
    std::shared_ptr<Path> find_repeated(const ibv_path_record &question) const;
    ibv_gid local(ibv_gid wanted) const;
    void look_up(ibv_path_record question, Request request, bool nodelay, Answers &answers);
    void finish(Request request, uint8_t status, const ibv_path_record *path, Answers &answers);
    void finish_all(Path &path, uint8_t status, const ibv_path_record *record, Answers &answers);
    void send_mad(uint32_t &owner, std::shared_ptr<Path> path, uint16_t attribute, __be64 mask, const void *data,
                  size_t size);
    void ask(const std::shared_ptr<Path> &path, Clock::time_point now);
    void answered(Path &path, const acm_sa_mad &mad, Answers &answers);
    Clock::time_point tend(Clock::time_point now, Answers &answers);
    void close(Answers &answers);
};

bool operator==(const ibv_gid &a, const ibv_gid &b)
{
    return !std::memcmp(&a, &b, sizeof a);
}

bool is_zero(const ibv_gid &gid)
{
    return gid == ibv_gid{};
}

bool is_port(const ibv_gid &gid)
{
    return !is_zero(gid) && gid.raw[0] != 0xff;
}

bool is_port_lid(__be16 lid)
{
    return lid && be16toh(lid) < 0xc000;
}

bool same_partition(__be16 a, __be16 b)
{
    return !((a ^ b) & htobe16(0x7fff)); // without the membership bit
}

unsigned qos_class(const ibv_path_record &path)
{
    return be16toh(path.qosclass_sl) >> 4;
}

unsigned service_level(const ibv_path_record &path)
{
    return be16toh(path.qosclass_sl) & 0xf;
}

__be32 flow_label(const ibv_path_record &path)
{
    return path.flowlabel_hoplimit & htobe32(0x0fffff00);
}

bool names_service(const ibv_path_record &question)
{
    return question.service_id || qos_class(question);
}

// An MTU, rate or lifetime with selector 0 is no constraint.
uint8_t demand(uint8_t wanted)
{
    return wanted >> UMAD_SA_SELECTOR_SHIFT ? wanted : 0;
}

bool meets(uint8_t demand, int wanted, int has)
{
    switch (demand >> UMAD_SA_SELECTOR_SHIFT) {
    case UMAD_SA_SELECTOR_LESS_THAN:
        return has < wanted;
    case UMAD_SA_SELECTOR_EXACTLY:
        return has == wanted;
    default:
        return true;
    }
}

bool meets_code(uint8_t demand, uint8_t has)
{
    return meets(demand, umad_sa_get_rate_mtu_or_life(demand), umad_sa_get_rate_mtu_or_life(has));
}

// The codes of rates are not in order of the rates.
bool meets_rate(uint8_t demand, uint8_t has)
{
    const auto speed = [](uint8_t code) {
        return ibv_rate_to_mbps(static_cast<ibv_rate>(umad_sa_get_rate_mtu_or_life(code)));
    };

    return meets(demand, speed(demand), speed(has));
}

// OpenSM returns zeros for these, whatever the query.
bool is_asked_or_zero(uint64_t has, uint64_t asked)
{
    return !has || has == asked;
}

// The response must match the query in each component, and lead to a port.
bool fits(const ibv_path_record &record, const ibv_path_record &question)
{
    return is_port_lid(record.dlid) && is_port(record.dgid) && (!question.dlid || record.dlid == question.dlid) &&
           (is_zero(question.dgid) || record.dgid == question.dgid) && record.sgid == question.sgid &&
           (!question.slid || record.slid == question.slid) && same_partition(record.pkey, question.pkey) &&
           (!service_level(question) || service_level(record) == service_level(question)) &&
           meets_code(question.mtu, record.mtu) && meets_rate(question.rate, record.rate) &&
           meets_code(question.packetlifetime, record.packetlifetime) &&
           is_asked_or_zero(record.service_id, question.service_id) &&
           is_asked_or_zero(qos_class(record), qos_class(question)) &&
           is_asked_or_zero(record.tclass, question.tclass) &&
           is_asked_or_zero(flow_label(record), flow_label(question));
}

std::string key(const ibv_path_record &question)
{
    return {reinterpret_cast<const char *>(&question), sizeof question};
}

void send(Answers &answers)
{
    for (const Answer &answer : answers)
        answer.send();
    answers.clear();
}

void add(acm_msg &msg, const acm_ep_addr_data &entry)
{
    std::memcpy(reinterpret_cast<uint8_t *>(&msg) + msg.hdr.length, &entry, sizeof entry);
    msg.hdr.length += sizeof entry;
}

void Answer::send() const
{
    acm_msg msg{};

    msg.hdr = request.header;
    msg.hdr.opcode |= ACM_OP_ACK;
    msg.hdr.status = status;
    std::memset(msg.hdr.data, 0, sizeof msg.hdr.data);
    msg.hdr.length = ACM_MSG_HDR_LENGTH;
    acm_ep_addr_data found{};
    found.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    found.type = ACM_EP_INFO_PATH;
    found.info.path = path;
    // The result says whether the client is still connected, which does not matter here.
    if (request.is_query) {
        for (acm_ep_addr_data entry : request.extra) {
            if (status == ACM_STATUS_SUCCESS)
                entry.info.path = path;
            add(msg, entry);
        }
        acm_query_response(request.id, &msg);
    } else {
        if (status == ACM_STATUS_SUCCESS) {
            add(msg, found);
            for (const acm_ep_addr_data &entry : request.extra)
                add(msg, entry);
        }
        acm_resolve_response(request.id, &msg);
    }
}

// Also counts in the core's set, where the core itself counts errors, missing data and resolves.
void count_both(Endpoint &endpoint, int counter)
{
    endpoint.counters[counter]++;
    acm_increment_counter(counter);
}

// The result is no longer needed. The MAD still counts until the core returns it.
void forget(uint32_t &tid)
{
    const auto found = queries.find(tid);

    if (found != queries.end())
        found->second.owner = nullptr;
    tid = 0;
}

// Translates a response; sets `again` for temporary failures.
uint8_t sa_status(const acm_sa_mad &mad, uint16_t attribute, bool &again)
{
    const umad_hdr &header = mad.sa_mad.mad_hdr;
    const uint8_t class_status = be16toh(header.status) >> 8;

    again = mad.umad.status != 0;
    if (again) // it timed out, or could not be sent
        return ACM_STATUS_ETIMEDOUT;
    if (!header.status) // in either byte
        return header.method == UMAD_METHOD_GET_RESP && header.attr_id == htobe16(attribute)
                   ? ACM_STATUS_SUCCESS
                   : ACM_STATUS_ENODATA;
    again = header.status == htobe16(UMAD_STATUS_BUSY) || class_status == UMAD_SA_STATUS_NO_RESOURCES;
    if (again)
        return ACM_STATUS_ETIMEDOUT;
    return class_status == UMAD_SA_STATUS_REQ_INVALID ? ACM_STATUS_EINVAL : ACM_STATUS_ENODATA;
}

// The core's SA handler. It owns the MAD.
void from_sa(acm_sa_mad *mad) noexcept
{
    Answers answers;
    {
        std::lock_guard<std::mutex> guard(lock);
        auto found = queries.find(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(mad->context)));
        if (found != queries.end()) {
            const Query query = found->second;
            queries.erase(found);
            if (query.owner)
                *query.owner = 0;
            if (query.owner && query.path)
                query.endpoint->answered(*query.path, *mad, answers);
            else if (query.owner)
                query.port->qos_answered(*mad, answers);
            query.port->wake.notify_one(); // there is room for the next one
        }
    }
    acm_free_sa_mad(mad);
    send(answers);
}

// ---- Endpoint. All functions are called with the lock held. ----

bool Endpoint::is_own(const ibv_gid &wanted) const
{
    ibv_gid own;

    for (int i = 0; !acm_get_gid(acm->port, i, &own); i++)
        if (own == wanted)
            return true;
    return false;
}

// A link-local GID in a file or request is on the port's own subnet.
ibv_gid Endpoint::local(ibv_gid wanted) const
{
    if (wanted.raw[0] == 0xfe && (wanted.raw[1] & 0xc0) == 0x80)
        wanted.global.subnet_prefix = gid.global.subnet_prefix;
    return wanted;
}

// Nothing in a query comes from an earlier response, and nothing that the client names is dropped.
uint8_t Endpoint::make_question(const ibv_path_record &wanted, ibv_path_record &question) const
{
    question = ibv_path_record{};
    if (wanted.dlid ? !is_port_lid(wanted.dlid) : is_zero(wanted.dgid))
        return ACM_STATUS_EDESTADDR;
    if (!is_zero(wanted.dgid) && !is_port(wanted.dgid))
        return ACM_STATUS_EDESTADDR;
    question.dlid = wanted.dlid;
    question.dgid = local(wanted.dgid);
    question.sgid = is_zero(wanted.sgid) ? gid : local(wanted.sgid); // some SAs require one
    if (!is_own(question.sgid))
        return ACM_STATUS_ESRCADDR;
    question.slid = wanted.slid; // else the SA chooses: it knows of a new LID before the port does
    question.pkey = htobe16(acm->pkey);
    if (wanted.pkey && !same_partition(wanted.pkey, question.pkey))
        question.pkey = wanted.pkey | htobe16(0x8000);
    question.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1;
    question.service_id = wanted.service_id;
    question.tclass = wanted.tclass;
    question.qosclass_sl = wanted.qosclass_sl;
    question.flowlabel_hoplimit = flow_label(wanted); // the client cannot choose the hop limit
    question.mtu = demand(wanted.mtu);
    question.rate = demand(wanted.rate);
    question.packetlifetime = demand(wanted.packetlifetime);
    return ACM_STATUS_SUCCESS;
}

// Finds the path that gave exactly the requested record: the SA may refuse it the second time, because it
// chooses the SL for each query.
std::shared_ptr<Path> Endpoint::find_repeated(const ibv_path_record &question) const
{
    ibv_path_record repeated;
    const auto found = records.find(key(question));

    if (found == records.end() || found->second->state != Path::Known)
        return nullptr;
    make_question(found->second->record, repeated); // it may have another record by now
    return key(repeated) == found->first ? found->second : nullptr;
}

void Endpoint::finish(Request request, uint8_t status, const ibv_path_record *path, Answers &answers)
{
    if (status == ACM_STATUS_ENODATA)
        counters[ACM_CNTR_NODATA]++;
    else if (status != ACM_STATUS_SUCCESS)
        counters[ACM_CNTR_ERROR]++;
    answers.push_back({std::move(request), status, path ? *path : ibv_path_record{}});
}

void Endpoint::finish_all(Path &path, uint8_t status, const ibv_path_record *record, Answers &answers)
{
    while (!path.waiters.empty()) {
        finish(std::move(path.waiters.front()), status, record, answers);
        path.waiters.pop_front();
    }
}

// Answers from the cache, or makes the client wait for the SA. A query() ignores the cache.
void Endpoint::look_up(ibv_path_record question, Request request, bool nodelay, Answers &answers)
{
    const auto now = Clock::now();

    if (names_service(question) && (port.qos == Port::Untold || port.qos_until <= now)) {
        if (nodelay)
            finish(std::move(request), ACM_STATUS_ENODATA, nullptr, answers);
        else
            port.undecided.push_back({this, question, std::move(request)});
        port.ask_qos(*this, answers);
        return port.wake.notify_one();
    }
    if (port.qos == Port::Reserved) {
        question.service_id = 0;
        question.qosclass_sl &= htobe16(0xf);
    } else if (!request.id && !request.is_query && qos_class(question)) {
        // The core corrupts the QoS class of the kernel, its client 0. If refused, the kernel asks the SA
        // itself.
        return finish(std::move(request), ACM_STATUS_ENODATA, nullptr, answers);
    }
    if (paths.size() >= kMaxPaths) { // clients can request anything, so a full cache starts over
        paths.clear();
        records.clear();
    }
    std::shared_ptr<Path> path = request.is_query ? nullptr : find_repeated(question);
    if (!path)
        path = paths[key(question)];
    if (!path) {
        path = paths[key(question)] = std::make_shared<Path>();
        path->question = question;
    }
    if (!request.is_query && path->state == Path::Known) {
        count_both(*this, ACM_CNTR_ROUTE_CACHE);
        return finish(std::move(request), ACM_STATUS_SUCCESS, &path->record, answers);
    }
    if (!request.is_query && path->state == Path::Missing && now < path->missing_until)
        return finish(std::move(request), ACM_STATUS_ENODATA, nullptr, answers);
    bool is_busy = false;
    for (const auto &other : busy)
        is_busy |= other == path;
    if (!is_busy) {
        path->owed = true;
        busy.push_back(path);
    }
    if (nodelay) { // the next client may find the answer cached
        finish(std::move(request), ACM_STATUS_ENODATA, nullptr, answers);
    } else {
        path->waiters.push_back(std::move(request));
    }
    if (!path->tid && path->ask_at <= now && port.has_room())
        ask(path, now);
    port.wake.notify_one();
}

// If the core accepts the MAD, `owner` is its transaction id until it returns.
void Endpoint::send_mad(uint32_t &owner, std::shared_ptr<Path> path, uint16_t attribute, __be64 mask, const void *data,
                        size_t size)
{
    do
        last_tid++;
    while (!last_tid || queries.count(last_tid));
    acm_sa_mad *mad = acm_alloc_sa_mad(acm, reinterpret_cast<void *>(uintptr_t(last_tid)), from_sa);
    if (!mad)
        return;
    umad_sa_packet &packet = mad->sa_mad;
    packet.mad_hdr.base_version = UMAD_BASE_VERSION;
    packet.mad_hdr.mgmt_class = UMAD_CLASS_SUBN_ADM;
    packet.mad_hdr.class_version = UMAD_SA_CLASS_VERSION;
    packet.mad_hdr.method = UMAD_METHOD_GET;
    packet.mad_hdr.tid = htobe64(last_tid);
    packet.mad_hdr.attr_id = htobe16(attribute);
    packet.comp_mask = mask;
    std::memcpy(packet.data, data, size);
    if (acm_send_sa_mad(mad)) {
        acm_free_sa_mad(mad); // still ours
        return;
    }
    owner = last_tid;
    queries.emplace(last_tid, Query{&port, this, &owner, std::move(path),
                                    Clock::now() + 2 * port.device.patience + Milliseconds(1000)});
}

void Endpoint::ask(const std::shared_ptr<Path> &path, Clock::time_point now)
{
    const ibv_path_record &question = path->question;

    path->owed = false;
    path->ask_at = now + path->pause;
    path->pause = std::min(path->pause * 2, Milliseconds(5000));
    send_mad(path->tid, path, UMAD_SA_ATTR_PATH_REC, acm_path_comp_mask(&path->question), &question, sizeof question);
    if (path->tid)
        count_both(*this, ACM_CNTR_ROUTE_QUERY);
}

void Endpoint::answered(Path &path, const acm_sa_mad &mad, Answers &answers)
{
    ibv_path_record record, repeated;
    bool again;

    std::memcpy(&record, mad.sa_mad.data, sizeof record);
    uint8_t status = sa_status(mad, UMAD_SA_ATTR_PATH_REC, again);
    if (again) // tend() answers requests whose deadline passed
        return;
    if (status == ACM_STATUS_SUCCESS && !fits(record, path.question))
        status = ACM_STATUS_ENODATA;
    else if (status == ACM_STATUS_SUCCESS)
        path.state = Path::Known;
    else if (mad.sa_mad.mad_hdr.status == htobe16(UMAD_SA_STATUS_NO_RECORDS << 8))
        path.state = Path::Missing;
    path.record = record;
    path.missing_until = Clock::now() + kNoSuchPathFor;
    path.pause = kFirstPause;
    path.ask_at = {};
    const auto kept = paths.find(key(path.question));
    if (path.state == Path::Known && kept != paths.end() && kept->second.get() == &path &&
        make_question(record, repeated) == ACM_STATUS_SUCCESS)
        records[key(repeated)] = kept->second;
    finish_all(path, status, &record, answers);
}

// Handles what is due; returns when something is due next.
Clock::time_point Endpoint::tend(Clock::time_point now, Answers &answers)
{
    auto next = Clock::time_point::max();

    for (auto at = busy.begin(); at != busy.end();) {
        const std::shared_ptr<Path> path = *at;
        while (!path->waiters.empty() && path->waiters.front().deadline <= now) {
            finish(std::move(path->waiters.front()), ACM_STATUS_ETIMEDOUT, nullptr, answers);
            path->waiters.pop_front();
        }
        if (!path->tid && path->waiters.empty() && !path->owed) {
            at = busy.erase(at);
            continue;
        }
        if (!path->tid && path->ask_at <= now && port.has_room())
            ask(path, now);
        if (!path->tid && port.has_room())
            next = std::min(next, path->ask_at);
        if (!path->waiters.empty())
            next = std::min(next, path->waiters.front().deadline);
        ++at;
    }
    return next;
}

void Endpoint::close(Answers &answers)
{
    for (const auto &path : busy) {
        forget(path->tid);
        finish_all(*path, ACM_STATUS_ENOTCONN, nullptr, answers);
    }
    for (auto at = port.undecided.begin(); at != port.undecided.end();) {
        if (at->endpoint != this) {
            ++at;
            continue;
        }
        finish(std::move(at->request), ACM_STATUS_ENOTCONN, nullptr, answers);
        at = port.undecided.erase(at);
    }
    port.endpoints.remove(this);
}

// ---- Device and port ----

Device::Device()
{
    const char *file = acm_get_opts_file();
    std::ifstream options(file);
    std::string line, name, value;
    std::unordered_map<std::string, long> numbers{{"timeout", 2000}, {"retries", 2}, {"sa_depth", 1}};

    if (!options)
        acm_write(0, "sa-example-cpp: %s: cannot be read\n", file);
    while (std::getline(options, line)) {
        std::istringstream words(line);
        if (!(words >> name >> value) || !numbers.count(name))
            continue; // another line: all providers read this file
        std::istringstream number(value);
        long parsed;
        if (number >> parsed && number.eof() && parsed >= (name != "retries") && parsed <= INT32_MAX)
            numbers[name] = parsed;
        else
            acm_write(0, "sa-example-cpp: %s %.32s: not a number that makes sense\n", name.c_str(), value.c_str());
    }
    patience = Milliseconds(numbers["timeout"] * (numbers["retries"] + 1));
    depth = numbers["sa_depth"];
}

Port::Port(Device &device) : device(device), deadlines(&Port::keep_deadlines, this)
{
}

Port::~Port()
{
    {
        std::lock_guard<std::mutex> guard(lock);
        stop = true;
        for (auto at = queries.begin(); at != queries.end();)
            at = at->second.port == this ? queries.erase(at) : std::next(at);
        wake.notify_one();
    }
    deadlines.join();
}

// Returns whether to pass the core one more MAD: at most one more than it sends at a time, so that the core
// never waits for us. MADs in the core cannot be withdrawn or overtaken.
bool Port::has_room() const
{
    return std::count_if(queries.begin(), queries.end(),
                         [this](const auto &query) { return query.second.port == this; }) <= device.depth;
}

// Returns when something is due next.
Clock::time_point Port::drop_lost(Clock::time_point now)
{
    auto next = Clock::time_point::max();

    for (auto at = queries.begin(); at != queries.end();) {
        const Query &query = at->second;
        const bool is_lost = query.port == this && query.lost_at <= now;
        if (is_lost && query.owner)
            *query.owner = 0;
        if (query.port == this && !is_lost)
            next = std::min(next, query.lost_at);
        at = is_lost ? queries.erase(at) : std::next(at);
    }
    return next;
}

void Port::keep_deadlines()
{
    Answers answers;
    std::unique_lock<std::mutex> guard(lock);

    while (!stop) {
        const auto now = Clock::now();
        drop_lost(now);
        auto next = tend_undecided(now, answers);
        for (Endpoint *endpoint : endpoints)
            next = std::min(next, endpoint->tend(now, answers));
        next = std::min(next, drop_lost(now)); // of the MADs in flight
        if (!answers.empty()) {
            guard.unlock();
            send(answers);
            guard.lock();
        } else if (next == Clock::time_point::max()) {
            wake.wait(guard);
        } else {
            wake.wait_until(guard, next);
        }
    }
}

// Asks whether service ids and QoS classes choose paths. These functions are also called with the lock held.
void Port::ask_qos(Endpoint &endpoint, Answers &answers)
{
    const umad_class_port_info nothing{};

    if (qos_tid || !has_room())
        return;
    endpoint.send_mad(qos_tid, nullptr, UMAD_ATTR_CLASS_PORT_INFO, 0, &nothing, sizeof nothing);
    if (!qos_tid)
        decide_qos(false, false, answers);
}

void Port::qos_answered(const acm_sa_mad &mad, Answers &answers)
{
    umad_class_port_info info;
    bool again;

    std::memcpy(&info, mad.sa_mad.data, sizeof info);
    const bool is_told = sa_status(mad, UMAD_ATTR_CLASS_PORT_INFO, again) == ACM_STATUS_SUCCESS &&
                         info.base_ver == UMAD_BASE_VERSION && info.class_ver == UMAD_SA_CLASS_VERSION;
    if (!is_told)
        acm_write(0, "sa-example-cpp: the SA does not say whether service ids choose paths: assuming that they do\n");
    decide_qos(is_told, umad_class_cap_mask2(&info) & kQosSupported, answers);
}

// Continues the waiting requests. If the SA does not state it, it may choose paths by them.
void Port::decide_qos(bool is_told, bool is_choosing, Answers &answers)
{
    qos = is_told && !is_choosing ? Reserved : Choosing;
    qos_until = Clock::now() + (is_told ? kQosFor : kQosAgain);
    std::list<Undecided> waiting;
    waiting.swap(undecided);
    for (Undecided &one : waiting)
        one.endpoint->look_up(one.question, std::move(one.request), false, answers);
}

Clock::time_point Port::tend_undecided(Clock::time_point now, Answers &answers)
{
    while (!undecided.empty() && undecided.front().request.deadline <= now) {
        Undecided &late = undecided.front();
        late.endpoint->finish(std::move(late.request), ACM_STATUS_ETIMEDOUT, nullptr, answers);
        undecided.pop_front();
    }
    if (!undecided.empty())
        ask_qos(*undecided.front().endpoint, answers);
    return undecided.empty() ? Clock::time_point::max() : undecided.front().request.deadline;
}

// ---- Requests. Trust nothing in a message: not the indices, not the lengths, not the types. ----

std::vector<acm_ep_addr_data> entries_of(const acm_msg &msg, size_t count)
{
    std::vector<acm_ep_addr_data> entries(count);

    if (count)
        std::memcpy(entries.data(), msg.data, count * sizeof entries[0]);
    return entries;
}

size_t filled(const acm_msg &msg)
{
    const size_t length = std::min<size_t>(msg.hdr.length, sizeof msg);

    return length < ACM_MSG_HDR_LENGTH ? 0 : (length - ACM_MSG_HDR_LENGTH) / ACM_MSG_EP_LENGTH;
}

// Parses a resolve message into a path record.
uint8_t read_resolve(const acm_msg &msg, Request &request, ibv_path_record &wanted, bool &nodelay)
{
    constexpr size_t kEntries = ACM_MSG_DATA_LENGTH / ACM_MSG_EP_LENGTH;
    const size_t count = filled(msg), source = msg.hdr.src_index, destination = msg.hdr.dst_index;
    const auto entries = entries_of(msg, kEntries);

    if (!count)
        return ACM_STATUS_EINVAL;
    if (entries[0].type == ACM_EP_INFO_PATH) { // then the header's data bytes are the client's own
        wanted = entries[0].info.path;
        nodelay = entries[0].flags & ACM_FLAGS_NODELAY;
        return ACM_STATUS_SUCCESS;
    }
    if (destination >= count)
        return ACM_STATUS_EINVAL;
    if (msg.hdr.src_out) { // the core put the source after the client's entries
        if (source > count || source >= kEntries)
            return ACM_STATUS_EINVAL;
        request.extra.push_back(entries[source]);
    }
    for (size_t i = 0; i < count; i++) // constraints on the path (librdmacm)
        if (entries[i].type == ACM_EP_INFO_PATH && i != source && i != destination)
            wanted = entries[i].info.path;
    wanted.dlid = 0;
    wanted.dgid = ibv_gid{};
    nodelay = entries[destination].flags & ACM_FLAGS_NODELAY;
    switch (entries[destination].type) {
    case kLidAddress:
        std::memcpy(&wanted.dlid, entries[destination].info.addr, sizeof wanted.dlid);
        return ACM_STATUS_SUCCESS;
    case kGidAddress:
        std::memcpy(&wanted.dgid, entries[destination].info.addr, sizeof wanted.dgid);
        return ACM_STATUS_SUCCESS;
    default:
        return ACM_STATUS_EDESTTYPE;
    }
}

// Runs a callback; an exception (no memory, or no thread) becomes an error code.
template <typename Body> int guarded(Body body) noexcept
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return ENOMEM;
    } catch (const std::exception &error) {
        acm_write(0, "sa-example-cpp: %s\n", error.what());
        return EAGAIN;
    }
}

int resolve(void *addr_context, acm_msg *msg, uint64_t id)
{
    return guarded([=] {
        Endpoint &endpoint = *static_cast<Endpoint *>(addr_context);
        Request request{id, msg->hdr, false, {}, Clock::now() + endpoint.port.device.patience};
        ibv_path_record wanted{}, question;
        bool nodelay = false;
        Answers answers;
        {
            std::lock_guard<std::mutex> guard(lock);
            endpoint.counters[ACM_CNTR_RESOLVE]++;
            uint8_t status = read_resolve(*msg, request, wanted, nodelay);
            if (status == ACM_STATUS_SUCCESS)
                status = endpoint.make_question(wanted, question);
            if (status == ACM_STATUS_SUCCESS)
                endpoint.look_up(question, std::move(request), nodelay, answers);
            else
                endpoint.finish(std::move(request), status, nullptr, answers);
        }
        send(answers);
        return 0;
    });
}

int query(void *addr_context, acm_msg *msg, uint64_t id)
{
    return guarded([=] {
        Endpoint &endpoint = *static_cast<Endpoint *>(addr_context);
        Request request{id, msg->hdr, true, entries_of(*msg, filled(*msg) ? 1 : 0),
                        Clock::now() + endpoint.port.device.patience};
        ibv_path_record question;
        uint8_t status = ACM_STATUS_EINVAL;
        Answers answers;
        {
            std::lock_guard<std::mutex> guard(lock);
            if (!request.extra.empty() && request.extra[0].type == ACM_EP_INFO_PATH)
                status = endpoint.make_question(request.extra[0].info.path, question);
            if (status == ACM_STATUS_SUCCESS)
                endpoint.look_up(question, std::move(request), false, answers);
            else
                endpoint.finish(std::move(request), status, nullptr, answers);
        }
        send(answers);
        return 0;
    });
}

// ---- Opening and closing. An open that fails must not write the context. ----

int open_device(const acm_device *acm, void **dev_context)
{
    return guarded([=] {
        auto &device = devices[acm];
        device = std::make_unique<Device>();
        *dev_context = device.get();
        return 0;
    });
}

void close_device(void *dev_context)
{
    for (auto at = devices.begin(); at != devices.end(); ++at)
        if (at->second.get() == dev_context) {
            devices.erase(at);
            return;
        }
}

int open_port(const acm_port *acm, void *dev_context, void **port_context)
{
    return guarded([=] {
        ibv_port_attr attributes;
        const int error = ibv_query_port(acm->dev->verbs, acm->port_num, &attributes);
        if (error)
            return error;
        if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET)
            return ENOTSUP; // there is no SA
        *port_context = new Port(*static_cast<Device *>(dev_context));
        return 0;
    });
}

void close_port(void *port_context)
{
    delete static_cast<Port *>(port_context);
}

int open_endpoint(const acm_endpoint *acm, void *port_context, void **ep_context)
{
    return guarded([=] {
        Port &port = *static_cast<Port *>(port_context);
        ibv_gid gid;
        if (acm_get_gid(acm->port, 0, &gid))
            return ENODEV;
        auto endpoint = std::make_unique<Endpoint>(port, acm, gid);
        std::lock_guard<std::mutex> guard(lock);
        port.endpoints.push_back(endpoint.get());
        *ep_context = endpoint.release();
        return 0;
    });
}

void close_endpoint(void *ep_context)
{
    std::unique_ptr<Endpoint> endpoint(static_cast<Endpoint *>(ep_context));
    Answers answers;

    guarded([&] {
        std::lock_guard<std::mutex> guard(lock);
        endpoint->close(answers);
        return 0;
    });
    send(answers);
}

// Addresses do not matter to this provider: requests from all of them use their endpoint.
int add_address(const acm_address *, void *ep_context, void **addr_context)
{
    *addr_context = ep_context;
    return 0;
}

void remove_address(void *)
{
}

int handle_event(void *port_context, ibv_event_type type)
{
    if (type != IBV_EVENT_CLIENT_REREGISTER)
        return 0;
    std::lock_guard<std::mutex> guard(lock);
    Port &port = *static_cast<Port *>(port_context);
    forget(port.qos_tid); // it may be another SA
    port.qos = Port::Untold;
    // Queries in flight still answer their requests, but no new request joins them.
    for (Endpoint *endpoint : port.endpoints) {
        endpoint->paths.clear();
        endpoint->records.clear();
    }
    port.wake.notify_one();
    return 0;
}

void query_perf(void *ep_context, uint64_t *values, uint8_t *cnt)
{
    std::lock_guard<std::mutex> guard(lock);

    for (int i = 0; i < ACM_MAX_COUNTER; i++)
        values[i] = htobe64(static_cast<Endpoint *>(ep_context)->counters[i]);
    *cnt = ACM_MAX_COUNTER;
}

acm_provider provider = {
    sizeof(acm_provider),
    1, // the version that this file was written for, not the installed header's
    "sa-example-cpp",
    open_device,
    close_device,
    open_port,
    close_port,
    open_endpoint,
    close_endpoint,
    add_address,
    remove_address,
    resolve,
    query,
    handle_event,
    query_perf,
};

} // namespace

extern "C" __attribute__((visibility("default"))) int provider_query(acm_provider **info, uint32_t *version)
{
    *info = &provider;
    *version = provider.version;
    return 0;
}
