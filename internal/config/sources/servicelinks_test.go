package sources

import (
	"slices"
	"strings"
	"testing"
)

// linksOf returns the variables that the kubelet sets for a Service (envvars.FromServices in
// kubernetes/pkg/kubelet/envvars).
func linksOf(service, address string, ports ...[3]string) []string {
	name := strings.ToUpper(strings.ReplaceAll(service, "-", "_"))
	host := address
	if strings.Contains(address, ":") {
		host = "[" + address + "]"
	}
	links := []string{name + "_SERVICE_HOST=" + address}
	for i, p := range ports {
		number, protocol, portName := p[0], p[1], strings.ToUpper(strings.ReplaceAll(p[2], "-", "_"))
		url := strings.ToLower(protocol) + "://" + host + ":" + number
		if i == 0 {
			links = append(links, name+"_SERVICE_PORT="+number, name+"_PORT="+url)
		}
		if portName != "" {
			links = append(links, name+"_SERVICE_PORT_"+portName+"="+number)
		}
		prefix := name + "_PORT_" + number + "_" + protocol
		links = append(links, prefix+"="+url, prefix+"_PROTO="+strings.ToLower(protocol), prefix+"_PORT="+number, prefix+"_ADDR="+address)
	}
	return links
}

// TestServiceLinksArePassedOver has every variable of Services whose names begin as ours, one of
// which takes the name of the setting rdma.port.
func TestServiceLinksArePassedOver(t *testing.T) {
	for _, service := range []string{"tryst", "tryst-server", "tryst-rdma", "tryst-service", "tryst-port", "tryst-9"} {
		for _, address := range []string{"10.0.0.1", "fd00::1"} {
			links := linksOf(service, address, [3]string{"2222", "TCP", "grpc"}, [3]string{"4791", "UDP", "roce-v2"}, [3]string{"9", "SCTP", ""})
			c, err := world{environ: links, use: both}.load(t)
			if err != nil {
				t.Errorf("%s at %s: %v", service, address, err)
				continue
			}
			var names []string
			for _, l := range links {
				name, _, _ := strings.Cut(l, "=")
				names = append(names, name)
			}
			if got := c.PassedOver(); !slices.Equal(got, names) {
				t.Errorf("%s at %s: passed over %q, want %q", service, address, got, names)
			}
			for _, e := range c.Describe() {
				if e.Source.Kind != FromDefault {
					t.Errorf("%s at %s: %s is %q from %v", service, address, e.Key, e.Value, e.Source)
				}
			}
		}
	}
}

// TestServiceLinkOfTensorFlowsName is a Service named rdma-device: its variable has the name of one
// of TensorFlow's verbs extension.
func TestServiceLinkOfTensorFlowsName(t *testing.T) {
	c, err := world{environ: []string{verbs, "RDMA_DEVICE_PORT=tcp://10.0.0.1:2222"}}.load(t)
	if err != nil || c.RDMA.Port != 0 {
		t.Errorf("got port %d, %v", c.RDMA.Port, err)
	}
	if got := c.PassedOver(); !slices.Equal(got, []string{"RDMA_DEVICE_PORT"}) {
		t.Errorf("passed over %q", got)
	}
}

// TestServiceLinkThatIsNone: a name or a value that does not have the form is a typing error.
func TestServiceLinkThatIsNone(t *testing.T) {
	for _, variable := range []string{
		"TRYST_SERVICE_HOST=here", "TRYST_SERVICE_HOST=", "TRYST_SERVICE_HOST_A=10.0.0.1", "TRYST_SERVICE_PORT=0", "TRYST_SERVICE_PORT=65536",
		"TRYST_SERVICE_PORT=grpc", "TRYST_SERVICE_PORT_=1", "TRYST_SERVICE_HOSTS=10.0.0.1", "TRYST_PORT=2222", "TRYST_PORT=tcp://host:1",
		"TRYST_PORT=http://10.0.0.1:80", "TRYST_PORT=tcp://10.0.0.1", "TRYST_PORT=tcp://10.0.0.1:0", "TRYST_PORT=tcp://10.0.0.1:1/", "TRYST_PORTS=tcp://10.0.0.1:1",
		"TRYST_PORT_2222_TCP=tcp://10.0.0.1:2223", "TRYST_PORT_2222_TCP=udp://10.0.0.1:2222", "TRYST_PORT_2222_TCP=2222", "TRYST_PORT_2222=tcp://10.0.0.1:2222",
		"TRYST_PORT_2222_TCP_PROTO=udp", "TRYST_PORT_2222_TCP_PORT=2223", "TRYST_PORT_2222_TCP_ADDR=h", "TRYST_PORT_2222_QUIC_ADDR=10.0.0.1",
		"TRYST_RDMA_PORTS=1", "TRYST_LISTEN_PORT=2222", "TRYST__PORT=x",
	} {
		name, _, _ := strings.Cut(variable, "=")
		_, err := world{environ: []string{variable}}.load(t)
		wantErrors(t, err, []string{`variable "` + name + `"`, "no such setting"})
	}
	c, err := world{environ: []string{"TRYST_RDMA_PORT=2"}}.load(t)
	if err != nil || c.RDMA.Port != 2 || len(c.PassedOver()) > 0 {
		t.Errorf("the setting: got %d, %q, %v", c.RDMA.Port, c.PassedOver(), err)
	}
	_, err = world{environ: []string{"TRYST_RDMA_PORT=tcp://here"}}.load(t)
	wantErrors(t, err, []string{`TRYST_RDMA_PORT "tcp://here"`})
}
