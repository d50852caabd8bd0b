/* A stub of libibumad for tests: one device with one port; the test supplies its packets. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/umad.h>

#define MOST 16

static struct packet {
	struct ib_user_mad header;
	unsigned char mad[4096];
	int length;
} queue[MOST];
static int first, last;

static struct ib_user_mad sent;
static unsigned char sent_mad[4096];
static int open_ports, smi_opens, agents;
static int send_error;
static int interruptions, waited;
static int state = 4, physical_state = 5, capabilities = 0x02514868, most_agents = 32;

/* Functions for the test. */

void stub_put(int agent, unsigned status, const unsigned char *mad, int length)
{
	struct packet *packet = &queue[last++ % MOST];

	memset(packet, 0, sizeof(*packet));
	packet->header.agent_id = agent;
	packet->header.status = status;
	packet->header.length = sizeof(packet->header) + length;
	packet->header.addr.lid = htobe16(9);
	packet->header.addr.qpn = htobe32(1);
	memcpy(packet->mad, mad, length);
	packet->length = length;
}

int stub_sent(unsigned char *mad, unsigned *timeout, unsigned *retries)
{
	memcpy(mad, sent_mad, 256);
	*timeout = sent.timeout_ms;
	*retries = sent.retries;
	return be16toh(sent.addr.lid);
}

void stub_fail_send(int error)
{
	send_error = error;
}

/* The next calls of umad_recv are interrupted by a signal. */
void stub_interrupt(int times)
{
	interruptions = times;
}

/* The timeout of the last call of umad_recv. */
int stub_waited(void)
{
	return waited;
}

int stub_open_ports(void)
{
	return open_ports;
}

int stub_smi_opens(void)
{
	return smi_opens;
}

int stub_agents(void)
{
	return agents;
}

void stub_state(int number)
{
	state = number;
}

void stub_physical_state(int number)
{
	physical_state = number;
}

void stub_capabilities(int bits)
{
	capabilities = bits;
}

void stub_most_agents(int number)
{
	most_agents = number;
}

/* The library's functions. */

struct umad_device_node *umad_get_ca_device_list(void)
{
	struct umad_device_node *node = calloc(1, sizeof(*node));

	node->ca_name = "stub0";
	return node;
}

void umad_free_ca_device_list(struct umad_device_node *head)
{
	free(head);
}

int umad_get_ca(const char *name, umad_ca_t *ca)
{
	static umad_port_t port;

	memset(ca, 0, sizeof(*ca));
	strcpy(ca->ca_name, name);
	ca->node_type = 1;
	ca->numports = 1;
	port.portnum = 1;
	port.state = state;
	port.phys_state = physical_state;
	port.base_lid = 7;
	port.sm_lid = 0x12345;
	port.port_guid = htobe64(0x1122334455667788);
	port.capmask = htobe32(capabilities);
	strcpy(port.link_layer, "InfiniBand");
	ca->ports[1] = &port;
	return 0;
}

int umad_release_ca(umad_ca_t *ca)
{
	return 0;
}

int umad_open_port(const char *name, int number)
{
#ifdef FINDS_NOTHING
	errno = EINVAL;
	return -EINVAL;
#endif
	if (strcmp(name, "stub0") || number != 1) {
		errno = EINVAL;
		return -EINVAL;
	}
	open_ports++;
	return 40;
}

#ifdef WITH_SMI_OPEN
int umad_open_smi_port(const char *name, int number)
{
	smi_opens++;
	return umad_open_port(name, number);
}
#endif

int umad_close_port(int port)
{
	open_ports--;
	return 0;
}

int umad_get_fd(int port)
{
	return port;
}

int umad_register(int port, int mgmt_class, int version, uint8_t rmpp, long *mask)
{
	if (mgmt_class == 0x01) {
		errno = EINVAL;
		return -EPERM;
	}
	if (agents >= most_agents) {
		errno = ENOMEM;
		return -EPERM;
	}
	return agents++;
}

int umad_unregister(int port, int agent)
{
	agents--;
	return 0;
}

void *umad_get_mad(void *umad)
{
	return (char *)umad + sizeof(struct ib_user_mad);
}

int umad_set_pkey(void *umad, int index)
{
	((struct ib_user_mad *)umad)->addr.pkey_index = index;
	return 0;
}

int umad_get_pkey(void *umad)
{
	return ((struct ib_user_mad *)umad)->addr.pkey_index;
}

int umad_send(int port, int agent, void *umad, int length, int timeout_ms, int retries)
{
	if (send_error) {
		errno = send_error;
		return -EIO;
	}
	memcpy(&sent, umad, sizeof(sent));
	memset(sent_mad, 0, sizeof(sent_mad));
	memcpy(sent_mad, umad_get_mad(umad), length);
	sent.timeout_ms = timeout_ms;
	sent.retries = retries;
	return 0;
}

int umad_recv(int port, void *umad, int *length, int timeout_ms)
{
	struct packet *packet = &queue[first % MOST];

	waited = timeout_ms;
	if (interruptions) {
		interruptions--;
		errno = EINTR;
		return -EINTR;
	}
	if (first == last) {
		if (timeout_ms > 0)
			usleep(timeout_ms * 1000);
		errno = ETIMEDOUT;
		return -ETIMEDOUT;
	}
	if (packet->length > *length) {
		*length = packet->length;
		errno = ENOSPC;
		return -ENOSPC;
	}
	memcpy(umad, &packet->header, sizeof(packet->header));
	memcpy(umad_get_mad(umad), packet->mad, packet->length);
	*length = packet->length;
	first++;
	return packet->header.agent_id;
}
