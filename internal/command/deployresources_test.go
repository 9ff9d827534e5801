package command

import (
	"errors"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The fields of resources of operators that deploy/ uses, as their API references have them; the schemas of Kubernetes do
// not have these kinds, so make check-deploy passes over them.
type (
	resource[Spec any] struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct {
			Name   string
			Labels map[string]string
		}
		Spec Spec
	}
	serviceMonitor struct { // monitoring.coreos.com/v1
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Endpoints []struct{ Port, Path, Interval string }
	}
	issuer struct { // cert-manager.io/v1
		SelfSigned *struct{} `yaml:"selfSigned"`
		CA         *struct {
			SecretName string `yaml:"secretName"`
		}
	}
	certificate struct { // cert-manager.io/v1
		IsCA        bool   `yaml:"isCA"`
		CommonName  string `yaml:"commonName"`
		SecretName  string `yaml:"secretName"`
		Duration    string
		RenewBefore string   `yaml:"renewBefore"`
		DNSNames    []string `yaml:"dnsNames"`
		Usages      []string
		PrivateKey  struct {
			Algorithm string
			Size      int
		} `yaml:"privateKey"`
		IssuerRef struct{ Name, Kind string } `yaml:"issuerRef"`
	}
)

// TestResourcesOfOperators: no field is misspelled, and what refers to another resource finds it.
func TestResourcesOfOperators(t *testing.T) {
	strict := func(text string, to any) {
		t.Helper()
		d := yaml.NewDecoder(strings.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(to); err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%v in\n%s", err, text)
		}
	}
	var m resource[serviceMonitor]
	strict(deployed(t, "kubernetes/overlays/monitoring/servicemonitor.yaml"), &m)
	service := deployed(t, "kubernetes/base/service.yaml")
	if m.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "tryst" || len(m.Spec.Endpoints) != 1 || !strings.Contains(service, "name: "+m.Spec.Endpoints[0].Port+"\n") {
		t.Errorf("%+v", m)
	}
	issuers, secrets := make(map[string]bool), make(map[string]bool)
	var all []resource[certificate]
	for text := range strings.SplitSeq(deployed(t, "kubernetes/overlays/tls/certificates.yaml"), "\n---\n") {
		if strings.Contains(text, "kind: Issuer\nmetadata") {
			var i resource[issuer]
			strict(text, &i)
			issuers[i.Metadata.Name] = true
			continue
		}
		var c resource[certificate]
		strict(text, &c)
		secrets[c.Spec.SecretName] = true
		all = append(all, c)
	}
	for _, c := range all {
		if !issuers[c.Spec.IssuerRef.Name] || c.Kind != "Certificate" {
			t.Errorf("%s: no issuer %q", c.Metadata.Name, c.Spec.IssuerRef.Name)
		}
	}
	if !secrets["tryst-ca"] || !secrets["tryst-server"] || !strings.Contains(deployed(t, "kubernetes/overlays/tls/server.yaml"), "secretName: tryst-server") {
		t.Errorf("secrets %v", secrets)
	}
}

// TestConsumersPull: the arguments of the Job and of the init container are those of tryst pull.
func TestConsumersPull(t *testing.T) {
	for _, name := range []string{"job", "deployment"} {
		text := deployed(t, "kubernetes/consumer/"+name+".yaml")
		_, rest, _ := strings.Cut(text, "args: [")
		list, _, ok := strings.Cut(rest, "]")
		if !ok {
			t.Fatalf("%s has no arguments", name)
		}
		cmd, args, err := newRoot(streams{}).Find(strings.Split(list, ", "))
		if err != nil || cmd.Name() != "pull" {
			t.Fatalf("%s: %v", list, err)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Errorf("%s: %v", list, err)
		}
		if !strings.Contains(text, `tryst-client: "true"`) {
			t.Errorf("%s does not pass the NetworkPolicy", name)
		}
	}
}
