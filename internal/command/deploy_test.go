package command

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
)

// The files in deploy/ name flags, variables, ports and paths of this command. make check-deploy
// checks their form; these tests check that what they name is there.

// deployed returns a file of deploy/.
func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// served returns the settings of a tryst serve with arguments and variables, which must be valid.
func served(t *testing.T, args []string, env ...string) *sources.Loaded {
	t.Helper()
	cmd, rest, err := newRoot(streams{}).Find(args)
	if err != nil || cmd.Name() != "serve" {
		t.Fatalf("%q is not tryst serve: %v", args, err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if f := cmd.Flags().Lookup("config"); f.Changed { // the file is the user's
		f.Changed = false
	}
	c, err := sources.Load(sources.Options{Flags: cmd.Flags(), Environ: append([]string{}, env...), Use: config.ForServer})
	if err != nil {
		t.Fatalf("%q with %q: %v", args, env, err)
	}
	return c
}

// TestContainerfile: every image runs a valid command, as a user that is not root, and is built by the
// Go of go.mod.
func TestContainerfile(t *testing.T) {
	file := deployed(t, "Containerfile")
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	goLine := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))[1]
	if want := "golang:" + goLine + "-"; !strings.Contains(file, want) {
		t.Errorf("no image %s, which go.mod needs", want)
	}
	images := 0
	for _, stage := range strings.Split(file, "\nFROM ")[1:] {
		m := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindStringSubmatch(stage)
		if m == nil {
			continue // a stage that builds
		}
		images++
		var args []string
		if err := json.Unmarshal([]byte(m[1]), &args); err != nil {
			t.Fatalf("CMD %s: %v", m[1], err)
		}
		c := served(t, args)
		for _, want := range []string{"\nUSER 65532:65532\n", "\nENTRYPOINT [\"/usr/local/bin/tryst\"]\n", "EXPOSE 2222/tcp 9090/tcp"} {
			if !strings.Contains(stage, want) {
				t.Errorf("the image has no %q:\n%s", want, stage)
			}
		}
		if c.Listen != ":2222" || c.MetricsAddress != ":9090" {
			t.Errorf("the image listens at %s and %s, and exposes 2222 and 9090", c.Listen, c.MetricsAddress)
		}
	}
	if images != 2 || !strings.Contains(file[strings.LastIndex(file, "\nFROM "):], "FROM scratch AS static\n") {
		t.Errorf("%d images, want 2, of which the static one is last and so the default", images)
	}
}

// statefulSet has what the tests read of a manifest or a patch of it.
type statefulSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				EnableServiceLinks *bool `yaml:"enableServiceLinks"`
				Grace              int64 `yaml:"terminationGracePeriodSeconds"` // in seconds
				SecurityContext    struct {
					RunAsNonRoot bool `yaml:"runAsNonRoot"`
				} `yaml:"securityContext"`
				Containers []struct {
					Args  []string
					Env   []struct{ Name, Value string }
					Ports []struct {
						Name          string
						ContainerPort int `yaml:"containerPort"`
					}
					LivenessProbe   probeSpec `yaml:"livenessProbe"`
					ReadinessProbe  probeSpec `yaml:"readinessProbe"`
					SecurityContext struct {
						AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
						Capabilities             struct{ Add, Drop []string }
					} `yaml:"securityContext"`
					Resources struct{ Limits map[string]string }
				}
			}
		}
	}
}

type probeSpec struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

func manifest(t *testing.T, name string) (m statefulSet) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(deployed(t, name)), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%s has %d containers", name, len(m.Spec.Template.Spec.Containers))
	}
	return m
}

// TestManifests: the server of each overlay starts with its arguments and variables, stops within the
// time that the kubelet gives it, and has the least privilege.
func TestManifests(t *testing.T) {
	base := manifest(t, "kubernetes/base/server.yaml")
	pod, server := base.Spec.Template.Spec, base.Spec.Template.Spec.Containers[0]
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Error("service links are not off")
	}
	allow := server.SecurityContext.AllowPrivilegeEscalation
	if !pod.SecurityContext.RunAsNonRoot || allow == nil || *allow || !slices.Equal(server.SecurityContext.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("the server has privileges: %+v, %+v", pod.SecurityContext, server.SecurityContext)
	}
	for overlay, provider := range map[string]string{"": "auto", "roce": config.ProviderRoCE, "rdma": config.ProviderLibibverbs} {
		var env []string
		if overlay != "" {
			patch := manifest(t, "kubernetes/overlays/"+overlay+"/server.yaml").Spec.Template.Spec.Containers[0]
			for _, v := range patch.Env {
				env = append(env, v.Name+"="+v.Value)
			}
			if len(patch.SecurityContext.Capabilities.Add) > 0 {
				t.Errorf("%s adds capabilities", overlay)
			}
			if _, ok := patch.Resources.Limits["rdma/hca_shared_devices_a"]; ok != (overlay == "rdma") {
				t.Errorf("%s: a resource of the device plugin: %v", overlay, ok)
			}
		}
		c := served(t, server.Args, env...)
		if overlay != "" && c.Transport != config.Verbs || c.Provider != provider {
			t.Errorf("%q: transport %s, provider %s", overlay, c.Transport, c.Provider)
		}
		if time.Duration(pod.Grace)*time.Second <= c.ShutdownTimeout {
			t.Errorf("%q: the kubelet ends the server after %v s, which may stop for %v", overlay, pod.Grace, c.ShutdownTimeout)
		}
		for _, p := range server.Ports {
			listens := map[string]string{"grpc": c.Listen, "metrics": c.MetricsAddress}[p.Name]
			if _, port, err := net.SplitHostPort(listens); err != nil || port != map[int]string{2222: "2222", 9090: "9090"}[p.ContainerPort] {
				t.Errorf("port %s is %d, and the server listens at %q", p.Name, p.ContainerPort, listens)
			}
		}
	}
}

// TestProbesOfTheManifest asks a server for the paths of the probes, at the address of the port that
// they name.
func TestProbesOfTheManifest(t *testing.T) {
	server := manifest(t, "kubernetes/base/server.yaml").Spec.Template.Spec.Containers[0]
	metrics := closedPort(t)
	serve(t, "--metrics-address", metrics, generate(t))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, p := range []probeSpec{server.LivenessProbe, server.ReadinessProbe} {
		if p.HTTPGet.Port != "metrics" {
			t.Errorf("the probe %s asks port %q", p.HTTPGet.Path, p.HTTPGet.Port)
		}
		r, err := client.Get("http://" + metrics + p.HTTPGet.Path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%q: %s", p.HTTPGet.Path, r.Status)
		}
	}
}

// TestSystemdUnit: its command is valid, it waits for READY=1, and it lets the server stop.
func TestSystemdUnit(t *testing.T) {
	unit := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z]+)=(.*)$`).FindAllStringSubmatch(deployed(t, "systemd/tryst.service"), -1) {
		unit[m[1]] = m[2]
	}
	for key, want := range map[string]string{"Type": "notify", "LimitMEMLOCK": "infinity", "CapabilityBoundingSet": "", "NoNewPrivileges": "yes", "DynamicUser": "yes"} {
		if got, ok := unit[key]; !ok || got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
	if want := strconv.Itoa(exitUsage); unit["RestartPreventExitStatus"] != want {
		t.Errorf("RestartPreventExitStatus=%s: wrong settings stay wrong, and their exit status is %s", unit["RestartPreventExitStatus"], want)
	}
	loads := regexp.MustCompile(`(?m)^#LoadCredential=([^:]+):/etc/tryst/`).FindStringSubmatch(deployed(t, "systemd/tryst.service"))
	guide, err := os.ReadFile("../../docs/systemd.md")
	if err != nil {
		t.Fatal(err)
	}
	if loads == nil || !strings.Contains(string(guide), "tls.key: /run/credentials/tryst.service/"+loads[1]+"`") {
		t.Errorf("docs/systemd.md does not have the path of LoadCredential= %v", loads)
	}
	args := strings.Fields(unit["ExecStart"])
	if len(args) < 2 || args[0] != "/usr/local/bin/tryst" {
		t.Fatalf("ExecStart=%s", unit["ExecStart"])
	}
	c := served(t, args[1:])
	if stop, err := time.ParseDuration(unit["TimeoutStopSec"]); err != nil || stop <= c.ShutdownTimeout {
		t.Errorf("TimeoutStopSec=%s, and the server may stop for %v: %v", unit["TimeoutStopSec"], c.ShutdownTimeout, err)
	}
	if unit["TimeoutStartSec"] != "infinity" {
		t.Error("the digests of large checkpoints take longer than any TimeoutStartSec")
	}
}
