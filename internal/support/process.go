package support

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// Process adds what a process says at its metrics address: HOST:PORT, a PORT of this host, or a URL. pprof is the address
// of its profiles; empty for that of its settings, at the same host. It returns what could not be had. An error is one of
// the archive.
func (a *Archive) Process(ctx context.Context, client *http.Client, folder, address, pprof string) (missing []error, err error) {
	base := baseURL(address)
	get := func(name, from string, change func(string) string) (body string, err error) {
		body, failure := fetch(ctx, client, from, a.most)
		if failure != nil {
			missing = append(missing, fmt.Errorf("%s of %s: %w", name, address, failure))
			return "", a.Add(folder+"/"+name, "not there: "+failure.Error()+"\n")
		}
		return body, a.Add(folder+"/"+name, change(body))
	}
	same := func(s string) string { return s }
	text, err := get("status.json", base+statusapi.Path, pretty)
	if err != nil {
		return missing, err
	}
	var st statusapi.Status
	if json.Unmarshal([]byte(text), &st) == nil { // otherwise status.json shows what came
		if err := a.Add(folder+"/warnings.txt", warnings(st.Warnings)); err != nil {
			return missing, err
		}
	}
	for _, f := range []struct {
		name, path string
		change     func(string) string
	}{{"links.json", "/links", pretty}, {"metrics.txt", "/metrics", same}, {"ready.txt", "/readyz", same}} {
		if _, err := get(f.name, base+f.path, f.change); err != nil {
			return missing, err
		}
	}
	if pprof == "" {
		pprof = profiles(base, st.Settings)
	}
	if pprof == "" {
		missing = append(missing, fmt.Errorf("goroutines of %s: pprof-address is not set", address))
		return missing, a.Add(folder+"/goroutines.txt", "not there: pprof-address of the process is not set\n")
	}
	_, err = get("goroutines.txt", baseURL(pprof)+"/debug/pprof/goroutine?debug=2", stacks)
	return missing, err
}

// baseURL returns the URL of an address.
func baseURL(address string) string {
	switch {
	case strings.Contains(address, "://"):
		return strings.TrimSuffix(address, "/")
	case !strings.Contains(address, ":"):
		return "http://" + net.JoinHostPort("127.0.0.1", address)
	case strings.HasPrefix(address, ":"):
		return "http://127.0.0.1" + address
	}
	return "http://" + address
}

// profiles returns the address of the profiles of a process that has these settings, at the host of its metrics; empty if
// there is none.
func profiles(base string, settings []statusapi.Setting) string {
	for _, s := range settings {
		if s.Key != "pprof-address" {
			continue
		}
		host, port, err := net.SplitHostPort(s.Value)
		u, _ := url.Parse(base)
		if err != nil || u == nil {
			return ""
		}
		if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
			host = u.Hostname()
		}
		return net.JoinHostPort(host, port)
	}
	return ""
}

func fetch(ctx context.Context, client *http.Client, from string, most int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("no answer within %v", fetchTimeout)
	case err != nil:
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable { // which has the reason
		return "", errors.New(resp.Status)
	}
	return string(body), nil
}

// pretty indents JSON; another text stays as it is.
func pretty(text string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", " ") != nil {
		return text
	}
	return b.String()
}

// warnings returns the last warnings of a process, the newest first.
func warnings(all []statusapi.Warning) string {
	var b strings.Builder
	for _, w := range all {
		fmt.Fprintf(&b, "%s %s %s", w.Time.Format(time.RFC3339), w.Level, w.Message)
		for _, x := range w.Attributes {
			fmt.Fprintf(&b, " %s=%q", x.Key, x.Value)
		}
		if w.Count > 1 {
			fmt.Fprintf(&b, " (%d times)", w.Count)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
