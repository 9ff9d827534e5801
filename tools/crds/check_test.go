package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deployed are the files with objects of other projects.
var deployed = map[string]int{
	"../../deploy/kubernetes/overlays/tls/certificates.yaml":          5,
	"../../deploy/kubernetes/overlays/monitoring/servicemonitor.yaml": 1,
}

// TestDeployedObjects: those of deploy/ are right.
func TestDeployedObjects(t *testing.T) {
	for file, want := range deployed {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n, faults := check(text); n != want || len(faults) > 0 {
			t.Errorf("%s: %d objects, want %d; %v", file, n, want, faults)
		}
	}
}

// TestMisspeltFieldsAreRefused, in each of the kinds and at each depth, and so is what is missing or of another type.
func TestMisspeltFieldsAreRefused(t *testing.T) {
	for file, changes := range map[string]map[string][2]string{
		"../../deploy/kubernetes/overlays/tls/certificates.yaml": {
			`unknown field "spec.secretNam"`:                        {"secretName: tryst-server", "secretNam: tryst-server"},
			`unknown field "spec.selfsigned"`:                       {"selfSigned: {}", "selfsigned: {}"},
			`unknown field "spec.privateKey.sizes"`:                 {"size: 256", "sizes: 256"},
			`unknown field "spec.issuerRef.nam"`:                    {"issuerRef: {name: tryst, ", "issuerRef: {nam: tryst, "},
			`unknown field "metadata.nam"`:                          {"name: tryst-client\n", "nam: tryst-client\n"},
			"required, and not there: spec.secretName":              {"  secretName: tryst-client\n", ""},
			"required, and not there: spec.issuerRef.name":          {"issuerRef: {name: tryst-root, ", "issuerRef: {"},
			"cannot unmarshal string into Go struct field":          {"size: 256", `size: "256"`},
			`there is no type of cert-manager.io/v2`:                {"cert-manager.io/v1", "cert-manager.io/v2"},
			`key "renewBefore" already set in map`:                  {"duration: 2160h", "renewBefore: 720h"},
			"cannot unmarshal number into Go struct field":          {"duration: 2160h", "duration: 2160"},
			`Kind tryst-ca: there is no type of cert-manager.io/v1`: {"kind: Certificate\nmetadata:\n  name: tryst-ca", "kind: Kind\nmetadata:\n  name: tryst-ca"},
		},
		"../../deploy/kubernetes/overlays/monitoring/servicemonitor.yaml": {
			`unknown field "spec.endpoints[0].intervall"`: {"interval:", "intervall:"},
			`unknown field "spec.selektor"`:               {"selector:", "selektor:"},
			"required, and not there: spec.endpoints":     {"endpoints:\n    - port: metrics\n      path: /metrics\n      interval: 15s\n", ""},
			`unknown field "spec.selector.matchLabel"`:    {"matchLabels:", "matchLabel:"},
		},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for want, change := range changes {
			wrong := strings.Replace(string(text), change[0], change[1], 1)
			if wrong == string(text) {
				t.Errorf("%s has no %q", file, change[0])
			}
			if _, faults := check([]byte(wrong)); len(faults) == 0 || !strings.Contains(faults[0].Error(), want) {
				t.Errorf("%v, want %q", faults, want)
			}
		}
	}
}

// TestKubernetesKindsAreLeftOut: there is another check for them.
func TestKubernetesKindsAreLeftOut(t *testing.T) {
	text := "kind: Service\napiVersion: v1\nspek: 1\n---\nkind: Deployment\napiVersion: apps/v1\n---\nkind: NetworkPolicy\napiVersion: networking.k8s.io/v1\n---\n# nothing\n"
	if n, faults := check([]byte(text)); n != 0 || len(faults) > 0 {
		t.Errorf("%d, %v", n, faults)
	}
}

// TestCommand: its exit status tells.
func TestCommand(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("kind: Issuer\napiVersion: cert-manager.io/v1\nspek: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	for file := range deployed {
		if run([]string{file}, &out, &errs) != 0 {
			t.Error(errs.String())
		}
	}
	if run([]string{wrong}, &out, &errs) != 1 || !strings.Contains(errs.String(), `wrong.yaml: Issuer : `) {
		t.Error(errs.String())
	}
	if run(nil, &out, &errs) != 2 || run([]string{wrong + "x"}, &out, &errs) != 1 {
		t.Error(errs.String())
	}
}
